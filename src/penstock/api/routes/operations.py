"""Pushes and acks that were accepted for later: how they stand, and what an operator can do about them."""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import Request

from penstock.api.http.parameters import Limit, Queue
from penstock.api.http.response import iso_or_none
from penstock.api.services import get_services
from penstock.clock import iso
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/operations", tags=["operations"])

OperationId = Annotated[uuid.UUID, Path(alias="operationId", description="as the 202 told it")]
Status = Literal["pending", "completed", "failed"]


@router.get("")
async def list_operations(
    request: Request,
    status: Status | None = None,
    queue: Queue | None = None,
    after: uuid.UUID | None = Query(None, description="the last id of the page before"),
    limit: Limit = 100,
) -> dict[str, Any]:
    """A page of operations, the oldest first. What is done is kept for an hour."""
    rows = await get_services(request).broker.store.operations.list_operations(
        DEFAULT_SCOPE, queue=queue, status=status, after=after, limit=limit
    )
    return {
        "operations": [_described(row) for row in rows],
        "next": str(rows[-1].id) if len(rows) == limit else None,
    }


@router.get("/stats")
async def statistics(request: Request) -> dict[str, Any]:
    """Operations by type, priority and status; how loaded this broker process is; what the journal holds."""
    services = get_services(request)
    rows = await services.broker.store.operations.statistics()
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
        "load": services.broker.load.to_dict(),
        "journal": journal_depth(services.broker.journal),
    }


@router.get("/{operationId}")
async def get_operation(request: Request, operation_id: OperationId) -> dict[str, Any]:
    """One operation, with the result of every item once it is done."""
    services = get_services(request)
    row = await services.broker.operations.get(DEFAULT_SCOPE, operation_id)
    ahead = row["ahead"]
    return _described(row) | {
        "queuePosition": None if ahead is None else ahead + 1,
        "estimatedWait": None if ahead is None else services.broker.load.estimated_wait_s(row["kind"]),
        "result": _result(row) if row["status"] == "completed" else None,
    }


@router.post("/{operationId}/retry")
async def retry_operation(request: Request, operation_id: OperationId) -> dict[str, Any]:
    """Try a failed operation again, before all others of its lane."""
    await get_services(request).broker.operations.retry(DEFAULT_SCOPE, operation_id)
    return {"operationId": str(operation_id), "status": "pending"}


@router.delete("/{operationId}")
async def drop_operation(request: Request, operation_id: OperationId) -> dict[str, Any]:
    """Forget an operation. One that is pending or failed is never carried out then: its messages are gone."""
    was = await get_services(request).broker.operations.delete(DEFAULT_SCOPE, operation_id)
    return {"operationId": str(operation_id), "dropped": True, "status": was}


def journal_depth(journal: Any) -> dict[str, Any] | None:
    """What the journal of this machine holds; None if there is none."""
    if journal is None:
        return None
    depth = journal.depth()
    return {
        "records": depth.records,
        "bytes": depth.bytes,
        "oldestAgeSeconds": depth.oldest_age_s,
    }


def _described(row: Any) -> dict[str, Any]:
    return {
        "operationId": str(row["id"]),
        "type": row["kind"],
        "status": row["status"],
        "reason": row["reason"],
        "queue": row["queue"],
        "partition": row["partition"],
        "partitionId": str(row["partition_id"]),
        "priority": row["priority"],
        "items": row["items"],
        "createdAt": iso(row["accepted_at"]),
        "finishedAt": iso_or_none(row["finished_at"]),
        "attempts": row["attempts"],
        "error": row["error"],
    }


def _result(row: Any) -> list[dict[str, Any]]:
    """As the request would have been answered at once."""
    result = json.loads(row["result"])
    if row["kind"] == "ack":
        return [
            {
                "index": index,
                "transactionId": transaction_id,
                "success": outcome not in ("lease_lost", "not_leased"),
                "error": outcome if outcome in ("lease_lost", "not_leased") else None,
                "dlq": outcome == "dead",
            }
            for index, (transaction_id, outcome) in enumerate(
                zip(row["transaction_ids"], result["outcomes"], strict=True)
            )
        ]
    duplicates = result["duplicates"]
    return [
        {
            "index": index,
            "status": "duplicate" if str(index) in duplicates else "queued",
            "transaction_id": transaction_id or str(message_id),
            "message_id": duplicates.get(str(index), str(message_id)),
            "partition_id": str(row["partition_id"]),
            "queueName": row["queue"],
        }
        for index, (message_id, transaction_id) in enumerate(
            zip(row["message_ids"], row["transaction_ids"], strict=True)
        )
    ]
