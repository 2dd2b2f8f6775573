"""The hot routes push and pop.

They bypass the framework's validation. The fast path of `penstock.api.http` calls their `start_*` functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.http import request_parsing
from penstock.api.http.disconnect import unless_disconnected
from penstock.api.http.reply import Reply
from penstock.api.http.response import NO_CONTENT, HotResponse, deferred_response
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
from penstock.broker.messages import NewMessage, PopResult, PushResult
from penstock.broker.overload.load import Decision
from penstock.broker.queues.name_registry import RUN_QUEUE_ERROR
from penstock.broker.queues.pop import PopOptions
from penstock.clock import iso_of
from penstock.errors import GroupDeleted, InvalidRequest, QueueFull, WrongState
from penstock.model import DEFAULT_PARTITION, DEFAULT_SCOPE, QUEUE_MODE

MAX_WAIT_MS = 300_000


@dataclass(slots=True)
class _PushRequest:
    """The valid messages of a push, their indexes in the request, and why the other items are invalid."""

    decision: Decision
    messages: list[NewMessage]
    indexes: list[int]
    failed: dict[int, str]

    def response(self, results: Sequence[PushResult]) -> HotResponse:
        if results and not self.failed and all(result.status == "failed" for result in results):
            error_type = WrongState if results[0].error == RUN_QUEUE_ERROR else QueueFull
            raise error_type(results[0].error or "", queue=self.messages[0].queue)
        items = [PushItemResult(index, "failed", error=detail) for index, detail in self.failed.items()]
        items += map(_push_item_result, self.indexes, self.messages, results)
        if self.failed:
            items.sort(key=lambda item: item.index)
        deferrals = [result.deferral for result in results]
        return deferred_response(deferrals, items) or HotResponse(201, encode(items))


async def push(services: Services, raw: bytes) -> HotResponse:
    return await _execute_push(services, _read_push(services, raw))


def start_push(services: Services, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """Push without a task of its own if the push only has to join a batch; otherwise return an awaitable."""
    push_request = _read_push(services, raw)
    pushes = services.broker.pushes
    if push_request.messages and push_request.decision is Decision.EXECUTE:
        pending = pushes.start(DEFAULT_SCOPE, push_request.messages, reply)
        if pending is not None:

            def on_result(_: None) -> HotResponse | Awaitable[HotResponse]:
                results = pushes.finish(pending)
                if results is not None:
                    return push_request.response(results)
                return _await_results(push_request, pushes.resume(pending))

            reply.on_result = on_result
            reply.on_error = lambda error: _await_results(
                push_request, pushes.fall_back_to_journal(pending, error)
            )
            return None
    return _execute_push(services, push_request)


async def _await_results(push_request: _PushRequest, results: Awaitable[list[PushResult]]) -> HotResponse:
    return push_request.response(await results)


async def _execute_push(services: Services, push_request: _PushRequest) -> HotResponse:
    if not push_request.messages:
        return push_request.response([])
    results = await services.broker.push(DEFAULT_SCOPE, push_request.messages, push_request.decision)
    return push_request.response(results)


def _read_push(services: Services, raw: bytes) -> _PushRequest:
    decision = services.broker.admit("push")
    items, failed = _decode_items(raw)
    messages: list[NewMessage] = []
    indexes: list[int] = []
    for index, item in items:
        try:
            messages.append(new_message(item))
            indexes.append(index)
        except InvalidRequest as error:
            failed[index] = error.detail
    if failed and not messages:
        index, detail = next(iter(failed.items()))
        raise InvalidRequest(f"All items are invalid. items[{index}]: {detail}", failed=len(failed))
    return _PushRequest(decision, messages, indexes, failed)


def _decode_items(raw: bytes) -> tuple[list[tuple[int, PushItem]], dict[int, str]]:
    """The valid items with their indexes, and why the others are invalid."""
    try:
        return list(enumerate(push_decoder.decode(raw).items)), {}
    except msgspec.DecodeError:
        items: list[tuple[int, PushItem]] = []
        failed: dict[int, str] = {}
        for index, item in enumerate(request_parsing.decode(lenient_push_decoder, raw).items):
            try:
                items.append((index, push_item_decoder.decode(item)))
            except msgspec.DecodeError as error:
                failed[index] = str(error)
        return items, failed


def new_message(item: PushItem) -> NewMessage:
    """The item as a message; InvalidRequest if a name is invalid."""
    queue = request_parsing.check_name("queue", item.queue)
    partition = DEFAULT_PARTITION
    if item.partition is not None:
        partition = request_parsing.check_name("partition", item.partition)
    if item.transactionId is not None:
        request_parsing.check_name("transactionId", item.transactionId)
    return NewMessage(queue, partition, bytes(item.payload), item.transactionId, item.traceId)


def _push_item_result(index: int, message: NewMessage, result: PushResult) -> PushItemResult:
    return PushItemResult(
        index,
        result.status,
        result.transaction_id,
        result.message_id,
        None if result.partition_id is None else str(result.partition_id),
        message.trace_id,
        message.queue,
        result.error,
        result.deferral.operation_id if result.deferral else None,
        result.deferral.reason if result.deferral else None,
    )


async def pop(
    services: Services,
    queue: str,
    group: str,
    options: PopOptions,
    client_disconnected: Callable[[], bool] = lambda: False,
) -> HotResponse:
    """Pop messages. Release their lease if the consumer has disconnected by then."""
    services.broker.admit("pop")
    return await _execute_pop(services, queue, group, options, client_disconnected)


async def _execute_pop(
    services: Services, queue: str, group: str, options: PopOptions, client_disconnected: Callable[[], bool]
) -> HotResponse:
    popped = await services.broker.pop(DEFAULT_SCOPE, queue, group, options)
    if popped.messages and client_disconnected():
        # The server cancels the work for a client that has disconnected; the release must not be cancelled.
        await asyncio.shield(services.broker.release_lease(DEFAULT_SCOPE, popped))
        return NO_CONTENT
    return _pop_response(popped)


def start_pop(
    services: Services, queue: str, group: str, options: PopOptions, reply: Reply
) -> Awaitable[HotResponse] | None:
    """Pop without a task of its own if the pop only has to join a batch; otherwise return an awaitable."""
    services.broker.admit("pop")
    pops = services.broker.pops
    pending = pops.start(DEFAULT_SCOPE, queue, group, options, reply)
    if pending is None:
        return _execute_pop(services, queue, group, options, reply.client_disconnected)

    def on_result(rows: list[Any]) -> HotResponse | Awaitable[HotResponse]:
        popped = pops.finish(DEFAULT_SCOPE, queue, group, options, pending, rows)
        if options.wait_s and not popped.messages:
            return _execute_pop(services, queue, group, options, reply.client_disconnected)
        return _pop_response(popped)

    async def on_error(error: Exception) -> HotResponse:
        if not isinstance(error, GroupDeleted):
            raise error
        services.broker.id_cache.invalidate_queue(DEFAULT_SCOPE, queue)
        return await _execute_pop(services, queue, group, options, reply.client_disconnected)

    reply.on_result = on_result
    reply.on_error = on_error
    return None


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


async def _push_route(request: Request) -> Response:
    services = get_services(request)
    return (await push(services, await request_parsing.read_body(request))).to_response()


async def _pop_route(request: Request) -> Response:
    queue = request_parsing.check_name("queue", request.path_params["queue"])
    partition = request.path_params.get("partition")
    if partition is not None:
        request_parsing.check_name("partition", partition)
    group, options = pop_options(request.query_params, partition)
    response = await unless_disconnected(request, pop(get_services(request), queue, group, options))
    return (response or NO_CONTENT).to_response()


async def _pop_any_route(request: Request) -> Response:
    namespace = request.query_params.get("namespace")
    task = request.query_params.get("task")
    if not namespace and not task:
        raise InvalidRequest(
            "The pop names no queue. Send namespace or task, or use /api/v1/pop/queue/{queue}."
        )
    group, options = pop_options(request.query_params)
    get_services(request).broker.admit("pop")
    work = get_services(request).broker.pop_any(DEFAULT_SCOPE, namespace, task, group, options)
    popped = await unless_disconnected(request, work)
    return (_pop_response(popped) if popped else NO_CONTENT).to_response()


ROUTES = [
    Route("/api/v1/push", _push_route, methods=["POST"]),
    Route("/api/v1/pop", _pop_any_route, methods=["GET"]),
    Route("/api/v1/pop/queue/{queue}", _pop_route, methods=["GET"]),
    Route("/api/v1/pop/queue/{queue}/partition/{partition:path}", _pop_route, methods=["GET"]),
]
