"""The server's HTTP protocol with a span for each hot request.

The server uses it instead of `FastHttpProtocol` if spans are exported. Without an export none of this is
imported, and a request takes the same calls as if there were no spans.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.api.http.fast_protocol import FastHttpProtocol, FastRequestCycle
from penstock.api.http.request_spans import RequestSpan, RequestTracer
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api.http.reply import Handler
    from penstock.caller import Caller

STATUS_DIGITS = slice(len("HTTP/1.1 "), len("HTTP/1.1 200"))


class TracedRequestCycle(FastRequestCycle):
    """A hot request whose span lasts from its body to its response."""

    __slots__ = ("error_code", "span")

    protocol: TracedHttpProtocol

    def __init__(self, protocol: FastHttpProtocol, handler: Handler, caller: Caller) -> None:
        super().__init__(protocol, handler, caller)
        self.span: RequestSpan | None = None
        self.error_code: str | None = None

    def run(self) -> None:
        ids = self.request_ids
        self.span = self.protocol.tracer.start_hot(
            self.protocol.url, self.handler, ids.trace_context if ids is not None else None
        )
        super().run()

    def set(self) -> None:
        super().set()
        if self.span is not None:
            self.span.end_disconnected()

    def _send(self, head: bytes, body: bytes) -> None:
        pending_request = self.pending_request
        super()._send(head, body)
        if self.span is not None and self.response_complete:
            attributes = pending_request.span_attributes() if pending_request is not None else None
            self.span.end(int(head[STATUS_DIGITS]), self.error_code, attributes)

    def _problem(self, error: Exception) -> tuple[bytes, bytes]:
        self.error_code = error.code if isinstance(error, PenstockError) else type(error).__name__
        return super()._problem(error)


class TracedHttpProtocol(FastHttpProtocol):
    """One client connection whose hot requests have spans."""

    cycle_type = TracedRequestCycle
    tracer: RequestTracer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.tracer = self.application.state.request_tracer
        super().connection_made(transport)
