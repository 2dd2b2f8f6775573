"""The hot routes: push, pop and ack. Plain Starlette endpoints; the framework's validation is bypassed."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api import reading
from penstock.api.schemas import (
    AckBody,
    AckResult,
    PoppedMessage,
    PopResponse,
    PushItem,
    PushItemResult,
    ack_body,
    encode,
    loose_push_body,
    push_body,
    push_item,
)
from penstock.api.services import services
from penstock.broker.messages import Lease, NewMessage, Popped, Settlement, SettlementResult
from penstock.clock import iso
from penstock.errors import InvalidRequest, LeaseLost
from penstock.model import DEFAULT_PARTITION, DEFAULT_SCOPE, QUEUE_MODE

REASONS = {
    "lease_lost": "the lease is not held any more: it ran out or was settled; pop again",
    "not_leased": "this lease does not hold a message with this transactionId",
}


async def push(request: Request) -> Response:
    given = services(request)
    raw = await reading.body(request, given.settings.max_body_bytes)
    items, failed = _push_items(raw)
    messages: list[NewMessage] = []
    indexes: list[int] = []
    for index, item in items:
        try:
            messages.append(_new_message(item))
            indexes.append(index)
        except InvalidRequest as error:
            failed[index] = error.detail
    if failed and not messages:
        index, detail = next(iter(failed.items()))
        raise InvalidRequest(f"no item can be accepted; items[{index}]: {detail}", failed=len(failed))
    results = await given.broker.push(DEFAULT_SCOPE, messages) if messages else []
    answer = [PushItemResult(index, "failed", error=detail) for index, detail in failed.items()]
    for index, message, result in zip(indexes, messages, results, strict=True):
        answer.append(
            PushItemResult(
                index,
                "duplicate" if result.duplicate else "queued",
                result.transaction_id,
                result.message_id,
                str(result.partition_id),
                message.trace_id,
                message.queue,
            )
        )
    if failed:
        answer.sort(key=lambda item: item.index)
    return Response(encode(answer), 201, media_type="application/json")


def _push_items(raw: bytes) -> tuple[list[tuple[int, PushItem]], dict[int, str]]:
    """The items that fit, and why the others do not."""
    try:
        return list(enumerate(push_body.decode(raw).items)), {}
    except msgspec.DecodeError:
        fitting: list[tuple[int, PushItem]] = []
        failed: dict[int, str] = {}
        for index, one in enumerate(reading.decode(loose_push_body, raw).items):
            try:
                fitting.append((index, push_item.decode(one)))
            except msgspec.DecodeError as error:
                failed[index] = str(error)
        return fitting, failed


def _new_message(item: PushItem) -> NewMessage:
    queue = reading.check_name("queue", item.queue)
    partition = DEFAULT_PARTITION
    if item.partition is not None:
        partition = reading.check_name("partition", item.partition)
    if item.transactionId is not None:
        reading.check_name("transactionId", item.transactionId)
    return NewMessage(queue, partition, bytes(item.payload), item.transactionId, item.traceId)


async def pop(request: Request) -> Response:
    given = services(request)
    queue = reading.check_name("queue", request.path_params["queue"])
    partition = request.path_params.get("partition")
    if partition is not None:
        reading.check_name("partition", partition)
    group = reading.check_name("consumerGroup", request.query_params.get("consumerGroup", QUEUE_MODE))
    popped = await given.broker.pop(
        DEFAULT_SCOPE,
        queue,
        group,
        batch=reading.integer(request, "batch", 1, 1, 10_000),
        partition=partition,
        partitions=reading.integer(request, "partitions", 1, 1, 1_000),
        auto_ack=reading.flag(request, "autoAck"),
    )
    if not popped.messages:
        return Response(status_code=204)
    return Response(encode(_pop_response(queue, group, popped)), media_type="application/json")


def _pop_response(queue: str, group: str, popped: Popped) -> PopResponse:
    lease = popped.lease or None
    messages = [
        PoppedMessage(
            m.message_id,
            m.transaction_id,
            m.trace_id,
            msgspec.Raw(m.payload),
            None,
            iso(m.created_at),
            str(m.partition_id),
            m.partition,
            lease,
            group,
            m.attempts,
        )
        for m in popped.messages
    ]
    first = messages[0]
    return PopResponse(
        True, queue, first.partition, first.partitionId, lease, group, popped.partitions, messages
    )


async def ack(request: Request) -> Response:
    given = services(request)
    raw = await reading.body(request, given.settings.max_body_bytes)
    given_ack = reading.decode(ack_body, raw)
    settlement = _settlement(given_ack)
    [result] = await given.broker.ack(DEFAULT_SCOPE, [settlement])
    if not result.success:
        raise LeaseLost(REASONS[result.outcome], transactionId=given_ack.transactionId)
    return Response(encode([_ack_result(0, given_ack, result)]), media_type="application/json")


def _settlement(body: AckBody) -> Settlement:
    if body.leaseId is None:
        raise InvalidRequest("leaseId is missing: send the one the message was popped with", field="leaseId")
    lease = Lease.parse(body.leaseId)
    if lease is None:
        raise InvalidRequest(f"leaseId {body.leaseId!r} is not one a pop gave", field="leaseId")
    if not (body.partitionId.isascii() and body.partitionId.isdigit() and len(body.partitionId) < 19):
        raise InvalidRequest(f"partitionId {body.partitionId!r} is not one a pop gave", field="partitionId")
    reading.check_name("transactionId", body.transactionId)
    status = "completed" if body.status == "success" else body.status
    error = body.error.replace("\0", "") if body.error else None
    return Settlement(int(body.partitionId), body.transactionId, lease, status, error)


def _ack_result(index: int, body: AckBody, result: SettlementResult) -> AckResult:
    return AckResult(
        index,
        body.transactionId,
        result.success,
        None if result.success else REASONS[result.outcome],
        result.queue,
        result.partition,
        result.lease_released,
        result.outcome == "dead",
    )


ROUTES = [
    Route("/api/v1/push", push, methods=["POST"]),
    Route("/api/v1/pop/queue/{queue}", pop, methods=["GET"]),
    Route("/api/v1/pop/queue/{queue}/partition/{partition}", pop, methods=["GET"]),
    Route("/api/v1/ack", ack, methods=["POST"]),
]
