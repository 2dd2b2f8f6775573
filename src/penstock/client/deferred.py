"""Deferred operations: the 202 response, results that refer to it, and waiting for its execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

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

    @property
    def queue_position(self) -> int | None: ...

    @property
    def estimated_wait_s(self) -> float | None: ...

    @property
    def reason(self) -> str | None: ...


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
    finished, operations = await _finish(
        api, results, lambda operation: operation.pushed, lambda result: replace(result, status="failed")
    )
    if not operations:
        return finished
    failed = next((operation for operation in operations.values() if operation.status == "failed"), None)
    if failed is not None and all(result.status == "failed" for result in finished):
        raise OperationFailed(failed.operation_id, failed.error or "")
    own_ids = {result.index for result in results if result.operation_id in operations} & generated
    renumbered = (replace(push, index=result.index) for push, result in zip(finished, results, strict=True))
    return Results((_stored_once(push, own_ids) for push in renumbered), finished.queued)


def _stored_once(result: PushResult, own_ids: set[int]) -> PushResult:
    """No other call uses the ids in `own_ids`, so a duplicate of one is this push itself, sent twice."""
    is_own_duplicate = result.status == "duplicate" and result.index in own_ids
    return replace(result, status="queued") if is_own_duplicate else result


async def finish_acks(api: BrokerApi, results: Results[AckResult]) -> Results[AckResult]:
    """Replace deferred results by executed ones if the settings say to poll."""
    finished, _ = await _finish(
        api, results, lambda operation: operation.settled, lambda result: replace(result, success=False)
    )
    return finished


async def finish_ack(api: BrokerApi, result: AckResult) -> AckResult:
    """Replace the deferred result of one ack likewise. Raises LeaseLost if its execution was refused."""
    if result.operation_id is None:
        return result
    [finished] = await finish_acks(api, Results([result]))
    if not finished.success:
        title = "Lease lost"
        raise LeaseLost(finished.error or title, status=409, code="lease_lost", title=title)
    return finished


async def _finish(
    api: BrokerApi,
    results: Results[ItemResult],
    read_results: Callable[[Operation], list[ItemResult]],
    fail: Callable[[ItemResult], ItemResult],
) -> tuple[Results[ItemResult], dict[str, Operation]]:
    """Wait for the operations of the results; return those that finished in time, and what they did."""
    settings = api.settings
    if settings.queued_operation_behavior != "poll" or not results.operation_ids:
        return results, {}
    timeout_s = settings.queued_operation_timeout_s
    outcomes = await api.operations.wait_for(results.operation_ids, timeout_s, must_exist=True)
    operations = {operation.operation_id: operation for operation in outcomes if operation is not None}
    executed = {operation_id: iter(read_results(operation)) for operation_id, operation in operations.items()}

    def finish(result: ItemResult) -> ItemResult:
        operation = operations.get(result.operation_id or "")
        if operation is None:
            return result
        if operation.status == "failed":
            return replace(fail(result), error=operation.error)
        return next(executed[operation.operation_id])

    finished = Results(map(finish, results))
    finished.queued = results.queued if finished.operation_ids else None
    return finished, operations
