"""Waiting for what the broker accepted to do later, where the settings ask for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from penstock.client.deferred import Results
from penstock.client.errors import LeaseLost, OperationFailed
from penstock.client.http.calls import Calls
from penstock.client.messages import AckResult, PushResult
from penstock.client.operations import Operation

R = TypeVar("R", PushResult, AckResult)


async def finish_pushes(calls: Calls, results: Results[PushResult], made: set[int]) -> Results[PushResult]:
    """The results with what became of those that were done later. `made`: which have ids made by the client.

    Raises OperationFailed if nothing was stored.
    """
    operations = await _finished(calls, results)
    if not operations:
        return results
    done = _results_of(operations, lambda operation: operation.pushed)

    def finish(result: PushResult) -> PushResult:
        operation = operations.get(result.operation_id or "")
        if operation is None:
            return result
        if operation.status == "failed":
            return replace(result, status="failed", error=operation.error)
        found = replace(next(done[operation.operation_id]), index=result.index)
        # Nobody else has such an id: it is our own push, sent twice.
        return (
            replace(found, status="queued") if found.status == "duplicate" and found.index in made else found
        )

    finished = Results(map(finish, results))
    if all(result.status == "failed" for result in finished):
        failed = next((operation for operation in operations.values() if operation.status == "failed"), None)
        if failed is not None:
            raise OperationFailed(failed.operation_id, failed.error or "")
    return _still_queued(finished, results)


async def finish_acks(calls: Calls, results: Results[AckResult]) -> Results[AckResult]:
    """The results with what became of those that were done later."""
    operations = await _finished(calls, results)
    if not operations:
        return results
    done = _results_of(operations, lambda operation: operation.settled)

    def finish(result: AckResult) -> AckResult:
        operation = operations.get(result.operation_id or "")
        if operation is None:
            return result
        if operation.status == "failed":
            return replace(result, success=False, error=operation.error)
        return next(done[operation.operation_id])

    return _still_queued(Results(map(finish, results)), results)


async def finish_ack(calls: Calls, result: AckResult) -> AckResult:
    """The same for one. Raises LeaseLost if it was refused then."""
    if result.operation_id is None:
        return result
    [finished] = await finish_acks(calls, Results([result]))
    if not finished.success:
        title = "The lease is no longer held"
        raise LeaseLost(finished.error or title, status=409, code="lease_lost", title=title)
    return finished


async def _finished(calls: Calls, results: Results[R]) -> dict[str, Operation]:
    """The operations behind the results that finished in time."""
    settings = calls.settings
    ids = results.operation_ids
    if settings.queued_operation_behavior != "poll" or not ids:
        return {}
    found = await calls.operations.wait_for(ids, settings.queued_operation_timeout_s, known=True)
    return {operation.operation_id: operation for operation in found if operation is not None}


def _results_of(
    operations: dict[str, Operation], read: Callable[[Operation], list[R]]
) -> dict[str, Iterator[R]]:
    return {operation_id: iter(read(operation)) for operation_id, operation in operations.items()}


def _still_queued(finished: Results[R], before: Results[R]) -> Results[R]:
    finished.queued = before.queued if finished.operation_ids else None
    return finished
