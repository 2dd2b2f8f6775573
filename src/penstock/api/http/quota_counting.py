"""Count for quotas what is known only while a request runs: waiting, and the bytes of both bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.caller import Caller


@contextmanager
def counted_waiting(caller: Caller, wait_s: float) -> Iterator[None]:
    """Count a pop that may wait, until the end of the block. Raises QuotaExceeded."""
    if caller.quotas is None or not wait_s:
        yield
        return
    waiting_pop = caller.quotas.start_waiting()
    try:
        yield
    finally:
        waiting_pop.end()


class ByteQuotaMiddleware:
    """Counts the bytes of requests that the framework handles. Hot requests count theirs themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._call_counted(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _call_counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        size = 0

        async def receive_counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message

        async def send_counted(message: Message) -> None:
            nonlocal size
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive_counted, send_counted)
        finally:
            caller: Caller | None = state.get("caller")
            if caller is not None and caller.quotas is not None:
                caller.quotas.add_bytes(size)
