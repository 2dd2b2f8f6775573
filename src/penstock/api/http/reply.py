"""Types of hot request handling: the pending reply of a request, and the handler that starts the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from penstock.api.http.response import HotResponse
from penstock.api.services import Services


class Reply(Protocol):
    """The pending reply to one request. It is the `Receiver` that a batch gives its result to.

    `on_result` turns the result into the response, or into an awaitable of it. `on_error` does the same with
    an error; if it is None, the error itself becomes the response.
    """

    on_result: Callable[[Any], HotResponse | Awaitable[HotResponse]]
    on_error: Callable[[Exception], Awaitable[HotResponse]] | None

    def client_disconnected(self) -> bool:
        """Whether the client closed its connection before it got a response."""

    def done(self) -> bool: ...

    def set_result(self, result: object, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


Handler = Callable[[Services, bytes, Reply], Awaitable[HotResponse] | None]
"""Start the request with this body: an awaitable of the response, or None if a batch resolves the reply."""
