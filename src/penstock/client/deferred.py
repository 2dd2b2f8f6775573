"""Deferred operations: the 202 response, results that refer to it, and waiting for its execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.client.errors import LeaseLost, OperationFailed
from penstock.client.messages import AckResult, PushResult

if TYPE_CHECKING:
    from penstock.client.http.broker_api import BrokerApi
    from penstock.client.operations import Operation

Reason = Literal["maintaining_order", "system_busy", "database_down"] | str


class DeferrableResult(Protocol):
    """The result of a push or an ack."""

    @property
    def operation_id(self) -> str | None: ...


R = TypeVar("R", bound=DeferrableResult)
ItemResult = TypeVar("ItemResult", PushResult, AckResult)


class Queued(Struct, frozen=True, kw_only=True, rename="camel"):
    """A deferred operation; of several, the one that is expected to finish last."""

    operation_id: str
    queue_position: int | None = None
    """Its position in the lane of its partition, from 1."""
    reason: Reason | None = None
    """Earlier operations of its partition (maintaining_order), overload, or PostgreSQL is unreachable."""
    estimated_wait_s: float | None = field(default=None, name="estimatedWait")
    """From the recent rate of such operations; None if unknown."""


class DeferredResponse(Queued, Generic[R], frozen=True, kw_only=True):
    """The body of a 202: the operation, and one result per item."""

    items: list[R]


class Results(list[R]):
    """One result per item, in order, and the deferred operation if there is one."""

    def __init__(self, results: Iterable[R], queued: Queued | None = None) -> None:
        super().__init__(results)
        self.queued = queued
        """None: everything is executed."""

    @property
    def operation_ids(self) -> list[str]:
        """The deferred operations of the results, each once."""
        return list(dict.fromkeys(r.operation_id for r in self if r.operation_id is not None))


async def finish_pushes(
    api: BrokerApi, results: Results[PushResult], generated: set[int]
) -> Results[PushResult]:
    """Replace deferred results by executed ones if the settings say to poll.

    `generated` holds the indexes of messages whose ids the client generated. Raises OperationFailed if no
    message was stored.
    """
    operations = await _finished_operations(api, results)
    if not operations:
        return results
    executed = _results_of(operations, lambda operation: operation.pushed)

    def finish(result: PushResult) -> PushResult:
        operation = operations.get(result.operation_id or "")
        if operation is None:
            return result
        if operation.status == "failed":
            return replace(result, status="failed", error=operation.error)
        finished = replace(next(executed[operation.operation_id]), index=result.index)
        # The id was generated here, so a duplicate is this push itself, sent twice.
        if finished.status == "duplicate" and finished.index in generated:
            return replace(finished, status="queued")
        return finished

    finished = Results(map(finish, results))
    if all(result.status == "failed" for result in finished):
        failed = next((operation for operation in operations.values() if operation.status == "failed"), None)
        if failed is not None:
            raise OperationFailed(failed.operation_id, failed.error or "")
    return _keep_pending(finished, results)


async def finish_acks(api: BrokerApi, results: Results[AckResult]) -> Results[AckResult]:
    """Replace deferred results by executed ones if the settings say to poll."""
    operations = await _finished_operations(api, results)
    if not operations:
        return results
    executed = _results_of(operations, lambda operation: operation.settled)

    def finish(result: AckResult) -> AckResult:
        operation = operations.get(result.operation_id or "")
        if operation is None:
            return result
        if operation.status == "failed":
            return replace(result, success=False, error=operation.error)
        return next(executed[operation.operation_id])

    return _keep_pending(Results(map(finish, results)), results)


async def finish_ack(api: BrokerApi, result: AckResult) -> AckResult:
    """Replace the deferred result of one ack likewise. Raises LeaseLost if its execution was refused."""
    if result.operation_id is None:
        return result
    [finished] = await finish_acks(api, Results([result]))
    if not finished.success:
        title = "Lease lost"
        raise LeaseLost(finished.error or title, status=409, code="lease_lost", title=title)
    return finished


async def _finished_operations(api: BrokerApi, results: Results[ItemResult]) -> dict[str, Operation]:
    """Wait for the operations of the results and return those that finished in time."""
    settings = api.settings
    operation_ids = results.operation_ids
    if settings.queued_operation_behavior != "poll" or not operation_ids:
        return {}
    timeout_s = settings.queued_operation_timeout_s
    operations = await api.operations.wait_for(operation_ids, timeout_s, must_exist=True)
    return {operation.operation_id: operation for operation in operations if operation is not None}


def _results_of(
    operations: dict[str, Operation], read: Callable[[Operation], list[ItemResult]]
) -> dict[str, Iterator[ItemResult]]:
    return {operation_id: iter(read(operation)) for operation_id, operation in operations.items()}


def _keep_pending(finished: Results[ItemResult], deferred: Results[ItemResult]) -> Results[ItemResult]:
    finished.queued = deferred.queued if finished.operation_ids else None
    return finished
