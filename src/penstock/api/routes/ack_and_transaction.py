"""Routes for leased messages: ack, lease extension, and transactions of pushes and acks."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.access import hot_endpoint
from penstock.api.http import request_parsing
from penstock.api.http.reply import PendingRequest, Reply, completed, respond
from penstock.api.http.response import HotResponse, deferred_response, set_deferral
from penstock.api.routes.push_pop import (
    admit_messages,
    check_message_queues,
    new_message,
    set_trace_context,
)
from penstock.api.schemas.message_bodies import (
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
from penstock.broker.messages import Ack, AckReceipt, DeferralReceipt, MessageLease, NewMessage
from penstock.broker.overload.load import Decision
from penstock.broker.queues.ack import Acks, TransactionResult
from penstock.caller import AccessScope, Caller
from penstock.clock import iso
from penstock.errors import InvalidRequest, LeaseLost, TransactionFailed
from penstock.ids import new_id
from penstock.log_format import request_ids
from penstock.validation_text import shorten

ERROR_TEXTS = {
    "lease_lost": "The lease is no longer held: it expired or all of its messages were acked. Pop again.",
    "not_leased": "The lease holds no message with this transactionId. Check transactionId and leaseId.",
    "queue_full": "The queue is full: it has reached its maxSize. Retry after consumers have caught up.",
    "partition_gone": "The queue was deleted during the request. Retry.",
}


@dataclass(slots=True)
class _AckRequest(PendingRequest):
    """The valid acks of a request, their indexes in it, and the results of the invalid ones."""

    service: Acks
    acks: list[Ack]
    indexes: list[int]
    results: list[AckResult]
    is_batch: bool = True

    def finish(self, result: list[AckReceipt]) -> HotResponse:
        """Build the response. A rejected ack raises LeaseLost, unless it is one of a batch."""
        results = self.results
        has_invalid = bool(results)
        last, success, error, is_dead = None, False, None, False
        deferrals: list[DeferralReceipt] = []
        for index, ack, receipt in zip(self.indexes, self.acks, result, strict=True):
            if receipt is not last:  # messages of one lease share their receipt
                last, success, is_dead = receipt, receipt.success, receipt.outcome == "dead"
                error = None if success else ERROR_TEXTS[receipt.outcome]
                _, _, queue, partition, _, lease_released, _, deferral = receipt
                if not success and not self.is_batch:
                    raise LeaseLost(ERROR_TEXTS[receipt.outcome], transactionId=ack.transaction_id)
            item = AckResult(
                index, ack.transaction_id, success, error, queue, partition, lease_released, is_dead
            )
            if deferral is not None:
                set_deferral(item, deferral)
                deferrals.append(deferral)
            results.append(item)
        if has_invalid:
            results.sort(key=lambda item: item.index)
        return deferred_response(deferrals, results) if deferrals else HotResponse(200, encode(results))

    def span_attributes(self) -> Mapping[str, str | int]:
        return {"messaging.batch.message_count": len(self.acks)}

    async def defer(self, caller: Caller) -> HotResponse:
        return self.finish(await self.service.defer(caller.environment, self.acks))


def ack(services: Services, caller: Caller, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """Ack one message, in a batch without a task of its own, or deferred."""
    decision = services.broker.admit("ack")
    body = request_parsing.decode(ack_decoder, raw)
    acks = [_read_ack(body, _parse_lease(body.leaseId))]
    request = _AckRequest(services.broker.acks, acks, [0], [], is_batch=False)
    return _start(request, caller, decision, reply)


def ack_batch(services: Services, caller: Caller, raw: bytes, reply: Reply) -> Awaitable[HotResponse] | None:
    """Ack several messages, in a batch without a task of their own, or deferred."""
    decision = services.broker.admit("ack")
    request = _AckRequest(services.broker.acks, [], [], [])
    acknowledgments = request_parsing.decode(ack_batch_decoder, raw).acknowledgments
    request_parsing.check_batch_size("acknowledgments", len(acknowledgments))
    for index, body in enumerate(acknowledgments):
        try:
            request.acks.append(_read_ack(body, _parse_lease(body.leaseId)))
            request.indexes.append(index)
        except InvalidRequest as error:
            request.results.append(
                AckResult(index, body.transactionId, False, error.detail, None, None, False, False)
            )
    return _start(request, caller, decision, reply) if request.acks else completed(request.finish([]))


def _start(
    request: _AckRequest, caller: Caller, decision: Decision, reply: Reply
) -> Awaitable[HotResponse] | None:
    if decision is not Decision.EXECUTE:
        return request.defer(caller)
    reply.pending_request = request
    request.service.start(caller.environment, request.acks, reply)
    return None


async def _ack_route(request: Request, caller: Caller) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), caller, ack, raw)).to_response()


async def _ack_batch_route(request: Request, caller: Caller) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), caller, ack_batch, raw)).to_response()


async def extend(request: Request, caller: Caller) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    seconds = request_parsing.decode(extend_decoder, raw).seconds if raw.strip() else 60
    if not 1 <= seconds <= 86_400:
        raise InvalidRequest(f"seconds must be from 1 to 86400, not {seconds}.", field="seconds")
    lease = _parse_lease(request.path_params["lease"])
    expires_at = await services.broker.extend(caller.environment, lease, seconds * 1000)
    if expires_at is None:
        raise LeaseLost(ERROR_TEXTS["lease_lost"], leaseId=str(lease))
    body = ExtendResponse(True, str(lease), iso(expires_at), iso(expires_at))
    return Response(encode(body), media_type="application/json")


async def transaction(request: Request, caller: Caller) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    body = request_parsing.decode(transaction_decoder, raw)
    if not body.operations:
        raise InvalidRequest(
            "The transaction has no operations. Send at least one push or ack.", field="operations"
        )
    request_parsing.check_batch_size("operations", len(body.operations))
    messages: list[NewMessage] = []
    operations: list[AckOperation] = []
    steps: list[TransactionStep] = []
    for index, operation in enumerate(body.operations):
        if isinstance(operation, PushOperation):
            for item in operation.items:
                messages.append(new_message(item))
                steps.append(TransactionStep(index, "push", queueName=item.queue))
        else:
            operations.append(operation)
            steps.append(TransactionStep(index, "ack", transactionId=operation.transactionId))
    ids = request_ids.get()
    if ids is not None and ids.trace_context is not None:
        set_trace_context(messages, ids.trace_context)
    check_message_queues(caller, messages)
    admit_messages(caller, messages)
    acks = await _read_acks(services, caller, operations, body.requiredLeases)
    response = TransactionResponse(str(new_id()), True, None, steps)
    status = 200
    try:
        result = await services.broker.transaction(caller.environment, messages, acks, caller.quotas)
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


async def _read_acks(
    services: Services, caller: Caller, operations: Sequence[AckOperation], required_leases: Sequence[str]
) -> list[Ack]:
    """The acks of a transaction. One without a lease uses the required lease that holds its partition."""
    leases = [_parse_lease(text) for text in required_leases]
    partition_ids = [_parse_id("partitionId", o.partitionId) for o in operations if o.leaseId is None]
    leases_by_partition: dict[int, MessageLease] = {}
    if partition_ids and leases:
        leases_by_partition = await services.broker.acks.find_leases(
            caller.environment, partition_ids, leases
        )
    acks = []
    for operation in operations:
        lease = _parse_lease(operation.leaseId) if operation.leaseId else None
        if lease is None:
            if not leases:
                raise InvalidRequest(
                    f"The ack of {operation.transactionId!r} has no lease. Send leaseId or requiredLeases."
                )
            lease = leases_by_partition.get(int(operation.partitionId), leases[0])
        acks.append(_read_ack(operation, lease))
    return acks


def _fill_steps(steps: list[TransactionStep], result: TransactionResult) -> None:
    push_results, ack_receipts = iter(result.push_results), iter(result.ack_receipts)
    for step in steps:
        step.success = True
        if step.type == "push":
            pushed = next(push_results)
            step.transactionId = pushed.transaction_id
            step.messageId = pushed.message_id
            step.partitionId = str(pushed.partition_id)
            step.duplicate = pushed.status == "duplicate"
        else:
            acked = next(ack_receipts)
            step.queueName = acked.queue
            step.dlq = acked.outcome == "dead"


def _read_ack(body: AckBody, lease: MessageLease) -> Ack:
    request_parsing.check_name("transactionId", body.transactionId)
    status = "completed" if body.status == "success" else body.status
    error = body.error.replace("\0", "") if body.error else None
    partition_id = _parse_id("partitionId", body.partitionId)
    group_id, lease_id = lease
    return Ack(partition_id, group_id, lease_id, body.transactionId, status, error)


def _parse_lease(text: str | None) -> MessageLease:
    if text is None:
        raise InvalidRequest(
            "leaseId is missing. Send the leaseId that came with the message.", field="leaseId"
        )
    lease = MessageLease.parse(text)
    if lease is None:
        raise _not_from_a_message("leaseId", text)
    return lease


@lru_cache(maxsize=1_000)
def _parse_id(name: str, text: str) -> int:
    if not request_parsing.is_decimal(text):
        raise _not_from_a_message(name, text)
    return int(text)


def _not_from_a_message(name: str, text: str) -> InvalidRequest:
    shown = shorten(text)
    return InvalidRequest(
        f"{name} {shown!r} is not valid. Send the {name} that came with the message.", field=name
    )


ROUTES = [
    Route("/api/v1/ack", hot_endpoint(_ack_route, AccessScope.CONSUME), methods=["POST"]),
    Route("/api/v1/ack/batch", hot_endpoint(_ack_batch_route, AccessScope.CONSUME), methods=["POST"]),
    Route("/api/v1/lease/{lease}/extend", hot_endpoint(extend, AccessScope.CONSUME), methods=["POST"]),
    Route(
        "/api/v1/transaction",
        hot_endpoint(transaction, AccessScope.PRODUCE | AccessScope.CONSUME),
        methods=["POST"],
    ),
]
