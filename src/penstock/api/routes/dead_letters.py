"""What groups gave up on: listed, searched, counted, grouped by error, requeued and deleted one by one."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

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
from penstock.clock import iso
from penstock.durable.dead_letters.dead_letter_store import (
    COUNT_UP_TO,
    DeadLetterCursor,
    DeadLetterFilter,
    DeadLetterPage,
)
from penstock.errors import InvalidRequest
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/dlq", tags=["dead letters"])

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LetterId = Annotated[
    str,
    Path(
        pattern="^([1-9][0-9]{0,18}|[0-9a-f-]{32,36}-[0-9]{1,4})$",
        description="letterId, as lists of dead letters tell it",
    ),
]


@router.get("")
async def list_dead_letters(
    request: Request,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    partition: Partition | None = None,
    start: Timestamp | None = Query(None, alias="from", description="failed then or later"),
    end: Timestamp | None = Query(None, alias="to", description="failed before then"),
    error: Text = None,
    error_group: uuid.UUID | None = Query(None, alias="errorGroup", description="as /dlq/groups tells it"),
    payload: Text = None,
    cursor: str | None = Query(None, description="nextCursor of the page before", max_length=60),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """A page of dead letters with their payloads, the latest first.

    `error` is a part of the error in any case, `payload` a part of the payload; those of encrypted queues
    never match. With such a text, at most 10,000 letters of each queue are looked at; `nextCursor` goes on
    behind them.
    """
    get_guards(request).check(request, remote=True)
    services = get_services(request)
    which = DeadLetterFilter(queue, group, partition, start, end, error or None, error_group, payload or None)
    if (tasks := await services.broker.dead_letter_catalog.run_queue_tasks(DEFAULT_SCOPE, queue)) is not None:
        found = await tasks.find(DEFAULT_SCOPE, which, limit=limit, after=cursor)
        return json_response(
            {
                "messages": [dead_task_to_dict(task) for task in found.tasks],
                "total": None,
                "totalIsExact": False,
                "nextCursor": found.next,
                "pagination": {"limit": limit, "offset": 0},
            }
        )
    before = _before(cursor)
    page = await services.broker.store.dead_letters.read_page(
        DEFAULT_SCOPE, which, limit=limit, offset=offset, before=before
    )
    total = None if which.searches else await services.broker.store.dead_letters.count(DEFAULT_SCOPE, which)
    return json_response(
        {
            "messages": [dead_letter_to_dict(services, row) for row in page.rows],
            "total": total,
            "totalIsExact": which.is_counted or (total is not None and total < COUNT_UP_TO),
            "nextCursor": _next(page, limit),
            "pagination": {"limit": limit, "offset": offset},
        }
    )


@router.get("/status")
async def dead_status(
    request: Request,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    limit: Limit = 1_000,
    offset: Offset = 0,
) -> dict[str, Any]:
    """How many dead letters each queue and group has, and since when the oldest is dead."""
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
async def error_groups(
    request: Request,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    hours: int = Query(24, ge=1, le=168, description="how far the trend goes back"),
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Dead letters by what they died of, without what differs from one to the next; the most frequent first.

    `trend` has the letters that are dead now by the hour in which they died, the running hour last.
    """
    get_guards(request).check(request, remote=True)
    services = get_services(request)
    if (
        queue is not None
        and (tasks := await services.broker.dead_letter_catalog.run_queue_tasks(DEFAULT_SCOPE, queue))
        is not None
    ):
        found, complete = await tasks.groups(DEFAULT_SCOPE, queue, hours)
        return {
            "groups": [task_error_group_to_dict(one, queue) for one in found[offset : offset + limit]],
            "complete": complete,
            "pagination": {"limit": limit, "offset": offset, "total": len(found)},
        }
    rows = await services.broker.store.dead_letters.list_error_groups(
        DEFAULT_SCOPE,
        queue=queue,
        group=group,
        hours=hours,
        limit=limit,
        offset=offset,
    )
    return {
        "groups": [_error_group(row) for row in rows],
        "complete": True,
        "pagination": {"limit": limit, "offset": offset, "total": rows[0].total if rows else 0},
    }


@router.get("/letters/{letter_id}")
async def get_letter(request: Request, letter_id: LetterId) -> Response:
    """One dead letter with its payload, its error and its lineage."""
    get_guards(request).check(request, remote=True)
    services = get_services(request)
    if is_task_id(letter_id):
        return json_response(
            dead_task_to_dict(
                await services.broker.dead_letter_catalog.dead_tasks.task(DEFAULT_SCOPE, letter_id)
            )
        )
    found = await services.broker.dead_letters.letter(DEFAULT_SCOPE, parse_dead_letter_id(letter_id))
    return json_response(dead_letter_to_dict(services, found))


@router.delete("/letters/{letter_id}")
async def delete_letter(request: Request, letter_id: LetterId) -> dict[str, Any]:
    """Delete one dead letter, whatever its attempts. The message stays in the log as it was."""
    get_guards(request).check(request)
    services = get_services(request)
    if is_task_id(letter_id):
        await services.broker.dead_letter_catalog.change_task(DEFAULT_SCOPE, "purge", letter_id)
    else:
        await services.broker.dead_letters.delete(DEFAULT_SCOPE, parse_dead_letter_id(letter_id))
    return {"success": True, "deleted": 1, "letterId": letter_id}


@router.post("/letters/{letter_id}/requeue")
async def requeue_letter(request: Request, letter_id: LetterId) -> dict[str, Any]:
    """Push one dead message again, to the end of its partition, for the group that had given up on it."""
    get_guards(request).check(request)
    services = get_services(request)
    if is_task_id(letter_id):
        task = await services.broker.dead_letter_catalog.change_task(DEFAULT_SCOPE, "requeue", letter_id)
        return {"success": True, "letterId": letter_id, "queue": task.queue, "requeueOf": letter_id}
    old, new = await services.broker.dead_letters.requeue(DEFAULT_SCOPE, parse_dead_letter_id(letter_id))
    return {
        "success": True,
        "letterId": letter_id,
        "queue": old["queue"],
        "partition": old["partition"],
        "partitionId": str(new["partition_id"]),
        "consumerGroup": old["group_name"],
        "messageId": str(new["message_id"]),
        "transactionId": str(new["message_id"]),
        "offset": new["message_offset"],
        "requeueOf": old["transaction_id"],
    }


def _error_group(row: Any) -> dict[str, Any]:
    return {
        "errorGroup": str(row["error_key"]),
        "error": "no error was given" if row["pattern"] == "" else row["pattern"] or "not grouped yet",
        "deadLetters": row["messages"],
        "queues": row["queues"] or [],
        "consumerGroups": [name for name in row["groups"] or [] if name is not None],
        "firstFailedAt": iso_or_none(row["first_at"]),
        "lastFailedAt": iso_or_none(row["last_at"]),
        "trend": row["hours"],
        "example": row["example"],
    }


def _next(page: DeadLetterPage, limit: int) -> str | None:
    if len(page.rows) == limit:
        last = page.rows[-1]
        return _cursor(DeadLetterCursor(last["failed_at"], last["id"]))
    return _cursor(page.looked_to) if page.looked_to else None


def _cursor(before: DeadLetterCursor) -> str:
    return f"{(before.failed_at - EPOCH) // timedelta(microseconds=1)}.{before.letter_id}"


def _before(cursor: str | None) -> DeadLetterCursor | None:
    if cursor is None:
        return None
    moment, _, letter_id = cursor.partition(".")
    try:
        found = DeadLetterCursor(EPOCH + timedelta(microseconds=int(moment)), int(letter_id))
        if 0 <= found.letter_id <= MAX_ID:
            return found
    except (ValueError, OverflowError):
        pass  # told below
    raise InvalidRequest("cursor must be the nextCursor of a page before", field="cursor")
