"""Spans of requests. They say which route, queue and group, and what came of it: never a payload or token."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.http.fast_routes import POP_PREFIX, POST_ROUTES, RUN_QUEUE_PREFIX, TASK_PREFIX
from penstock.api.http.reply import Handler
from penstock.api.http.request_ids import read_trace_context
from penstock.api.routes.push_pop import PopHandler
from penstock.api.routes.run_queue_tasks import DequeueHandler, EnqueueHandler
from penstock.trace_context import TraceContext

MESSAGING_SYSTEM = "penstock"
API_PREFIX = "/api/v1/"
LIVE_PREFIX = "/api/v1/live"
"""Streams of the console last as long as its page is open: a span would say nothing."""
SERVER_ERROR = 500

_OPERATIONS = {
    b"/api/v1/push": ("push", "send"),
    b"/api/v1/ack": ("ack", "settle"),
    b"/api/v1/ack/batch": ("ack", "settle"),
}
"""The operation of a hot POST, and its type in the conventions of OpenTelemetry."""


class RequestSpan:
    """The span of one request. It ends once."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def set_attributes(self, attributes: Mapping[str, str | int]) -> None:
        self._span.set_attributes(attributes)

    def set_route(self, method: str, route: str) -> None:
        self._span.update_name(f"{method} {route}")
        self._span.set_attribute("http.route", route)

    def end(self, status: int, error_code: str | None = None) -> None:
        if not self._span.is_recording():
            return
        self._span.set_attribute("http.response.status_code", status)
        if error_code is not None:
            self._span.set_attribute("error.type", error_code)
        if status >= SERVER_ERROR:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()

    def end_disconnected(self) -> None:
        """End the span of a request whose client did not wait for the response."""
        if self._span.is_recording():
            self._span.set_attribute("error.type", "client_disconnected")
            self._span.end()


class RequestTracer:
    """Starts spans of requests, as children of their `traceparent`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start(self, method: str, route: str | None, context: TraceContext | None) -> RequestSpan:
        name = method if route is None else f"{method} {route}"
        span = self._tracer.start_span(name, _parent(context), SpanKind.SERVER)
        span.set_attribute("http.request.method", method)
        if route is not None:
            span.set_attribute("http.route", route)
        return RequestSpan(span)

    def start_hot(self, url: bytes, handler: Handler, context: TraceContext | None) -> RequestSpan:
        """Start the span of a request that bypasses the framework."""
        if isinstance(handler, PopHandler):
            span = self.start("GET", f"{POP_PREFIX.decode()}{{queue}}", context)
            span.set_attributes(
                {
                    **_messaging("pop", "receive", handler.queue),
                    "messaging.consumer.group.name": handler.group,
                }
            )
        elif isinstance(handler, EnqueueHandler):
            span = self.start("POST", f"{RUN_QUEUE_PREFIX.decode()}{{queue}}/tasks", context)
            span.set_attributes(_messaging("enqueue", "send", handler.queue))
        elif isinstance(handler, DequeueHandler):
            path = "dequeue" if handler.queue is None else "{queue}/dequeue"
            span = self.start("POST", f"{RUN_QUEUE_PREFIX.decode()}{path}", context)
            span.set_attributes(_messaging("dequeue", "receive", handler.queue))
        elif url in POST_ROUTES:
            span = self.start("POST", url.decode(), context)
            if url in _OPERATIONS:
                span.set_attributes(_messaging(*_OPERATIONS[url], None))
        elif url.startswith(TASK_PREFIX):
            verb = url.rpartition(b"/")[2].decode("latin-1")
            span = self.start("POST", f"{TASK_PREFIX.decode()}{{task_id}}/{verb}", context)
        else:
            span = self.start("GET", url.partition(b"?")[0].decode("latin-1"), context)
        return span


class TracingMiddleware:
    """A span for each request of the API that the application handles."""

    def __init__(self, app: ASGIApp, tracer: RequestTracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith(API_PREFIX) or path.startswith(LIVE_PREFIX):
            await self._app(scope, receive, send)
            return
        context = read_trace_context(dict(scope["headers"]))
        span = self._tracer.start(scope["method"], None, context)
        status = SERVER_ERROR

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                span.set_route(scope["method"], route)
            span.end(status)


def _messaging(operation: str, operation_type: str, queue: str | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
    }
    return attributes if queue is None else {**attributes, "messaging.destination.name": queue}


def _parent(context: TraceContext | None) -> Context:
    if context is None:
        return Context()
    span_context = SpanContext(
        int(context.trace_id, 16),
        int(context.parent_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(context.flags, 16)),
    )
    return set_span_in_context(NonRecordingSpan(span_context), Context())
