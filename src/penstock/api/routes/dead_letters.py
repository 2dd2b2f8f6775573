"""Routes that list, search, count and group dead letters, and requeue or delete single ones."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.auth import get_guards
from penstock.api.http.parameters import MAX_ID, Group, Limit, Offset, Partition, Queue, Text, Timestamp
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.schemas.dead_letter_views import (
    dead_letter_to_dict,
    dead_task_to_dict,
    is_task_id,
    parse_dead_letter_id,
    task_error_group_to_dict,
)
from penstock.api.services import get_services
from penstock.broker.durable_store import (
    MAX_COUNT,
    DeadLetterCursor,
    DeadLetterErrorGroup,
    DeadLetterFilter,
    DeadLetterPage,
)
from penstock.clock import iso
from penstock.errors import InvalidRequest
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/dlq", tags=["dead letters"])

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LetterId = Annotated[
    str,
    Path(
        pattern="^([1-9][0-9]{0,18}|[0-9a-f-]{32,36}-[0-9]{1,4})$",
        description="letterId, as lists of dead letters return it",
    ),
]


@router.get("")
async def list_dead_letters(
    request: Request,
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
    get_guards(request).check(request, remote=True)
    services = get_services(request)
    selection = DeadLetterFilter(
        queue, group, partition, start, end, error or None, error_group, payload or None
    )
    tasks = await services.broker.dead_letter_catalog.run_queue_tasks(DEFAULT_SCOPE, queue)
    if tasks is not None:
        task_page = await tasks.search(DEFAULT_SCOPE, selection, limit=limit, after=cursor)
        return json_response(
            {
                "messages": [dead_task_to_dict(task) for task in task_page.tasks],
                "total": None,
                "totalIsExact": False,
                "nextCursor": task_page.next,
                "pagination": {"limit": limit, "offset": 0},
            }
        )
    store = services.broker.store.dead_letters
    page = await store.read_page(
        DEFAULT_SCOPE, selection, limit=limit, offset=offset, before=_parse_cursor(cursor)
    )
    total = None if selection.needs_scan else await store.count(DEFAULT_SCOPE, selection)
    return json_response(
        {
            "messages": [dead_letter_to_dict(services, dead_letter) for dead_letter in page.dead_letters],
            "total": total,
            "totalIsExact": selection.has_exact_count or (total is not None and total < MAX_COUNT),
            "nextCursor": _next_cursor(page, limit),
            "pagination": {"limit": limit, "offset": offset},
        }
    )


@router.get("/status")
async def count_dead_letters(
    request: Request,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    limit: Limit = 1_000,
    offset: Offset = 0,
) -> dict[str, object]:
    """Count the dead letters of each queue and group, with the time when the oldest failed."""
    get_guards(request).check(request, remote=True)
    page = await get_services(request).broker.dead_letter_catalog.count_page(
        DEFAULT_SCOPE, limit, offset, queue=queue, group=group, ages=True
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


@router.get("/groups")
async def list_error_groups(
    request: Request,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    hours: int = Query(24, ge=1, le=168, description="length of the trend in hours"),
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, object]:
    """Group dead letters by error, without the parts that differ from one error to the next.

    The most frequent error comes first. `trend` counts the present dead letters by the hour in which they
    failed, the current hour last.
    """
    get_guards(request).check(request, remote=True)
    broker = get_services(request).broker
    if queue is not None:
        tasks = await broker.dead_letter_catalog.run_queue_tasks(DEFAULT_SCOPE, queue)
        if tasks is not None:
            task_groups, is_complete = await tasks.list_error_groups(DEFAULT_SCOPE, queue, hours)
            return {
                "groups": [
                    task_error_group_to_dict(task_group, queue)
                    for task_group in task_groups[offset : offset + limit]
                ],
                "complete": is_complete,
                "pagination": {"limit": limit, "offset": offset, "total": len(task_groups)},
            }
    error_groups = await broker.store.dead_letters.list_error_groups(
        DEFAULT_SCOPE, queue=queue, group=group, hours=hours, limit=limit, offset=offset
    )
    return {
        "groups": [_error_group_to_dict(error_group) for error_group in error_groups],
        "complete": True,
        "pagination": {
            "limit": limit,
            "offset": offset,
            "total": error_groups[0].total if error_groups else 0,
        },
    }


@router.get("/letters/{letter_id}")
async def get_dead_letter(request: Request, letter_id: LetterId) -> Response:
    """Return one dead letter with its payload, its error and its history."""
    get_guards(request).check(request, remote=True)
    services = get_services(request)
    if is_task_id(letter_id):
        tasks = services.broker.dead_letter_catalog.dead_tasks
        return json_response(dead_task_to_dict(await tasks.get(DEFAULT_SCOPE, letter_id)))
    dead_letter = await services.broker.dead_letters.get(DEFAULT_SCOPE, parse_dead_letter_id(letter_id))
    return json_response(dead_letter_to_dict(services, dead_letter))


@router.delete("/letters/{letter_id}")
async def delete_dead_letter(request: Request, letter_id: LetterId) -> dict[str, object]:
    """Delete one dead letter, whatever its attempts. The message stays in the log."""
    get_guards(request).check(request)
    broker = get_services(request).broker
    if is_task_id(letter_id):
        await broker.dead_letter_catalog.change_task(DEFAULT_SCOPE, "purge", letter_id)
    else:
        await broker.dead_letters.delete(DEFAULT_SCOPE, parse_dead_letter_id(letter_id))
    return {"success": True, "deleted": 1, "letterId": letter_id}


@router.post("/letters/{letter_id}/requeue")
async def requeue_dead_letter(request: Request, letter_id: LetterId) -> dict[str, object]:
    """Push one dead message again, to the end of its partition, for the group that gave up on it."""
    get_guards(request).check(request)
    broker = get_services(request).broker
    if is_task_id(letter_id):
        task = await broker.dead_letter_catalog.change_task(DEFAULT_SCOPE, "requeue", letter_id)
        return {"success": True, "letterId": letter_id, "queue": task.queue, "requeueOf": letter_id}
    dead_letter, requeued = await broker.dead_letters.requeue(DEFAULT_SCOPE, parse_dead_letter_id(letter_id))
    return {
        "success": True,
        "letterId": letter_id,
        "queue": dead_letter.queue,
        "partition": dead_letter.partition,
        "partitionId": str(requeued.partition_id),
        "consumerGroup": dead_letter.group_name,
        "messageId": str(requeued.message_id),
        "transactionId": str(requeued.message_id),
        "offset": requeued.message_offset,
        "requeueOf": dead_letter.transaction_id,
    }


def _error_group_to_dict(group: DeadLetterErrorGroup) -> dict[str, object]:
    return {
        "errorGroup": str(group.error_key),
        "error": "no error was given" if group.pattern == "" else group.pattern or "not grouped yet",
        "deadLetters": group.messages,
        "queues": group.queues or [],
        "consumerGroups": [name for name in group.groups or [] if name is not None],
        "firstFailedAt": iso_or_none(group.first_at),
        "lastFailedAt": iso_or_none(group.last_at),
        "trend": group.hours,
        "example": group.example,
    }


def _next_cursor(page: DeadLetterPage, limit: int) -> str | None:
    if len(page.dead_letters) == limit:
        last = page.dead_letters[-1]
        return _format_cursor(DeadLetterCursor(last.failed_at, last.id))
    return _format_cursor(page.scanned_to) if page.scanned_to else None


def _format_cursor(cursor: DeadLetterCursor) -> str:
    return f"{(cursor.failed_at - EPOCH) // timedelta(microseconds=1)}.{cursor.dead_letter_id}"


def _parse_cursor(text: str | None) -> DeadLetterCursor | None:
    if text is None:
        return None
    microseconds, _, dead_letter_id = text.partition(".")
    try:
        cursor = DeadLetterCursor(EPOCH + timedelta(microseconds=int(microseconds)), int(dead_letter_id))
        if 0 <= cursor.dead_letter_id <= MAX_ID:
            return cursor
    except (ValueError, OverflowError):
        pass  # reported below
    raise InvalidRequest("cursor is not valid. Use the nextCursor of a page.", field="cursor")
