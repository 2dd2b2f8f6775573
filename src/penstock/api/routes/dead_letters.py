"""Routes that list, search and count dead letters, and requeue or delete single ones."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import OperateAccess, ReadAccess, check_access
from penstock.api.annotated_change import annotate_single_requeue
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Group, Limit, Offset, Partition, Queue, Text, Timestamp
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.problems import problem_responses
from penstock.api.schemas.dead_letter_views import (
    dead_letter_to_dict,
    summarize_dead_letter,
)
from penstock.api.services import get_services
from penstock.broker.dead_letters.dead_letter_source import PageRequest
from penstock.broker.durable_store import DeadLetterFilter
from penstock.caller import AccessScope
from penstock.clock import iso
from penstock.errors import (
    Forbidden,
    Overloaded,
    QueueFull,
    Unauthorized,
    UnknownMessage,
    UnknownQueue,
    UnknownTask,
    WrongState,
)

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden), prefix="/api/v1/dlq", tags=["dead letters"]
)

LetterId = Annotated[
    str,
    Path(
        pattern="^([1-9][0-9]{0,18}|[0-9a-f-]{32,36}-[0-9]{1,4})$",
        description="letterId, as lists of dead letters return it",
    ),
]


@router.get("", responses=problem_responses(UnknownQueue))
async def list_dead_letters(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    partition: Partition | None = None,
    start: Timestamp | None = Query(None, alias="from", description="failed at this time or later"),
    end: Timestamp | None = Query(None, alias="to", description="failed before this time"),
    error: Text = None,
    error_group: uuid.UUID | None = Query(None, alias="errorGroup", description="errorGroup of /dlq/groups"),
    payload: Text = None,
    cursor: str | None = Query(None, description="nextCursor of the previous page", max_length=60),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List dead letters with their payloads, the latest first.

    `error` is a substring of the error, ignoring case, and `payload` a substring of the payload; payloads of
    encrypted queues never match. A search for a text reads at most 10,000 dead letters of each queue;
    `nextCursor` continues after them.
    """
    if payload:
        check_access(caller, AccessScope.READ_PAYLOAD)
    selection = DeadLetterFilter(
        queue, group, partition, start, end, error or None, error_group, payload or None
    )
    source = await get_services(request).broker.dead_letters.source_of_queue(caller.environment, queue)
    page = await source.list_page(caller.environment, selection, PageRequest(limit, offset, cursor))
    return json_response(
        {
            "messages": [dead_letter_to_dict(caller, dead_letter) for dead_letter in page.dead_letters],
            "total": page.total,
            "totalIsExact": page.total_is_exact,
            "nextCursor": page.next_cursor,
            "pagination": {"limit": limit, "offset": page.offset},
        }
    )


@router.get("/status")
async def count_dead_letters(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    limit: Limit = 1_000,
    offset: Offset = 0,
) -> dict[str, object]:
    """Count the dead letters of each queue and group, with the time when the oldest failed."""
    page = await get_services(request).broker.dead_letters.count_page(
        caller.environment, limit, offset, queue=queue, group=group, ages=True
    )
    return {
        "groups": [
            {
                "queue": row.queue,
                "kind": row.kind,
                "consumerGroup": row.group,
                "deadLetters": row.messages,
                "oldestFailedAt": iso_or_none(row.oldest_at),
            }
            for row in page.rows
        ],
        "missing": page.missing,
        "asOf": iso(datetime.now(UTC)),
        "pagination": {"limit": limit, "offset": offset, "total": page.total},
    }


@router.get("/letters/{letter_id}", responses=problem_responses(UnknownMessage, UnknownTask))
async def get_dead_letter(request: Request, caller: ReadAccess, letter_id: LetterId) -> Response:
    """Return one dead letter with its payload, its error and its history."""
    source = get_services(request).broker.dead_letters.source_of_letter(letter_id)
    return json_response(dead_letter_to_dict(caller, await source.get(caller.environment, letter_id)))


@router.delete("/letters/{letter_id}", responses=problem_responses(UnknownMessage, UnknownTask))
async def delete_dead_letter(
    request: Request, caller: OperateAccess, letter_id: LetterId
) -> dict[str, object]:
    """Delete one dead letter, whatever its attempts. The message stays in the log."""
    source = get_services(request).broker.dead_letters.source_of_letter(letter_id)
    before = await state_before(source.get(caller.environment, letter_id), summarize_dead_letter)
    await source.delete(caller.environment, letter_id)
    audit_change(request, before=before)
    return {"success": True, "deleted": 1, "letterId": letter_id}


@router.post(
    "/letters/{letter_id}/requeue",
    responses=problem_responses(UnknownMessage, UnknownTask, WrongState, QueueFull, Overloaded),
)
async def requeue_dead_letter(
    request: Request, caller: OperateAccess, letter_id: LetterId
) -> dict[str, object]:
    """Push one dead message again, to the end of its partition, for the group that gave up on it."""
    source = get_services(request).broker.dead_letters.source_of_letter(letter_id)
    dead_letter, message_id, message_offset = await source.requeue(caller.environment, letter_id)
    response: dict[str, object] = {
        "letterId": letter_id,
        "queue": dead_letter.queue,
        "requeueOf": dead_letter.transaction_id,
    }
    if message_id is not None:
        response |= {
            "partition": dead_letter.partition,
            "partitionId": str(dead_letter.partition_id),
            "consumerGroup": dead_letter.group,
            "messageId": str(message_id),
            "transactionId": str(message_id),
            "offset": message_offset,
        }
    audit_change(request, before=summarize_dead_letter(dead_letter), after=response)
    await annotate_single_requeue(request, caller, dead_letter.queue)
    return {"success": True, **response}
