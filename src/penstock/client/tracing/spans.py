"""Spans and metrics of pushes, handlers and acks, with the names of OpenTelemetry's messaging conventions.

Attributes name queues, partitions, groups and message ids, never payloads or the texts of errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Self

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.client.handlers import is_async
from penstock.client.messages import Message, PushItem
from penstock.client.task_types import Task

SCOPE = "penstock.client"
SYSTEM = "penstock"

Attributes = dict[str, str | int]

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Starts spans around what a client does, and measures it."""

    def __init__(self, tracer_provider: TracerProvider, meter_provider: MeterProvider) -> None:
        self._tracer = tracer_provider.get_tracer(SCOPE)
        meter = meter_provider.get_meter(SCOPE)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "messages that the client pushed"
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "messages that were given to a handler"
        )
        self._operation_duration = meter.create_histogram(
            "messaging.client.operation.duration", "s", "duration of pushes and acks"
        )
        self._process_duration = meter.create_histogram(
            "messaging.process.duration", "s", "duration of handlers"
        )

    @classmethod
    def of_application(cls) -> Self:
        """Use the providers that the application has set."""
        return cls(trace.get_tracer_provider(), metrics.get_meter_provider())

    def header(self) -> bytes:
        """Return the header line with the current trace context; empty if there is none."""
        traceparent = _format(trace.get_current_span().get_span_context())
        return f"traceparent: {traceparent}\r\n".encode() if traceparent else b""

    @contextmanager
    def sending(self, operation: str, queues: set[str], traceparents: Sequence[str | None]) -> Iterator[None]:
        """Put a push or enqueue into a span. It is the context of items that bring none of their own."""
        contexts = [_parse(traceparent) for traceparent in traceparents if traceparent is not None]
        links = [Link(context) for context in contexts if context is not None]
        kind = SpanKind.CLIENT if len(contexts) == len(traceparents) else SpanKind.PRODUCER
        attributes = _operation(operation, "send", queues, len(traceparents))
        with self._span(attributes, kind, None, links, self._operation_duration):
            yield
        self._sent.add(len(traceparents), _metric_attributes(attributes))

    def create(self, item: PushItem) -> None:
        """Give a buffered message a span of its own, which the later push links to."""
        if item.traceparent is None:
            attributes = _operation("create", "create", {item.queue}, 1)
            with self._span(attributes, SpanKind.PRODUCER, None, ()) as span:
                item.traceparent = _format(span.get_span_context())

    @contextmanager
    def processing(self, messages: Sequence[Message], *, is_batch: bool) -> Iterator[None]:
        """Put the call of a handler into a span.

        It is a child of the message's context on the first attempt. A later attempt, and the handler of a
        batch, are new traces with links: their duration is not that of the first one.
        """
        contexts = [context for message in messages if (context := _parse(message.traceparent)) is not None]
        attributes = _operation(
            "process", "process", {message.queue for message in messages}, len(messages), is_batch
        )
        first = messages[0]
        attributes["messaging.consumer.group.name"] = first.group
        if not is_batch:
            attributes["messaging.message.id"] = first.id
            attributes["messaging.destination.partition.id"] = first.partition
            attributes["penstock.message.retry_count"] = first.retry_count
        is_child = not is_batch and first.retry_count == 0
        with self._handler_span(attributes, contexts, len(messages), is_child=is_child):
            yield

    @contextmanager
    def running(self, task: Task) -> Iterator[None]:
        """Put the handler of a task into a span, as that of a message."""
        context = _parse(task.traceparent)
        attributes = _operation("process", "process", {task.queue}, 1)
        attributes["messaging.message.id"] = task.id
        attributes["penstock.message.retry_count"] = task.attempt - 1
        contexts = [] if context is None else [context]
        with self._handler_span(attributes, contexts, 1, is_child=task.attempt == 1):
            yield

    @contextmanager
    def acking(self, messages: Sequence[Message]) -> Iterator[None]:
        """Put the acks of a consumer into a span with links to the contexts of their messages."""
        contexts = (_parse(message.traceparent) for message in messages)
        links = [Link(context) for context in contexts if context is not None]
        attributes = _operation("ack", "settle", {message.queue for message in messages}, len(messages))
        with self._span(attributes, SpanKind.CLIENT, Context(), links, self._operation_duration):
            yield

    def bind(self, handler: Callable[[Any], object]) -> Callable[[Any], object]:
        """Return the handler so that it sees the current span, also in a thread."""
        if is_async(handler):
            return handler
        context = copy_context()
        return lambda argument: context.run(handler, argument)

    @contextmanager
    def _handler_span(
        self, attributes: Attributes, contexts: Sequence[SpanContext], count: int, *, is_child: bool
    ) -> Iterator[None]:
        parent, links = Context(), [Link(context) for context in contexts]
        if is_child and contexts:
            parent, links = trace.set_span_in_context(trace.NonRecordingSpan(contexts[0]), parent), []
        self._consumed.add(count, _metric_attributes(attributes))
        with self._span(attributes, SpanKind.CONSUMER, parent, links, self._process_duration):
            yield

    @contextmanager
    def _span(
        self,
        attributes: Attributes,
        kind: SpanKind,
        parent: Context | None,
        links: Sequence[Link],
        duration: Histogram | None = None,
    ) -> Iterator[Span]:
        queue = attributes.get("messaging.destination.name")
        operation = str(attributes["messaging.operation.name"])
        started = time.monotonic()
        with self._tracer.start_as_current_span(
            f"{operation} {queue}" if queue else operation,
            parent,
            kind,
            attributes,
            links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            error: Attributes = {}
            try:
                yield span
            except BaseException as cause:
                error = {"error.type": type(cause).__name__}
                span.set_attributes(error)
                span.set_status(StatusCode.ERROR)
                raise
            finally:
                if duration is not None:
                    duration.record(time.monotonic() - started, _metric_attributes(attributes) | error)


def _operation(
    name: str, operation_type: str, queues: set[str], count: int, is_batch: bool = False
) -> Attributes:
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": operation_type,
    }
    if len(queues) == 1:
        attributes["messaging.destination.name"] = next(iter(queues))
    if count > 1 or is_batch:
        attributes["messaging.batch.message_count"] = count
    return attributes


_METRIC_ATTRIBUTES = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.destination.name",
    "messaging.consumer.group.name",
)


def _metric_attributes(attributes: Attributes) -> Attributes:
    """Return the attributes that metrics have: those of a span would make a series per message."""
    return {name: attributes[name] for name in _METRIC_ATTRIBUTES if name in attributes}


def _parse(traceparent: str | None) -> SpanContext | None:
    if traceparent is None:
        return None
    context = _propagator.extract({"traceparent": traceparent}, Context())
    span_context = trace.get_current_span(context).get_span_context()
    return span_context if span_context.is_valid else None


def _format(context: SpanContext) -> str | None:
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
