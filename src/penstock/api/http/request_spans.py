"""Spans of requests. They say which route, queue and group, and what came of it: never a payload or token."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

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

from penstock.api.http.fast_routes import (
    POP_PREFIX,
    POST_ROUTES,
    RUN_QUEUE_PREFIX,
    TASK_PREFIX,
    is_cacheable,
)
from penstock.api.http.reply import Handler
from penstock.api.http.request_ids import read_trace_context
from penstock.api.routes.push_pop import PopHandler
from penstock.api.routes.run_queue_tasks import DequeueHandler, EnqueueHandler
from penstock.trace_context import TraceContext

Attributes = dict[str, str | int]

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

    def set_route(self, method: str, route: str) -> None:
        self._span.update_name(f"{method} {route}")
        self._span.set_attribute("http.route", route)

    def end(
        self, status: int, error_code: str | None = None, attributes: Mapping[str, str | int] | None = None
    ) -> None:
        """End the span with the result of the request, and with what is known about it only now."""
        if not self._span.is_recording():
            return
        result: dict[str, str | int] = {"http.response.status_code": status}
        if attributes is not None:
            result.update(attributes)
        if error_code is not None:
            result["error.type"] = error_code
        self._span.set_attributes(result)
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

    def start(self, method: str, context: TraceContext | None) -> RequestSpan:
        """Start the span of a request whose route is not known yet."""
        attributes = {"http.request.method": method}
        return RequestSpan(self._tracer.start_span(method, _parent(context), SpanKind.SERVER, attributes))

    def start_hot(self, url: bytes, handler: Handler, context: TraceContext | None) -> RequestSpan:
        """Start the span of a request that bypasses the framework."""
        describe = _describe_cached if is_cacheable(url, handler) else _describe_hot
        name, attributes = describe(url, handler)
        return RequestSpan(self._tracer.start_span(name, _parent(context), SpanKind.SERVER, attributes))


def _describe_hot(url: bytes, handler: Handler) -> tuple[str, Attributes]:
    """Return the name and the attributes of a hot request's span."""
    method = "POST"
    messaging: Attributes = {}
    if isinstance(handler, PopHandler):
        method, route = "GET", f"{POP_PREFIX.decode()}{{queue}}"
        messaging = _messaging("pop", "receive", handler.queue)
        messaging["messaging.consumer.group.name"] = handler.group
    elif isinstance(handler, EnqueueHandler):
        route = f"{RUN_QUEUE_PREFIX.decode()}{{queue}}/tasks"
        messaging = _messaging("enqueue", "send", handler.queue)
    elif isinstance(handler, DequeueHandler):
        route = f"{RUN_QUEUE_PREFIX.decode()}{'' if handler.queue is None else '{queue}/'}dequeue"
        messaging = _messaging("dequeue", "receive", handler.queue)
    elif url in POST_ROUTES:
        route = url.decode()
        messaging = _messaging(*_OPERATIONS[url], None) if url in _OPERATIONS else {}
    elif url.startswith(TASK_PREFIX):
        route = f"{TASK_PREFIX.decode()}{{task_id}}/{url.rpartition(b'/')[2].decode('latin-1')}"
    else:
        method, route = "GET", url.partition(b"?")[0].decode("latin-1")
    return f"{method} {route}", {"http.request.method": method, "http.route": route, **messaging}


_describe_cached = lru_cache(maxsize=5_000)(_describe_hot)


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
        span = self._tracer.start(scope["method"], context)
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception:
            status = SERVER_ERROR
            raise
        finally:
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                span.set_route(scope["method"], route)
            if status is None:
                span.end_disconnected()
            else:
                span.end(status)


def _messaging(operation: str, operation_type: str, queue: str | None) -> Attributes:
    attributes: Attributes = {
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
