"""How dead letters of both kinds of queues are told: messages in PostgreSQL, tasks in Redis."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from penstock.api.http.parameters import MAX_ID
from penstock.api.http.response import iso_or_none, payload_fields
from penstock.api.services import Services
from penstock.broker.dead_letters.task_letters import DeadTasks, ErrorGroup, died
from penstock.clock import iso, to_utc
from penstock.durable.dead_letters import dead_letter_queries
from penstock.errors import RedisUnavailable, UnknownTask
from penstock.model import DEFAULT_SCOPE, QUEUE_MODE
from penstock.runqueue.task_model import Task

REDIS_S = 1.0
MOST_AGES = 200
"""Run queues whose oldest dead task is looked up: that takes a word with Redis for each."""


class StatusRow(msgspec.Struct, frozen=True):
    queue: str
    kind: str
    group: str | None
    messages: int
    oldest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StatusPage:
    rows: list[StatusRow]
    total: int
    missing: str | None
    """What could not be asked, in words."""


async def status_page(
    services: Services,
    limit: int,
    offset: int,
    *,
    queue: str | None = None,
    group: str | None = None,
    ages: bool = False,
) -> StatusPage:
    """A page of counts: durable queues by name, then run queues. Those are missing without Redis."""
    found, tasks = await asyncio.gather(
        dead_letter_queries.status(
            services.database, DEFAULT_SCOPE, queue=queue, group=group, limit=limit, offset=offset, ages=ages
        ),
        _task_rows(services, queue, ages) if group in (None, QUEUE_MODE) else _nothing(),
    )
    rows = [
        StatusRow(row["queue"], "durable", row["group_name"], row["messages"], row["oldest_at"])
        for row in found
    ]
    total = found[0]["total"] if found else 0
    if not found and offset:
        first = await dead_letter_queries.status(
            services.database, DEFAULT_SCOPE, queue=queue, group=group, limit=1
        )
        total = first[0]["total"] if first else 0
    if tasks is None:
        return StatusPage(rows, total, "run queues: Redis does not answer")
    start = max(0, offset - total)
    rows += tasks[start : start + limit - len(rows)]
    return StatusPage(rows, total + len(tasks), None)


async def _task_rows(services: Services, queue: str | None, ages: bool) -> list[StatusRow] | None:
    """Run queues with dead tasks; None if Redis does not answer."""
    tasks = tasks_of(services)
    try:
        async with asyncio.timeout(REDIS_S):
            states = [state for state in await tasks.counts(DEFAULT_SCOPE) if queue in (None, state.queue)]
            oldest: list[datetime | None] = [None] * len(states)
            for place, state in enumerate(states[: MOST_AGES if ages else 0]):
                oldest[place] = await tasks.oldest(DEFAULT_SCOPE, state.queue)
    except (RedisUnavailable, TimeoutError):
        return None
    return [
        StatusRow(state.queue, "run", QUEUE_MODE, state.dead, died_at)
        for state, died_at in zip(states, oldest, strict=True)
    ]


async def _nothing() -> list[StatusRow]:
    return []


async def run_queue(services: Services, queue: str | None, *, acting: bool = False) -> DeadTasks | None:
    """Where the dead tasks of the queue are, if it is a run queue.

    Durable queues are told without Redis. While it is away no other name is a run queue's to whoever reads;
    who acts gets RedisUnavailable, rather than work on nothing.
    """
    tasks = tasks_of(services)
    if queue is None:
        return None
    try:
        async with asyncio.timeout(REDIS_S):
            return tasks if await tasks.is_run_queue(DEFAULT_SCOPE, queue) else None
    except (RedisUnavailable, TimeoutError):
        if acting:
            raise RedisUnavailable(
                f"{queue!r} is no durable queue, and Redis does not tell whether it is a run queue; try again"
            ) from None
        return None


def tasks_of(services: Services) -> DeadTasks:
    assert services.broker.dead_letters.tasks is not None
    return services.broker.dead_letters.tasks


def is_task(letter_id: str) -> bool:
    return "-" in letter_id


def number(letter_id: str) -> int:
    """The id of a letter of a durable queue; one that is too large is nobody's."""
    return min(int(letter_id), MAX_ID)


async def change_task(services: Services, kind: str, task_id: str, queue: str | None = None) -> Task:
    """Requeue or purge one dead task; UnknownTask if it is not dead, or not of that queue."""
    task = await tasks_of(services).task(DEFAULT_SCOPE, task_id)
    if queue not in (None, task.queue) or not await tasks_of(services).change(
        DEFAULT_SCOPE, kind, task.queue, [task_id]
    ):
        raise UnknownTask(f"there is no dead task {task_id} there", taskId=task_id)
    return task


def task_letter(task: Task) -> dict[str, Any]:
    """A dead task as a dead letter."""
    return {
        "letterId": task.id,
        "kind": "run",
        "id": task.id,
        "transactionId": task.id,
        "partitionId": None,
        "queue": task.queue,
        "partition": None,
        "consumerGroup": QUEUE_MODE,
        "offset": None,
        "traceId": None,
        "errorMessage": task.error,
        "errorGroup": None,
        "retryCount": task.attempts,
        "createdAt": iso(to_utc(task.enqueued_ms / 1000)),
        "failedAt": iso(died(task)),
        "timesDead": None,
        "totalAttempts": task.attempts,
        "firstEnqueuedAt": iso(to_utc(task.enqueued_ms / 1000)),
        "firstTransactionId": task.id,
        "data": msgspec.Raw(task.payload or b"null"),
    }


def task_group(group: ErrorGroup, queue: str) -> dict[str, Any]:
    return {
        "errorGroup": str(group.key),
        "error": group.pattern or "no error was given",
        "deadLetters": group.tasks,
        "queues": [queue],
        "consumerGroups": [QUEUE_MODE],
        "firstFailedAt": iso_or_none(group.first_at),
        "lastFailedAt": iso_or_none(group.last_at),
        "trend": group.hours,
        "example": group.example,
    }


def letter(services: Services, row: Any) -> dict[str, Any]:
    """A dead letter, from a row of `dead_letters_v1`."""
    return {
        "letterId": str(row["id"]),
        "kind": "durable",
        "id": row["message_id"],
        "transactionId": row["transaction_id"],
        "partitionId": str(row["partition_id"]),
        "queue": row["queue"],
        "partition": row["partition"],
        "consumerGroup": row["group_name"],
        "offset": row["message_offset"],
        "traceId": row["trace_id"],
        "errorMessage": row["error"],
        "errorGroup": row["error_key"],
        "retryCount": row["attempts"],
        "createdAt": iso(row["created_at"]),
        "failedAt": iso(row["failed_at"]),
        "timesDead": row["deaths"],
        "totalAttempts": row["earlier_attempts"] + row["attempts"],
        "firstEnqueuedAt": iso(row["first_created_at"] or row["created_at"]),
        "firstTransactionId": row["first_transaction_id"] or row["transaction_id"],
        **payload_fields(services.broker.message_actions.decrypt(row["payload"])),
    }
