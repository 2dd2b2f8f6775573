"""Routes for leased messages: ack, lease extension, and transactions of pushes and acks."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.http import request_parsing
from penstock.api.http.reply import PendingRequest, Reply, completed, respond
from penstock.api.http.response import HotResponse, deferred_response
from penstock.api.routes.push_pop import new_message
from penstock.api.schemas.message_bodies import (
    AckBatchBody,
    AckBody,
    AckOperation,
    AckResult,
    ExtendResponse,
    PushOperation,
    TransactionResponse,
    TransactionStep,
    ack_batch_decoder,
    ack_decoder,
    encode,
    extend_decoder,
    transaction_decoder,
)
from penstock.api.services import Services, get_services
from penstock.broker.messages import AckOutcome, AckRequest, MessageLease, NewMessage
from penstock.broker.overload.load import Decision
from penstock.broker.queues.ack import AckReceipt, Acks, TransactionResult
from penstock.clock import iso
from penstock.errors import InvalidRequest, LeaseLost, TransactionFailed
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE

ERROR_TEXTS = {
    "lease_lost": "The lease is no longer held: it expired or all of its messages were acked. Pop again.",
    "not_leased": "The lease holds no message with this transactionId. Check transactionId and leaseId.",
    "queue_full": "The queue is full: it has reached its maxSize. Retry after consumers have caught up.",
    "partition_gone": "The queue was deleted during the request. Retry.",
}


class _AckRequest(PendingRequest):
    """The ack of one message."""

    __slots__ = ("acks", "body", "requests")

    def __init__(self, acks: Acks, body: AckBody) -> None:
        self.acks = acks
        self.body = body
        self.requests = [_ack_request(body, _parse_lease(body.leaseId))]

    def finish(self, result: list[AckReceipt]) -> HotResponse:
        return self.response(self.acks.finish(result))

    def response(self, outcomes: Sequence[AckOutcome]) -> HotResponse:
        [outcome] = outcomes
        if not outcome.success:
            raise LeaseLost(ERROR_TEXTS[outcome.outcome], transactionId=self.body.transactionId)
        results = [_ack_result(0, self.body, outcome)]
        deferrals = [outcome.deferral] if outcome.deferral else []
        return deferred_response(deferrals, results) if deferrals else HotResponse(200, encode(results))


class _AckBatchRequest(PendingRequest):
    """The valid acks of a batch, their indexes in the request, and the results of the invalid ones."""

    __slots__ = ("acks", "bodies", "indexes", "requests", "results")

    def __init__(self, acks: Acks, bodies: list[AckBody]) -> None:
        self.acks = acks
        self.bodies = bodies
        self.requests: list[AckRequest] = []
        self.indexes: list[int] = []
        self.results: list[AckResult | None] = [None] * len(bodies)

    def finish(self, result: list[AckReceipt]) -> HotResponse:
        return self.response(self.acks.finish(result))

    def response(self, outcomes: Sequence[AckOutcome]) -> HotResponse:
        for index, outcome in zip(self.indexes, outcomes, strict=True):
            self.results[index] = _ack_result(index, self.bodies[index], outcome)
        results = [result for result in self.results if result is not None]
        deferrals = [outcome.deferral for outcome in outcomes if outcome.deferral]
        return deferred_response(deferrals, results) if deferrals else HotResponse(200, encode(results))


def ack(services: Services, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """Ack one message, in a batch without a task of its own, or deferred."""
    decision = services.broker.admit("ack")
    request = _AckRequest(services.broker.acks, request_parsing.decode(ack_decoder, raw))
    return _start(request, decision, reply)


def ack_batch(services: Services, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """Ack several messages, in a batch without a task of their own, or deferred."""
    decision = services.broker.admit("ack")
    request = _read_batch(services.broker.acks, raw)
    return _start(request, decision, reply) if request.requests else completed(request.response([]))


def _start(
    request: _AckRequest | _AckBatchRequest, decision: Decision, reply: Reply
) -> Awaitable[HotResponse] | None:
    if decision is not Decision.EXECUTE:
        return _defer(request)
    reply.pending_request = request
    request.acks.start(DEFAULT_SCOPE, request.requests, reply)
    return None


async def _defer(request: _AckRequest | _AckBatchRequest) -> HotResponse:
    return request.response(await request.acks.defer(request.requests))


def _read_batch(acks: Acks, raw: bytes) -> _AckBatchRequest:
    body: AckBatchBody = request_parsing.decode(ack_batch_decoder, raw)
    batch = _AckBatchRequest(acks, body.acknowledgments)
    for index, item in enumerate(body.acknowledgments):
        try:
            batch.requests.append(_ack_request(item, _parse_lease(item.leaseId)))
            batch.indexes.append(index)
        except InvalidRequest as error:
            batch.results[index] = AckResult(
                index, item.transactionId, False, error.detail, None, None, False, False
            )
    return batch


async def _ack_route(request: Request) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), ack, raw)).to_response()


async def _ack_batch_route(request: Request) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), ack_batch, raw)).to_response()


async def extend(request: Request) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    seconds = request_parsing.decode(extend_decoder, raw).seconds if raw.strip() else 60
    if not 1 <= seconds <= 86_400:
        raise InvalidRequest(f"seconds must be from 1 to 86400, not {seconds}.", field="seconds")
    lease = _parse_lease(request.path_params["lease"])
    expires_at = await services.broker.extend(lease, seconds * 1000)
    if expires_at is None:
        raise LeaseLost(ERROR_TEXTS["lease_lost"], leaseId=str(lease))
    body = ExtendResponse(True, str(lease), iso(expires_at), iso(expires_at))
    return Response(encode(body), media_type="application/json")


async def transaction(request: Request) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    body = request_parsing.decode(transaction_decoder, raw)
    if not body.operations:
        raise InvalidRequest(
            "The transaction has no operations. Send at least one push or ack.", field="operations"
        )
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
    ack_requests = await _ack_requests(services, acks, body.requiredLeases)
    response = TransactionResponse(str(new_id()), True, None, steps)
    status = 200
    try:
        result = await services.broker.transaction(DEFAULT_SCOPE, messages, ack_requests)
        _fill_steps(steps, result)
    except TransactionFailed as failure:
        failed_step = [step for step in steps if step.type == failure.kind][failure.item]
        reason = ERROR_TEXTS.get(failure.reason, failure.reason)
        response.success = False
        response.error = (
            f"operations[{failed_step.index}] ({failure.kind}) failed, and nothing was changed: {reason}"
        )
        for step in steps:
            step.error = reason if step is failed_step else "not carried out"
        status = 409
    return Response(encode(response), status, media_type="application/json")


async def _ack_requests(
    services: Services, acks: Sequence[AckOperation], required_leases: Sequence[str]
) -> list[AckRequest]:
    """The acks of a transaction. One without a lease uses the required lease that holds its partition."""
    leases = [_parse_lease(text) for text in required_leases]
    partition_ids = [_parse_id("partitionId", a.partitionId) for a in acks if a.leaseId is None]
    leases_by_partition: dict[int, MessageLease] = {}
    if partition_ids and leases:
        leases_by_partition = await services.broker.acks.find_leases(partition_ids, leases)
    ack_requests = []
    for operation in acks:
        lease = _parse_lease(operation.leaseId) if operation.leaseId else None
        if lease is None:
            if not leases:
                raise InvalidRequest(
                    f"The ack of {operation.transactionId!r} has no lease. Send leaseId or requiredLeases."
                )
            lease = leases_by_partition.get(int(operation.partitionId), leases[0])
        ack_requests.append(_ack_request(operation, lease))
    return ack_requests


def _fill_steps(steps: list[TransactionStep], result: TransactionResult) -> None:
    push_results, ack_outcomes = iter(result.push_results), iter(result.ack_outcomes)
    for step in steps:
        step.success = True
        if step.type == "push":
            pushed = next(push_results)
            step.transactionId = pushed.transaction_id
            step.messageId = pushed.message_id
            step.partitionId = str(pushed.partition_id)
            step.duplicate = pushed.status == "duplicate"
        else:
            acked = next(ack_outcomes)
            step.queueName = acked.queue
            step.dlq = acked.outcome == "dead"


def _ack_request(body: AckBody, lease: MessageLease) -> AckRequest:
    request_parsing.check_name("transactionId", body.transactionId)
    status = "completed" if body.status == "success" else body.status
    error = body.error.replace("\0", "") if body.error else None
    return AckRequest(_parse_id("partitionId", body.partitionId), body.transactionId, lease, status, error)


def _parse_lease(text: str | None) -> MessageLease:
    if text is None:
        raise InvalidRequest(
            "leaseId is missing. Send the leaseId that came with the message.", field="leaseId"
        )
    lease = MessageLease.parse(text)
    if lease is None:
        raise _not_from_a_message("leaseId", text)
    return lease


def _parse_id(name: str, text: str) -> int:
    if not request_parsing.is_decimal(text):
        raise _not_from_a_message(name, text)
    return int(text)


def _not_from_a_message(name: str, text: str) -> InvalidRequest:
    shown = request_parsing.shorten(text)
    return InvalidRequest(
        f"{name} {shown!r} is not valid. Send the {name} that came with the message.", field=name
    )


def _ack_result(index: int, body: AckBody, outcome: AckOutcome) -> AckResult:
    return AckResult(
        index,
        body.transactionId,
        outcome.success,
        None if outcome.success else ERROR_TEXTS[outcome.outcome],
        outcome.queue,
        outcome.partition,
        outcome.lease_released,
        outcome.outcome == "dead",
        outcome.deferral.operation_id if outcome.deferral else None,
        outcome.deferral.reason if outcome.deferral else None,
    )


ROUTES = [
    Route("/api/v1/ack", _ack_route, methods=["POST"]),
    Route("/api/v1/ack/batch", _ack_batch_route, methods=["POST"]),
    Route("/api/v1/lease/{lease}/extend", extend, methods=["POST"]),
    Route("/api/v1/transaction", transaction, methods=["POST"]),
]
