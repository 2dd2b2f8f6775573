"""The hot routes push and pop.

They bypass the framework's validation. The fast path of `penstock.api.http` calls the same handlers as the
routes of the framework, which await their reply.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.access import check_group, check_queue, hot_endpoint
from penstock.api.http import request_parsing
from penstock.api.http.disconnect import unless_disconnected
from penstock.api.http.quota_counting import counted_waiting
from penstock.api.http.reply import PendingRequest, Reply, completed, respond
from penstock.api.http.response import NO_CONTENT, HotResponse, deferred_response, set_deferral
from penstock.api.schemas.message_bodies import (
    PoppedMessage,
    PopResponse,
    PushItem,
    PushItemResult,
    encode,
    lenient_push_decoder,
    push_decoder,
    push_item_decoder,
)
from penstock.api.services import Services, get_services
from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage, PopResult, PushResult
from penstock.broker.queues.name_registry import RUN_QUEUE_ERROR
from penstock.broker.queues.pop import PendingPop, PopOptions
from penstock.broker.queues.pop_rows import PopRow
from penstock.broker.queues.push import PendingPush, Pushes, SegmentReceipt
from penstock.caller import AccessScope, Caller
from penstock.clock import iso_of
from penstock.encryption import KeyMissing
from penstock.errors import (
    DatabaseUnavailable,
    GroupDeleted,
    InvalidRequest,
    QueueFull,
    Unauthorized,
    WrongState,
)
from penstock.log_format import request_ids
from penstock.model import DEFAULT_PARTITION, QUEUE_MODE
from penstock.trace_context import TraceContext, add_context, has_context

MAX_WAIT_MS = 300_000


@dataclass(slots=True)
class _PushRequest(PendingRequest):
    """The valid messages of a push, their indexes in the request, and why the other items are invalid."""

    pushes: Pushes
    messages: list[NewMessage]
    indexes: list[int]
    failed: dict[int, str]
    pending_push: PendingPush = field(init=False)

    def finish(self, result: list[SegmentReceipt]) -> HotResponse | Awaitable[HotResponse]:
        push = self.pending_push
        self.pushes.set_results(push, result)
        return self.resume() if push.pending else self.response(self.pushes.results(push))

    def recover(self, error: Exception) -> Awaitable[HotResponse] | None:
        return self.resume(error) if isinstance(error, DatabaseUnavailable) else None

    async def resume(self, error: Exception | None = None) -> HotResponse:
        return self.response(await self.pushes.resume(self.pending_push, error))

    def span_attributes(self) -> Mapping[str, str | int]:
        queues = {message.queue for message in self.messages}
        attributes: dict[str, str | int] = {"messaging.batch.message_count": len(self.messages)}
        return {**attributes, "messaging.destination.name": queues.pop()} if len(queues) == 1 else attributes

    def response(self, results: Sequence[PushResult]) -> HotResponse:
        items = [PushItemResult(index, "failed", error=detail) for index, detail in self.failed.items()]
        for index, message, result in zip(self.indexes, self.messages, results, strict=True):
            item = PushItemResult(
                index,
                result.status,
                result.transaction_id,
                result.message_id,
                None if result.partition_id is None else str(result.partition_id),
                message.trace_id,
                message.queue,
                result.error,
            )
            if result.deferral is not None:
                set_deferral(item, result.deferral)
            items.append(item)
        if self.failed:
            items.sort(key=lambda item: item.index)
        elif items and [item.status for item in items].count("failed") == len(items):
            error_type = WrongState if items[0].error == RUN_QUEUE_ERROR else QueueFull
            raise error_type(items[0].error or "", queue=items[0].queueName)
        deferrals = [result.deferral for result in results if result.deferral is not None]
        return deferred_response(deferrals, items) if deferrals else HotResponse(201, encode(items))


def push(services: Services, caller: Caller, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """Push messages. A push that only has to join a batch needs no task of its own."""
    decision = services.broker.admit("push")
    request = _read_push(services.broker.pushes, raw)
    if not request.messages:
        return completed(request.response([]))
    ids = request_ids.get()
    if ids is not None and ids.trace_context is not None:
        set_trace_context(request.messages, ids.trace_context)
    if caller.queues is not None:
        check_message_queues(caller, request.messages)
    if caller.quotas is not None and caller.quotas.limits_storage:
        admit_messages(caller, request.messages)
    reply.pending_request = request
    request.pending_push = request.pushes.start(
        caller.environment, request.messages, reply, decision, caller.quotas
    )
    return None if request.pending_push.is_queued else request.resume()


def set_trace_context(messages: Iterable[NewMessage], context: TraceContext) -> None:
    """Give messages without a trace context that of their request, and its trace id if they have none."""
    trace_id = uuid.UUID(context.trace_id)
    for message in messages:
        if not has_context(message.payload):
            message.payload = add_context(message.payload, context)
            message.trace_id = message.trace_id or trace_id


def check_message_queues(caller: Caller, messages: Iterable[NewMessage]) -> None:
    """Raise Forbidden unless the caller may push to the queues of all messages."""
    for message in messages:
        check_queue(caller, message.queue)


def admit_messages(caller: Caller, messages: Sequence[NewMessage]) -> None:
    """Raise QuotaExceeded if these messages are more than the caller may store."""
    if caller.quotas is not None and caller.quotas.limits_storage:
        caller.quotas.admit_messages(len(messages), sum([len(message.payload) for message in messages]))


def _read_push(pushes: Pushes, raw: bytes) -> _PushRequest:
    request = _PushRequest(pushes, [], [], {})
    items: Iterable[tuple[int, PushItem]]
    try:
        decoded_items = push_decoder.decode(raw).items
        items = enumerate(decoded_items)
        if len(decoded_items) > request_parsing.MAX_BATCH_ITEMS:  # saves a call per push
            request_parsing.check_batch_size("items", len(decoded_items))
    except request_parsing.DECODE_ERRORS:
        items = _decode_each(raw, request.failed)
    for index, item in items:
        try:
            request.messages.append(new_message(item))
            request.indexes.append(index)
        except InvalidRequest as error:
            request.failed[index] = error.detail
    if request.failed and not request.messages:
        index, detail = next(iter(request.failed.items()))
        raise InvalidRequest(f"All items are invalid. items[{index}]: {detail}", failed=len(request.failed))
    return request


def _decode_each(raw: bytes, failed: dict[int, str]) -> list[tuple[int, PushItem]]:
    """The valid items with their indexes; `failed` gets the reasons why the others are invalid."""
    items: list[tuple[int, PushItem]] = []
    raw, marker = request_parsing.mark_lone_surrogates(raw)
    raw_items = request_parsing.decode(lenient_push_decoder, raw).items
    request_parsing.check_batch_size("items", len(raw_items))
    for index, item in enumerate(raw_items):
        if marker and marker in bytes(item):
            failed[index] = request_parsing.LONE_SURROGATE_ERROR
            continue
        try:
            items.append((index, push_item_decoder.decode(item)))
        except request_parsing.DECODE_ERRORS as error:
            failed[index] = request_parsing.decode_error_text(error)
    return items


def new_message(item: PushItem) -> NewMessage:
    """The item as a message; InvalidRequest if a name is invalid."""
    queue = request_parsing.check_name("queue", item.queue)
    partition = DEFAULT_PARTITION
    if item.partition is not None:
        partition = request_parsing.check_name("partition", item.partition)
    if item.transactionId is not None:
        request_parsing.check_name("transactionId", item.transactionId)
    payload = bytes(item.payload)
    if not payload.isascii():  # ASCII is valid UTF-8
        request_parsing.check_payload(payload)
    message = NewMessage(queue, partition, payload, item.transactionId, item.traceId)
    if item.traceparent is not None:
        context = TraceContext.parse(item.traceparent)
        if context is not None:
            set_trace_context([message], context)
    return message


@dataclass(frozen=True, slots=True)
class PopHandler:
    """The pop that a URL asks for."""

    queue: str
    group: str
    options: PopOptions

    def __call__(
        self, services: Services, caller: Caller, body: bytes, reply: Reply
    ) -> Awaitable[HotResponse] | None:
        """Pop messages. A pop that only has to join a batch needs no task of its own."""
        services.broker.admit("pop")
        request = _PopRequest(services.broker, caller, self, reply)
        pops = services.broker.pops
        pending_pop = pops.start(caller, self.queue, self.group, self.options, reply)
        if pending_pop is None:
            return request.pop()
        request.pending_pop = pending_pop
        reply.pending_request = request
        return None


class _PopRequest(PendingRequest):
    """A pop in its batch. A pop that waits, and one whose group was deleted, continues in a task."""

    __slots__ = ("broker", "caller", "handler", "pending_pop", "reply")

    def __init__(self, broker: Broker, caller: Caller, handler: PopHandler, reply: Reply) -> None:
        self.broker = broker
        self.caller = caller
        self.handler = handler
        self.reply = reply
        self.pending_pop: PendingPop

    def finish(self, result: list[PopRow]) -> HotResponse | Awaitable[HotResponse]:
        handler, pops = self.handler, self.broker.pops
        try:
            popped = pops.finish(
                self.caller, handler.queue, handler.group, handler.options, self.pending_pop, result
            )
        except (KeyMissing, Unauthorized):
            self.abandon(result)
            raise
        if handler.options.wait_s and not popped.messages:
            return self.pop()
        pops.count_request()
        return _pop_response(popped)

    def recover(self, error: Exception) -> Awaitable[HotResponse] | None:
        if not isinstance(error, GroupDeleted):
            return None
        self.broker.id_cache.invalidate_queue(self.caller.environment, self.handler.queue)
        return self.pop()

    def abandon(self, result: list[PopRow]) -> None:
        self.broker.pops.abandon(self.pending_pop, result)

    async def pop(self) -> HotResponse:
        """Resolve names, wait for messages, and release the lease if the client has disconnected by then."""
        with counted_waiting(self.caller, self.handler.options.wait_s):
            return await self._pop_or_wait()

    async def _pop_or_wait(self) -> HotResponse:
        handler = self.handler
        popped = await self.broker.pop(self.caller, handler.queue, handler.group, handler.options)
        if popped.messages and self.reply.client_disconnected():
            # The server cancels the work for a client that has disconnected, but not this release.
            await asyncio.shield(self.broker.release_lease(self.caller.environment, popped))
            return NO_CONTENT
        return _pop_response(popped)


def pop_options(parameters: Mapping[str, str], partition: str | None = None) -> tuple[str, PopOptions]:
    """The consumer group and the options in the query of a pop."""
    group = request_parsing.check_name("consumerGroup", parameters.get("consumerGroup") or QUEUE_MODE)
    wait = request_parsing.parse_boolean(parameters, "wait")
    timeout_ms = request_parsing.parse_integer(parameters, "timeout", 30_000, 0, MAX_WAIT_MS)
    return group, PopOptions(
        batch=request_parsing.parse_integer(parameters, "batch", 1, 1, 10_000),
        partition=partition,
        max_partitions=request_parsing.parse_integer(parameters, "partitions", 1, 1, 1_000),
        auto_ack=request_parsing.parse_boolean(parameters, "autoAck"),
        subscription=request_parsing.parse_subscription(parameters),
        wait_s=timeout_ms / 1000 if wait else 0.0,
    )


def _pop_response(popped: PopResult) -> HotResponse:
    if not popped.messages:
        return NO_CONTENT
    lease = popped.lease or None
    messages: list[PoppedMessage] = []
    created_at, created_text = 0.0, ""
    for m in popped.messages:
        if m.created_at != created_at:  # messages of one segment share the time
            created_at, created_text = m.created_at, iso_of(m.created_at)
        messages.append(
            PoppedMessage(
                m.message_id,
                m.transaction_id,
                m.trace_id,
                msgspec.Raw(m.payload),
                None,
                created_text,
                str(m.partition_id),
                m.partition,
                lease,
                popped.group,
                m.attempts,
            )
        )
        if m.traceparent is not None:
            messages[-1].traceparent = m.traceparent
    first = messages[0]
    body = PopResponse(
        True,
        popped.queue,
        first.partition,
        first.partitionId,
        lease,
        popped.group,
        popped.partition_count,
        messages,
    )
    return HotResponse(200, encode(body))


async def _push_route(request: Request, caller: Caller) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), caller, push, raw)).to_response()


async def _pop_route(request: Request, caller: Caller) -> Response:
    queue = request_parsing.check_name("queue", request.path_params["queue"])
    partition = request.path_params.get("partition")
    if partition is not None:
        request_parsing.check_name("partition", partition)
    handler = PopHandler(queue, *pop_options(request.query_params, partition))
    check_queue(caller, queue)
    check_group(caller, handler.group)
    response = await unless_disconnected(request, respond(get_services(request), caller, handler))
    return (response or NO_CONTENT).to_response()


async def _pop_any_route(request: Request, caller: Caller) -> Response:
    namespace = request.query_params.get("namespace")
    task = request.query_params.get("task")
    if not namespace and not task:
        raise InvalidRequest(
            "The pop names no queue. Send namespace or task, or use /api/v1/pop/queue/{queue}."
        )
    group, options = pop_options(request.query_params)
    check_queue(caller, None)
    check_group(caller, group)
    broker = get_services(request).broker
    broker.admit("pop")
    with counted_waiting(caller, options.wait_s):
        work = broker.pop_any(caller, namespace, task, group, options)
        popped = await unless_disconnected(request, work)
    return (_pop_response(popped) if popped else NO_CONTENT).to_response()


class _PopRoute(Route):
    """A route of a pop. Starlette adds HEAD to every GET, but a HEAD must not lease messages."""

    def __init__(self, path: str, endpoint: Callable[[Request, Caller], Awaitable[Response]]) -> None:
        super().__init__(path, hot_endpoint(endpoint, AccessScope.CONSUME))
        self.methods = {"GET"}


ROUTES = [
    Route("/api/v1/push", hot_endpoint(_push_route, AccessScope.PRODUCE), methods=["POST"]),
    _PopRoute("/api/v1/pop", _pop_any_route),
    _PopRoute("/api/v1/pop/queue/{queue}", _pop_route),
    _PopRoute("/api/v1/pop/queue/{queue}/partition/{partition:path}", _pop_route),
]
