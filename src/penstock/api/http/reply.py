"""The reply to a hot request, between its handler and its batch.

A handler starts the request and either returns an awaitable of the response, or sets the reply's
`pending_request` and puts the reply into a batch. The batch then passes its result to the reply.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from penstock.api.http.response import HotResponse
from penstock.api.services import Services
from penstock.batching import receive
from penstock.caller import Caller


class PendingRequest(ABC):
    """A request that waits for its batch: how it becomes a response."""

    __slots__ = ()

    @abstractmethod
    def finish(self, result: Any) -> HotResponse | Awaitable[HotResponse]:
        """Build the response from the result of the batch."""

    def recover(self, error: Exception) -> Awaitable[HotResponse] | None:
        """Continue after the batch has failed. None: the error is the response."""
        return None

    def abandon(self, result: Any) -> None:  # noqa: B027 - most results need no undoing
        """Undo a result whose client has disconnected."""

    def span_attributes(self) -> Mapping[str, str | int]:
        """Describe the request for its span. Called only if spans are exported."""
        return {}

    def cancel(self) -> None:  # noqa: B027 - most requests wait for nothing but their batch
        """Stop waiting for something to happen: the client has disconnected."""


class Reply(Protocol):
    """The destination of one response. It is the `Receiver` that a batch gives its result to."""

    pending_request: PendingRequest | None

    def client_disconnected(self) -> bool:
        """Whether the client closed its connection before it got a response."""

    def done(self) -> bool: ...

    def set_result(self, result: object, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


Handler = Callable[[Services, Caller, bytes, Reply], Awaitable[HotResponse] | None]
"""Start the request of a caller: an awaitable of the response, or None if a batch resolves the reply."""


class FutureReply:
    """A reply that is awaited: for routes of the framework, where requests have tasks."""

    def __init__(self, client_disconnected: Callable[[], bool] = lambda: False) -> None:
        self.client_disconnected = client_disconnected
        self.pending_request: PendingRequest | None = None
        self._result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.done = self._result.done
        self.set_result = self._result.set_result
        self.set_exception = self._result.set_exception

    async def response(self) -> HotResponse:
        """Wait for the batch and build the response. If cancelled, undo a result that has arrived."""
        pending_request = self.pending_request
        assert pending_request is not None
        try:
            result = await receive(self._result, pending_request.abandon)
        except asyncio.CancelledError:
            pending_request.cancel()
            raise
        except Exception as error:
            recovery = pending_request.recover(error)
            if recovery is None:
                raise
            return await recovery
        response = pending_request.finish(result)
        return response if isinstance(response, HotResponse) else await response


async def completed(response: HotResponse) -> HotResponse:
    """Return a response that needs no batch, in the form a handler returns."""
    return response


async def respond(
    services: Services,
    caller: Caller,
    handler: Handler,
    body: bytes = b"",
    client_disconnected: Callable[[], bool] = lambda: False,
) -> HotResponse:
    """Run a handler and wait for its response."""
    reply = FutureReply(client_disconnected)
    work = handler(services, caller, body, reply)
    return await (reply.response() if work is None else work)
