"""Bodies of the run queues' routes, read and written without building dictionaries.

What does not fit is refused by name and place, and so is a field nobody knows: a misspelt `delayMs` must not
run a task at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from penstock.clock import iso, to_utc
from penstock.errors import InvalidRequest, PenstockError
from penstock.runqueue.task_model import (
    HIGHEST_PRIORITY,
    LARGEST_LIMIT,
    LONGEST_DELAY_MS,
    LONGEST_NAME,
    MOST_ATTEMPTS,
    Enqueued,
    Lease,
    Nack,
    NewTask,
    Outcome,
    RunningTask,
    Settled,
    Task,
)

MOST_TASKS = 10_000
MOST_DEQUEUED = 1_000
LONGEST_WAIT_MS = 300_000
LARGEST_TOKEN = 2**53

DelayMs = Annotated[int, Meta(ge=0, le=LONGEST_DELAY_MS)]
VisibilityMs = Annotated[int, Meta(ge=100, le=86_400_000)]
Token = Annotated[int, Meta(ge=0, le=LARGEST_TOKEN)]
Key = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Ids = Annotated[list[str], Meta(min_length=1, max_length=MOST_TASKS)]


class TaskBody(Struct, forbid_unknown_fields=True):
    payload: Raw
    priority: Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] = 0
    delayMs: DelayMs = 0
    ttlMs: Annotated[int, Meta(ge=1, le=LONGEST_DELAY_MS)] | None = None
    idempotencyKey: Key | None = None
    maxAttempts: Annotated[int, Meta(ge=1, le=MOST_ATTEMPTS)] = 3


class EnqueueBody(TaskBody, forbid_unknown_fields=True):
    """One task with its fields right here, or `tasks` with many."""

    payload: Raw | UnsetType = UNSET  # type: ignore[assignment]
    tasks: Annotated[list[TaskBody], Meta(min_length=1, max_length=MOST_TASKS)] | UnsetType = UNSET


class DequeueBody(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MOST_DEQUEUED)] = 1
    visibilityMs: VisibilityMs | None = None
    waitMs: Annotated[int, Meta(ge=0, le=LONGEST_WAIT_MS)] = 0
    worker: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""


class AckBody(Struct, forbid_unknown_fields=True):
    token: Token


class NackBody(AckBody, forbid_unknown_fields=True):
    error: str = ""
    retry: bool = True
    delayMs: DelayMs | None = None


class HeartbeatBody(AckBody, forbid_unknown_fields=True):
    visibilityMs: VisibilityMs | None = None


class LeaseItem(AckBody, forbid_unknown_fields=True, kw_only=True):
    id: str


class NackItem(NackBody, forbid_unknown_fields=True, kw_only=True):
    id: str


class LeasesBody(Struct, forbid_unknown_fields=True):
    tasks: Annotated[list[LeaseItem], Meta(max_length=MOST_TASKS)]


class NacksBody(Struct, forbid_unknown_fields=True):
    tasks: Annotated[list[NackItem], Meta(max_length=MOST_TASKS)]


class HeartbeatsBody(LeasesBody, forbid_unknown_fields=True):
    visibilityMs: VisibilityMs | None = None


class LimitsBody(Struct, forbid_unknown_fields=True):
    concurrency: Annotated[int, Meta(ge=1, le=LARGEST_LIMIT)] | None
    """null: no limit; what shall start nothing is paused"""


class EnvironmentLimitsBody(LimitsBody, forbid_unknown_fields=True):
    burst: Annotated[float, Meta(ge=1, le=100)] = 1.0


class DeadBody(Struct, forbid_unknown_fields=True):
    """These, or all of them."""

    ids: Ids | UnsetType = UNSET
    all: bool = False


class EnqueuedTask(Struct):
    id: str
    status: str
    """queued or duplicate"""


class DequeuedTask(Struct):
    id: str
    queue: str
    token: int
    payload: Raw
    attempt: int
    maxAttempts: int
    priority: int
    enqueuedAt: str
    startedAt: str
    heldUntil: str


class EnqueueAnswer(Struct):
    tasks: list[EnqueuedTask]


class DequeueAnswer(Struct):
    tasks: list[DequeuedTask]


class SettledTask(Struct):
    id: str
    state: str | None
    """null when the task is finished and gone"""
    dueAt: str | None


class Outcomes(Struct):
    results: list[dict[str, Any]]


enqueue_body = msgspec.json.Decoder(EnqueueBody)
dequeue_body = msgspec.json.Decoder(DequeueBody)
ack_body = msgspec.json.Decoder(AckBody)
nack_body = msgspec.json.Decoder(NackBody)
heartbeat_body = msgspec.json.Decoder(HeartbeatBody)
leases_body = msgspec.json.Decoder(LeasesBody)
nacks_body = msgspec.json.Decoder(NacksBody)
heartbeats_body = msgspec.json.Decoder(HeartbeatsBody)
limits_body = msgspec.json.Decoder(LimitsBody)
environment_limits_body = msgspec.json.Decoder(EnvironmentLimitsBody)
dead_body = msgspec.json.Decoder(DeadBody)


def new_tasks(body: EnqueueBody) -> list[NewTask]:
    if isinstance(body.tasks, list):
        if body.payload is not UNSET:
            raise InvalidRequest("send one task's payload or tasks, not both", field="tasks")
        return [_new_task(task) for task in body.tasks]
    if body.payload is UNSET:
        raise InvalidRequest("the body has no task: send its payload, or tasks with many", field="payload")
    return [_new_task(body)]


def _new_task(body: TaskBody) -> NewTask:
    return NewTask(
        bytes(body.payload), body.priority, body.delayMs, body.ttlMs, body.idempotencyKey, body.maxAttempts
    )


def enqueued(results: list[Enqueued]) -> EnqueueAnswer:
    return EnqueueAnswer(
        [EnqueuedTask(result.id, "duplicate" if result.duplicate else "queued") for result in results]
    )


def dequeued(tasks: list[RunningTask]) -> DequeueAnswer:
    return DequeueAnswer(
        [
            DequeuedTask(
                task.id,
                task.queue,
                task.token,
                Raw(task.payload or b"null"),
                task.attempt,
                task.max_attempts,
                task.priority,
                at(task.enqueued_ms),
                at(task.started_ms),
                at(task.deadline_ms),
            )
            for task in tasks
        ]
    )


def settled(result: Settled) -> SettledTask:
    return SettledTask(result.id, result.state, moment(result.due_ms))


def outcomes(ids: list[str], results: list[Outcome]) -> Outcomes:
    """One result each, in order; what was refused says why, and changed nothing."""
    return Outcomes([_outcome(task_id, result) for task_id, result in zip(ids, results, strict=True)])


def _outcome(task_id: str, result: Outcome) -> dict[str, Any]:
    if isinstance(result, PenstockError):
        return {"id": task_id, "success": False, "code": result.code, "error": result.detail}
    return {"id": task_id, "success": True, "state": result.state, "dueAt": moment(result.due_ms)}


def described(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "queue": task.queue,
        "state": task.state,
        "priority": task.priority,
        "attempts": task.attempts,
        "maxAttempts": task.max_attempts,
        "enqueuedAt": at(task.enqueued_ms),
        "eligibleAt": at(task.eligible_ms),
        "startedAt": moment(task.started_ms),
        "dueAt": moment(task.due_ms),
        "ttlMs": task.ttl_ms,
        "worker": task.worker,
        "error": task.error,
        "deadAt": moment(task.dead_ms),
        "payload": Raw(task.payload or b"null"),
    }


def leases(body: LeasesBody) -> list[Lease]:
    return [Lease(item.id, item.token) for item in body.tasks]


def nack_of(task_id: str, body: NackBody) -> Nack:
    return Nack(Lease(task_id, body.token), body.error, body.retry, body.delayMs)


def at(ms: int) -> str:
    return iso(to_utc(ms / 1000))


def moment(ms: int | None) -> str | None:
    return None if ms is None else at(ms)
