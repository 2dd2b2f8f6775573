"""The hot routes: push and pop. The framework's validation is bypassed; `hot` has a short way to them."""

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
    loose_push_body,
    push_body,
    push_item,
)
from penstock.api.services import Services, get_services
from penstock.broker.messages import NewMessage, PopResult, PushResult
from penstock.broker.overload.load import Decision
from penstock.broker.queues.name_registry import RUN_QUEUE_ERROR
from penstock.broker.queues.pop import PopOptions
from penstock.clock import iso_of
from penstock.errors import GroupDeleted, InvalidRequest, QueueFull, WrongState
from penstock.model import DEFAULT_PARTITION, DEFAULT_SCOPE, QUEUE_MODE

LONGEST_WAIT_MS = 300_000


@dataclass(slots=True)
class _Push:
    """What a push asks for: the messages that can be accepted, their places, and why others cannot."""

    decision: Decision
    messages: list[NewMessage]
    indexes: list[int]
    failed: dict[int, str]

    def answer(self, results: Sequence[PushResult]) -> HotResponse:
        if results and not self.failed and all(result.status == "failed" for result in results):
            kind = WrongState if results[0].error == RUN_QUEUE_ERROR else QueueFull
            raise kind(results[0].error or "", queue=self.messages[0].queue)
        answer = [PushItemResult(index, "failed", error=detail) for index, detail in self.failed.items()]
        answer += map(_push_result, self.indexes, self.messages, results)
        if self.failed:
            answer.sort(key=lambda item: item.index)
        return deferred_response([result.deferral for result in results], answer) or HotResponse(
            201, encode(answer)
        )


async def push(services: Services, raw: bytes) -> HotResponse:
    return await _pushed(services, _read_push(services, raw))


def start_push(services: Services, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """The same without a task of its own, when there is nothing unusual about it."""
    asked = _read_push(services, raw)
    pushes = services.broker.pushes
    if asked.messages and asked.decision is Decision.EXECUTE:
        sent = pushes.start(DEFAULT_SCOPE, asked.messages, reply)
        if sent is not None:

            def finish(_: None) -> HotResponse | Awaitable[HotResponse]:
                results = pushes.finish(sent)
                return asked.answer(results) if results is not None else _rest(asked, pushes.resume(sent))

            reply.on_result = finish
            reply.on_error = lambda error: _rest(asked, pushes.fall_back_to_journal(sent, error))
            return None
    return _pushed(services, asked)


async def _rest(asked: _Push, results: Awaitable[list[PushResult]]) -> HotResponse:
    return asked.answer(await results)


async def _pushed(services: Services, asked: _Push) -> HotResponse:
    if not asked.messages:
        return asked.answer([])
    return asked.answer(await services.broker.push(DEFAULT_SCOPE, asked.messages, asked.decision))


def _read_push(services: Services, raw: bytes) -> _Push:
    decision = services.broker.admit("push")
    items, failed = _push_items(raw)
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
        raise InvalidRequest(f"no item can be accepted; items[{index}]: {detail}", failed=len(failed))
    return _Push(decision, messages, indexes, failed)


def _push_items(raw: bytes) -> tuple[list[tuple[int, PushItem]], dict[int, str]]:
    """The items that fit, and why the others do not."""
    try:
        return list(enumerate(push_body.decode(raw).items)), {}
    except msgspec.DecodeError:
        fitting: list[tuple[int, PushItem]] = []
        failed: dict[int, str] = {}
        for index, one in enumerate(request_parsing.decode(loose_push_body, raw).items):
            try:
                fitting.append((index, push_item.decode(one)))
            except msgspec.DecodeError as error:
                failed[index] = str(error)
        return fitting, failed


def new_message(item: PushItem) -> NewMessage:
    """The item as a message; InvalidRequest where a name is none."""
    queue = request_parsing.check_name("queue", item.queue)
    partition = DEFAULT_PARTITION
    if item.partition is not None:
        partition = request_parsing.check_name("partition", item.partition)
    if item.transactionId is not None:
        request_parsing.check_name("transactionId", item.transactionId)
    return NewMessage(queue, partition, bytes(item.payload), item.transactionId, item.traceId)


def _push_result(index: int, message: NewMessage, result: PushResult) -> PushItemResult:
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
    """The answer to a pop; what it leased is given back if the consumer has left by then."""
    services.broker.admit("pop")
    return await _popped(services, queue, group, options, client_disconnected)


async def _popped(
    services: Services, queue: str, group: str, options: PopOptions, client_disconnected: Callable[[], bool]
) -> HotResponse:
    popped = await services.broker.pop(DEFAULT_SCOPE, queue, group, options)
    if popped.messages and client_disconnected():
        # The server cancels what it does for a client when it notices that it has left; not this.
        await asyncio.shield(services.broker.release_lease(DEFAULT_SCOPE, popped))
        return NO_CONTENT
    return _pop_answer(popped)


def start_pop(
    services: Services, queue: str, group: str, options: PopOptions, reply: Reply
) -> Awaitable[HotResponse] | None:
    """The same without a task of its own, as long as it needs nothing but its batch."""
    services.broker.admit("pop")
    pops = services.broker.pops
    begun = pops.start(DEFAULT_SCOPE, queue, group, options, reply)
    if begun is None:
        return _popped(services, queue, group, options, reply.client_disconnected)

    def finish(rows: list[Any]) -> HotResponse | Awaitable[HotResponse]:
        popped = pops.finish(DEFAULT_SCOPE, queue, group, options, begun, rows)
        if options.wait_s and not popped.messages:
            return _popped(services, queue, group, options, reply.client_disconnected)
        return _pop_answer(popped)

    async def rescue(error: Exception) -> HotResponse:
        if not isinstance(error, GroupDeleted):
            raise error
        services.broker.id_cache.invalidate_queue(DEFAULT_SCOPE, queue)
        return await _popped(services, queue, group, options, reply.client_disconnected)

    reply.on_result = finish
    reply.on_error = rescue
    return None


def pop_options(parameters: Mapping[str, str], partition: str | None = None) -> tuple[str, PopOptions]:
    """The group and what else a pop's query asks for."""
    group = request_parsing.check_name("consumerGroup", parameters.get("consumerGroup") or QUEUE_MODE)
    wait = request_parsing.parse_boolean(parameters, "wait")
    timeout_ms = request_parsing.parse_integer(parameters, "timeout", 30_000, 0, LONGEST_WAIT_MS)
    return group, PopOptions(
        batch=request_parsing.parse_integer(parameters, "batch", 1, 1, 10_000),
        partition=partition,
        max_partitions=request_parsing.parse_integer(parameters, "partitions", 1, 1, 1_000),
        auto_ack=request_parsing.parse_boolean(parameters, "autoAck"),
        subscription=request_parsing.parse_subscription(parameters),
        wait_s=timeout_ms / 1000 if wait else 0.0,
    )


def _pop_answer(popped: PopResult) -> HotResponse:
    if not popped.messages:
        return NO_CONTENT
    lease = popped.lease or None
    messages: list[PoppedMessage] = []
    created_at, created_text = 0.0, ""
    for m in popped.messages:
        if m.created_at != created_at:  # messages of one segment share it
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


async def _push(request: Request) -> Response:
    services = get_services(request)
    return (await push(services, await request_parsing.read_body(request))).to_response()


async def _pop(request: Request) -> Response:
    queue = request_parsing.check_name("queue", request.path_params["queue"])
    partition = request.path_params.get("partition")
    if partition is not None:
        request_parsing.check_name("partition", partition)
    group, options = pop_options(request.query_params, partition)
    answer = await unless_disconnected(request, pop(get_services(request), queue, group, options))
    return (answer or NO_CONTENT).to_response()


async def _pop_any(request: Request) -> Response:
    namespace = request.query_params.get("namespace")
    task = request.query_params.get("task")
    if not namespace and not task:
        raise InvalidRequest("name a namespace or a task, or pop one queue: /api/v1/pop/queue/{queue}")
    group, options = pop_options(request.query_params)
    get_services(request).broker.admit("pop")
    work = get_services(request).broker.pop_any(DEFAULT_SCOPE, namespace, task, group, options)
    popped = await unless_disconnected(request, work)
    return (_pop_answer(popped) if popped else NO_CONTENT).to_response()


ROUTES = [
    Route("/api/v1/push", _push, methods=["POST"]),
    Route("/api/v1/pop", _pop_any, methods=["GET"]),
    Route("/api/v1/pop/queue/{queue}", _pop, methods=["GET"]),
    Route("/api/v1/pop/queue/{queue}/partition/{partition:path}", _pop, methods=["GET"]),
]
