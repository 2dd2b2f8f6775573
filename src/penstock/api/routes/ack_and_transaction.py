"""What a consumer says about the messages it holds: ack, lease extension, transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.http import request_parsing
from penstock.api.http.reply import Reply
from penstock.api.http.response import HotResponse, deferred_response
from penstock.api.routes.push_pop import new_message
from penstock.api.schemas.message_bodies import (
    AckBatchBody,
    AckBody,
    AckOperation,
    AckResult,
    Extended,
    PushOperation,
    TransactionResponse,
    TransactionStep,
    ack_batch_body,
    ack_body,
    encode,
    extend_body,
    transaction_body,
)
from penstock.api.services import Services, get_services
from penstock.broker.messages import AckOutcome, AckRequest, MessageLease, NewMessage
from penstock.broker.overload.load import Decision
from penstock.broker.queues.ack import TransactionResult
from penstock.clock import iso
from penstock.errors import InvalidRequest, LeaseLost, TransactionFailed
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE

REASONS = {
    "lease_lost": "the lease is not held any more: it ran out or was settled; pop again",
    "not_leased": "this lease does not hold a message with this transactionId",
    "queue_full": "the queue is full: it has reached its maxSize",
    "partition_gone": "the queue was deleted meanwhile; try again",
}


async def ack(services: Services, raw: bytes) -> HotResponse:
    decision = services.broker.admit("ack")
    body = request_parsing.decode(ack_body, raw)
    return await _acked(services, body, [_settlement(body, _lease(body.leaseId))], decision)


def start_ack(services: Services, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """The same without a task of its own, when it is carried out now."""
    decision = services.broker.admit("ack")
    body = request_parsing.decode(ack_body, raw)
    settlements = [_settlement(body, _lease(body.leaseId))]
    if decision is not Decision.EXECUTE:
        return _acked(services, body, settlements, decision)
    broker = services.broker.acks
    reply.on_result = lambda results: _ack_answer(body, broker.finish(results))
    broker.start(DEFAULT_SCOPE, settlements, reply)
    return None


async def _acked(
    services: Services, body: AckBody, settlements: list[AckRequest], decision: Decision
) -> HotResponse:
    return _ack_answer(body, await services.broker.ack(DEFAULT_SCOPE, settlements, decision))


def _ack_answer(body: AckBody, results: Sequence[AckOutcome]) -> HotResponse:
    [result] = results
    if not result.success:
        raise LeaseLost(REASONS[result.outcome], transactionId=body.transactionId)
    answer = [_ack_result(0, body, result)]
    return deferred_response([result.deferral], answer) or HotResponse(200, encode(answer))


@dataclass(slots=True)
class _Acks:
    """What a batch of acks asks for: those that can be carried out, their places, and what the others get."""

    bodies: list[AckBody]
    settlements: list[AckRequest]
    places: list[int]
    answers: list[AckResult | None]

    def answer(self, results: Sequence[AckOutcome]) -> HotResponse:
        for index, result in zip(self.places, results, strict=True):
            self.answers[index] = _ack_result(index, self.bodies[index], result)
        done = [answer for answer in self.answers if answer is not None]
        return deferred_response([result.deferral for result in results], done) or HotResponse(
            200, encode(done)
        )


async def ack_batch(services: Services, raw: bytes) -> HotResponse:
    decision = services.broker.admit("ack")
    return await _acks_done(services, _read_acks(raw), decision)


def start_ack_batch(services: Services, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """The same without a task of its own, when they are carried out now."""
    decision = services.broker.admit("ack")
    asked = _read_acks(raw)
    if decision is not Decision.EXECUTE or not asked.settlements:
        return _acks_done(services, asked, decision)
    broker = services.broker.acks
    reply.on_result = lambda results: asked.answer(broker.finish(results))
    broker.start(DEFAULT_SCOPE, asked.settlements, reply)
    return None


async def _acks_done(services: Services, asked: _Acks, decision: Decision) -> HotResponse:
    if not asked.settlements:
        return asked.answer([])
    return asked.answer(await services.broker.ack(DEFAULT_SCOPE, asked.settlements, decision))


def _read_acks(raw: bytes) -> _Acks:
    batch: AckBatchBody = request_parsing.decode(ack_batch_body, raw)
    asked = _Acks(batch.acknowledgments, [], [], [None] * len(batch.acknowledgments))
    for index, body in enumerate(batch.acknowledgments):
        try:
            asked.settlements.append(_settlement(body, _lease(body.leaseId)))
            asked.places.append(index)
        except InvalidRequest as error:
            refused = AckResult(index, body.transactionId, False, error.detail, None, None, False, False)
            asked.answers[index] = refused
    return asked


async def _ack(request: Request) -> Response:
    services = get_services(request)
    return (await ack(services, await request_parsing.read_body(request))).to_response()


async def _ack_batch(request: Request) -> Response:
    services = get_services(request)
    return (await ack_batch(services, await request_parsing.read_body(request))).to_response()


async def extend(request: Request) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    seconds = request_parsing.decode(extend_body, raw).seconds if raw.strip() else 60
    if not 1 <= seconds <= 86_400:
        raise InvalidRequest(f"seconds must be from 1 to 86400, not {seconds}", field="seconds")
    lease = _lease(request.path_params["lease"])
    end = await services.broker.extend(lease, seconds * 1000)
    if end is None:
        raise LeaseLost(REASONS["lease_lost"], leaseId=str(lease))
    body = Extended(True, str(lease), iso(end), iso(end))
    return Response(encode(body), media_type="application/json")


async def transaction(request: Request) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    body = request_parsing.decode(transaction_body, raw)
    if not body.operations:
        raise InvalidRequest("the transaction has no operations", field="operations")
    messages: list[NewMessage] = []
    acks: list[AckOperation] = []
    steps: list[TransactionStep] = []
    for index, operation in enumerate(body.operations):
        if isinstance(operation, PushOperation):
            for item in operation.items:
                messages.append(new_message(item))
                steps.append(TransactionStep(index, "push", queueName=item.queue))
        else:
            acks.append(operation)
            steps.append(TransactionStep(index, "ack", transactionId=operation.transactionId))
    settlements = await _settlements(services, acks, body.requiredLeases)
    answer = TransactionResponse(str(new_id()), True, None, steps)
    status = 200
    try:
        result = await services.broker.transaction(DEFAULT_SCOPE, messages, settlements)
        _fill(steps, result)
    except TransactionFailed as failure:
        culprit = [s for s in steps if s.type == failure.kind][failure.item]
        reason = REASONS.get(failure.reason, failure.reason)
        answer.success = False
        answer.error = f"operations[{culprit.index}] ({failure.kind}) failed: {reason}; nothing was changed"
        for step in steps:
            step.error = reason if step is culprit else "not carried out"
        status = 409
    return Response(encode(answer), status, media_type="application/json")


async def _settlements(
    services: Services, acks: Sequence[AckOperation], required: Sequence[str]
) -> list[AckRequest]:
    """The acks with the lease each is made under: its own, or the required one that holds its partition."""
    leases = [_lease(text) for text in required]
    silent = [_number("partitionId", a.partitionId) for a in acks if a.leaseId is None]
    holders: dict[int, MessageLease] = {}
    if silent and leases:
        holders = await services.broker.acks.find_leases(silent, leases)
    settlements = []
    for operation in acks:
        lease = _lease(operation.leaseId) if operation.leaseId else None
        if lease is None:
            if not leases:
                raise InvalidRequest(
                    f"ack of {operation.transactionId!r} names no lease: send leaseId or requiredLeases"
                )
            lease = holders.get(int(operation.partitionId), leases[0])
        settlements.append(_settlement(operation, lease))
    return settlements


def _fill(steps: list[TransactionStep], result: TransactionResult) -> None:
    pushed, settled = iter(result.push_results), iter(result.ack_outcomes)
    for step in steps:
        step.success = True
        if step.type == "push":
            one = next(pushed)
            step.transactionId = one.transaction_id
            step.messageId = one.message_id
            step.partitionId = str(one.partition_id)
            step.duplicate = one.status == "duplicate"
        else:
            done = next(settled)
            step.queueName = done.queue
            step.dlq = done.outcome == "dead"


def _settlement(body: AckBody, lease: MessageLease) -> AckRequest:
    request_parsing.check_name("transactionId", body.transactionId)
    status = "completed" if body.status == "success" else body.status
    error = body.error.replace("\0", "") if body.error else None
    return AckRequest(_number("partitionId", body.partitionId), body.transactionId, lease, status, error)


def _lease(text: str | None) -> MessageLease:
    if text is None:
        raise InvalidRequest("leaseId is missing: send the one the message was popped with", field="leaseId")
    lease = MessageLease.parse(text)
    if lease is None:
        raise InvalidRequest(f"leaseId {text!r} is not one a pop gave", field="leaseId")
    return lease


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidRequest(f"{name} {text!r} is not one a pop gave", field=name)
    return int(text)


def _ack_result(index: int, body: AckBody, result: AckOutcome) -> AckResult:
    return AckResult(
        index,
        body.transactionId,
        result.success,
        None if result.success else REASONS[result.outcome],
        result.queue,
        result.partition,
        result.lease_released,
        result.outcome == "dead",
        result.deferral.operation_id if result.deferral else None,
        result.deferral.reason if result.deferral else None,
    )


ROUTES = [
    Route("/api/v1/ack", _ack, methods=["POST"]),
    Route("/api/v1/ack/batch", _ack_batch, methods=["POST"]),
    Route("/api/v1/lease/{lease}/extend", extend, methods=["POST"]),
    Route("/api/v1/transaction", transaction, methods=["POST"]),
]
