"""Routes for deferred operations: pushes and acks that were accepted with 202."""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request

from penstock.api.access import OperateAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Queue, refuse_unknown_parameters
from penstock.api.http.response import iso_or_none
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.broker.durable_store import OperationRecord, OperationSummary
from penstock.broker.journal.push_journal import Journal
from penstock.clock import iso
from penstock.errors import UnknownOperation, WrongState

router = APIRouter(
    prefix="/api/v1/operations", tags=["operations"], dependencies=[Depends(refuse_unknown_parameters)]
)

OperationId = Annotated[uuid.UUID, Path(alias="operationId", description="operationId of the 202 response")]
Status = Literal["pending", "completed", "failed"]

REJECTED_ACKS = ("lease_lost", "not_leased")


@router.get("")
async def list_operations(
    request: Request,
    caller: ReadAccess,
    status: Status | None = None,
    queue: Queue | None = None,
    after: uuid.UUID | None = Query(None, description="the last id of the previous page"),
    limit: Limit = 100,
) -> dict[str, object]:
    """List operations, the oldest first. Completed ones are kept for an hour."""
    operations = await get_services(request).broker.store.operations.list_operations(
        caller.environment, queue=queue, status=status, after=after, limit=limit
    )
    return {
        "operations": [_operation_to_dict(operation) for operation in operations],
        "next": str(operations[-1].id) if len(operations) == limit else None,
    }


@router.get("/lanes")
async def list_lanes(
    request: Request, caller: ReadAccess, queue: Queue | None = None, limit: Limit = 100
) -> dict[str, object]:
    """List the lanes with waiting operations, the most urgent first.

    A `blocked` lane waits until its first operation, which failed, is retried or deleted.
    """
    lanes = await get_services(request).broker.store.operations.list_lanes(
        caller.environment, queue=queue, limit=limit
    )
    return {
        "lanes": [
            {
                "queue": lane.queue,
                "partition": lane.partition,
                "partitionId": str(lane.partition_id),
                "type": lane.kind,
                "operations": lane.operations,
                "blocked": lane.blocked,
                "retryAt": iso_or_none(lane.retry_at),
                "first": None
                if lane.operation_id is None
                else {
                    "operationId": str(lane.operation_id),
                    "createdAt": iso_or_none(lane.accepted_at),
                    "attempts": lane.attempts,
                    "error": lane.error,
                },
            }
            for lane in lanes
        ],
        "total": lanes[0].total if lanes else 0,
    }


@router.get("/stats")
async def statistics(request: Request, caller: ReadAccess) -> dict[str, object]:
    """Count operations by type, priority and status, and report the load of this process and its journal.

    During an outage of PostgreSQL there are no counts, but the journal is in use.
    """
    broker = get_services(request).broker
    outage_s = broker.diagnostics.outage_s
    rows = [] if outage_s else await broker.store.operations.statistics(caller.environment)
    return {
        "stats": [
            {
                "type": row.kind,
                "priority": row.priority,
                "status": row.status,
                "count": row.operations,
                "oldest": iso(row.oldest),
                "newest": iso(row.newest),
                "averageSeconds": round(row.average_s, 3),
            }
            for row in rows
        ],
        "load": broker.load.to_dict(),
        "databaseOutageSeconds": round(outage_s, 3),
        "journal": journal_depth_to_dict(broker.journal),
    }


@router.get("/{operationId}", responses=problem_responses(UnknownOperation, WrongState))
async def get_operation(request: Request, caller: ReadAccess, operation_id: OperationId) -> dict[str, object]:
    """Return one operation, with the result of every item once it is completed."""
    broker = get_services(request).broker
    operation = await broker.operations.get(caller.environment, operation_id)
    ahead = operation.ahead
    return _operation_to_dict(operation) | {
        "queuePosition": None if ahead is None else ahead + 1,
        "estimatedWait": None if ahead is None else broker.load.estimated_wait_s(operation.kind),
        "result": _results_to_list(operation) if operation.status == "completed" else None,
    }


@router.post("/{operationId}/retry", responses=problem_responses(UnknownOperation, WrongState))
async def retry_operation(
    request: Request, caller: OperateAccess, operation_id: OperationId
) -> dict[str, object]:
    """Retry a failed operation, before all others of its lane."""
    operations = get_services(request).broker.operations
    before = await state_before(operations.get(caller.environment, operation_id), _operation_to_dict)
    await operations.retry(caller.environment, operation_id)
    audit_change(request, before=before, after={**before, "status": "pending"})
    return {"operationId": str(operation_id), "status": "pending"}


@router.delete("/{operationId}", responses=problem_responses(UnknownOperation, WrongState))
async def drop_operation(
    request: Request, caller: OperateAccess, operation_id: OperationId
) -> dict[str, object]:
    """Delete an operation. A pending or failed one is never executed then: its messages are lost."""
    operations = get_services(request).broker.operations
    before = await state_before(operations.get(caller.environment, operation_id), _operation_to_dict)
    status = await operations.delete(caller.environment, operation_id)
    audit_change(request, before=before)
    return {"operationId": str(operation_id), "dropped": True, "status": status}


def journal_depth_to_dict(journal: Journal | None) -> dict[str, object] | None:
    """Return the JSON of what the journal of this machine holds; None without a journal."""
    if journal is None:
        return None
    depth = journal.depth()
    return {
        "records": depth.records,
        "bytes": depth.bytes,
        "oldestAgeSeconds": depth.oldest_age_s,
        "replayedBytes": depth.replayed_bytes,
        "fileBytes": depth.replayed_bytes + depth.bytes,
        "limitBytes": journal.max_bytes,
        "problem": journal.refusal_reason(),
    }


def _operation_to_dict(operation: OperationSummary) -> dict[str, object]:
    return {
        "operationId": str(operation.id),
        "type": operation.kind,
        "status": operation.status,
        "reason": operation.reason,
        "queue": operation.queue,
        "partition": operation.partition,
        "partitionId": str(operation.partition_id),
        "priority": operation.priority,
        "items": operation.items,
        "createdAt": iso(operation.accepted_at),
        "finishedAt": iso_or_none(operation.finished_at),
        "attempts": operation.attempts,
        "error": operation.error,
    }


def _results_to_list(operation: OperationRecord) -> list[dict[str, object]]:
    """Return the results of the items as the immediate response would have had them."""
    result = json.loads(operation.result or "{}")
    if operation.kind == "ack":
        return [
            {
                "index": index,
                "transactionId": transaction_id,
                "success": outcome not in REJECTED_ACKS,
                "error": outcome if outcome in REJECTED_ACKS else None,
                "dlq": outcome == "dead",
            }
            for index, (transaction_id, outcome) in enumerate(
                zip(operation.transaction_ids, result["outcomes"], strict=True)
            )
        ]
    duplicates = result["duplicates"]
    return [
        {
            "index": index,
            "status": "duplicate" if str(index) in duplicates else "queued",
            "transaction_id": transaction_id or str(message_id),
            "message_id": duplicates.get(str(index), str(message_id)),
            "partition_id": str(operation.partition_id),
            "queueName": operation.queue,
        }
        for index, (message_id, transaction_id) in enumerate(
            zip(operation.message_ids or (), operation.transaction_ids, strict=True)
        )
    ]
