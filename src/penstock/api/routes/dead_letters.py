"""What groups gave up on."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api import answers
from penstock.api.parameters import Group, Limit, Moment, Offset, Partition, Queue
from penstock.api.services import Services, services
from penstock.clock import iso
from penstock.durable import dead_letters
from penstock.durable.dead_letters import COUNT_UP_TO, Filter
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1", tags=["dead letters"])


@router.get("/dlq")
async def list_dead_letters(
    request: Request,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    partition: Partition | None = None,
    start: Moment | None = Query(None, alias="from", description="failed then or later"),
    end: Moment | None = Query(None, alias="to", description="failed before then"),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """A page of dead letters with their payloads, the latest first."""
    given = services(request)
    which = Filter(queue, group, partition, start, end)
    rows = await dead_letters.dead_letters(given.database, DEFAULT_SCOPE, which, limit=limit, offset=offset)
    total = await dead_letters.total(given.database, DEFAULT_SCOPE, which)
    return answers.answer(
        {
            "messages": [letter(given, row) for row in rows],
            "total": total,
            "totalIsExact": which.is_counted or total < COUNT_UP_TO,
            "pagination": {"limit": limit, "offset": offset},
        }
    )


def letter(given: Services, row: Any) -> dict[str, Any]:
    """A dead letter, from a row of `dead_letters_v1`."""
    return {
        "id": row["message_id"],
        "transactionId": row["transaction_id"],
        "partitionId": str(row["partition_id"]),
        "queue": row["queue"],
        "partition": row["partition"],
        "consumerGroup": row["group_name"],
        "offset": row["message_offset"],
        "traceId": row["trace_id"],
        "errorMessage": row["error"],
        "retryCount": row["attempts"],
        "createdAt": iso(row["created_at"]),
        "failedAt": iso(row["failed_at"]),
        **answers.data(given.broker.records.opened(row["payload"])),
    }
