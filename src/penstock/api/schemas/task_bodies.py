"""Request and response bodies of the run queue routes, decoded and encoded without dictionaries.

An invalid value is rejected with its field name, and so is an unknown field: a misspelt `delayMs` must not
run a task at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from penstock.api.http.request_parsing import check_payload
from penstock.api.http.response import PAYLOAD_WITHHELD
from penstock.caller import AccessScope, Caller
from penstock.clock import iso, to_utc
from penstock.errors import InvalidRequest, PenstockError
from penstock.runqueue.limits import (
    MAX_ATTEMPTS,
    MAX_BURST,
    MAX_CONCURRENCY,
    MAX_DELAY_MS,
    MAX_ITEMS_PER_CALL,
    MAX_NAME_LENGTH,
    MAX_PRIORITY,
    MAX_TASKS_PER_DEQUEUE,
    MAX_VISIBILITY_MS,
    MIN_VISIBILITY_MS,
)
from penstock.runqueue.task_model import (
    EnqueueResult,
    Lease,
    Nack,
    NewTask,
    RunningTask,
    Task,
    TaskChange,
    TaskOutcome,
)
from penstock.trace_context import TraceContext, add_context, has_context

MAX_WAIT_MS = 300_000
MAX_TOKEN = 2**53

DelayMs = Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)]
VisibilityMs = Annotated[int, Meta(ge=MIN_VISIBILITY_MS, le=MAX_VISIBILITY_MS)]
Token = Annotated[int, Meta(ge=0, le=MAX_TOKEN)]
IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
# `check_concurrency_limit` refuses 0, because its message says to pause the queue.
Concurrency = Annotated[int, Meta(le=MAX_CONCURRENCY, extra_json_schema={"minimum": 1})]
TaskIds = Annotated[list[str], Meta(min_length=1, max_length=MAX_ITEMS_PER_CALL)]


class TaskBody(Struct, forbid_unknown_fields=True):
    payload: Raw
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] = 0
    delayMs: DelayMs = 0
    ttlMs: Annotated[int, Meta(ge=1, le=MAX_DELAY_MS)] | None = None
    idempotencyKey: IdempotencyKey | None = None
    maxAttempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 3
    traceparent: str | None = None
    """W3C Trace Context of the task; default: that of the request. An invalid one is ignored."""


class EnqueueBody(TaskBody, forbid_unknown_fields=True):
    """The fields of one task, or `tasks` with many."""

    payload: Raw | UnsetType = UNSET  # type: ignore[assignment]
    tasks: Annotated[list[TaskBody], Meta(min_length=1, max_length=MAX_ITEMS_PER_CALL)] | UnsetType = UNSET


class DequeueBody(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_TASKS_PER_DEQUEUE)] = 1
    visibilityMs: VisibilityMs | None = None
    waitMs: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 0
    worker: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] = ""


class TaskLeaseBody(Struct, forbid_unknown_fields=True):
    token: Token


class NackBody(TaskLeaseBody, forbid_unknown_fields=True):
    error: str = ""
    retry: bool = True
    delayMs: DelayMs | None = None


class HeartbeatBody(TaskLeaseBody, forbid_unknown_fields=True):
    visibilityMs: VisibilityMs | None = None


class LeaseItem(TaskLeaseBody, forbid_unknown_fields=True, kw_only=True):
    id: str


class NackItem(NackBody, forbid_unknown_fields=True, kw_only=True):
    id: str


class LeasesBody(Struct, forbid_unknown_fields=True):
    tasks: Annotated[list[LeaseItem], Meta(max_length=MAX_ITEMS_PER_CALL)]


class NacksBody(Struct, forbid_unknown_fields=True):
    tasks: Annotated[list[NackItem], Meta(max_length=MAX_ITEMS_PER_CALL)]


class HeartbeatsBody(LeasesBody, forbid_unknown_fields=True):
    visibilityMs: VisibilityMs | None = None


class LimitsBody(Struct, forbid_unknown_fields=True):
    concurrency: Concurrency | None
    """null: no limit. 0 is refused: pause the queue to start none of its tasks."""


class EnvironmentLimitsBody(LimitsBody, forbid_unknown_fields=True):
    burst: Annotated[float, Meta(ge=1, le=MAX_BURST)] = 1.0


class DeadTasksBody(Struct, forbid_unknown_fields=True):
    """Which dead tasks of a queue: `ids`, or `all`."""

    ids: TaskIds | UnsetType = UNSET
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
    traceparent: str | UnsetType = UNSET
    """The trace context in which the task was enqueued, if it has one"""


class EnqueueResponse(Struct):
    tasks: list[EnqueuedTask]


class DequeueResponse(Struct):
    tasks: list[DequeuedTask]


class TaskChangeResponse(Struct):
    id: str
    state: str | None
    """null when the task is finished and deleted"""
    dueAt: str | None


class ChangedTask(Struct):
    """The result of an item that was executed."""

    id: str
    success: bool
    state: str | None
    dueAt: str | None


class RejectedTask(Struct):
    """The result of an item that was rejected; it changed nothing."""

    id: str
    success: bool
    code: str
    error: str


class TaskResults(Struct):
    results: list[ChangedTask | RejectedTask]


class TaskDetail(Struct):
    id: str
    queue: str
    state: str
    priority: int
    attempts: int
    maxAttempts: int
    enqueuedAt: str
    eligibleAt: str
    startedAt: str | None
    dueAt: str | None
    ttlMs: int | None
    worker: str
    error: str
    deadAt: str | None
    payload: Raw
    payloadProblem: str | UnsetType = UNSET
    """Why `payload` is null although the task may have one."""
    traceparent: str | UnsetType = UNSET


enqueue_decoder = msgspec.json.Decoder(EnqueueBody)
dequeue_decoder = msgspec.json.Decoder(DequeueBody)
lease_decoder = msgspec.json.Decoder(TaskLeaseBody)
nack_decoder = msgspec.json.Decoder(NackBody)
heartbeat_decoder = msgspec.json.Decoder(HeartbeatBody)
leases_decoder = msgspec.json.Decoder(LeasesBody)
nacks_decoder = msgspec.json.Decoder(NacksBody)
heartbeats_decoder = msgspec.json.Decoder(HeartbeatsBody)
limits_decoder = msgspec.json.Decoder(LimitsBody)
environment_limits_decoder = msgspec.json.Decoder(EnvironmentLimitsBody)
dead_tasks_decoder = msgspec.json.Decoder(DeadTasksBody)


def to_new_tasks(body: EnqueueBody) -> list[NewTask]:
    if isinstance(body.tasks, list):
        if body.payload is not UNSET:
            raise InvalidRequest(
                "Send either payload for one task or tasks for many, not both.", field="tasks"
            )
        return [_to_new_task(task) for task in body.tasks]
    if body.payload is UNSET:
        raise InvalidRequest(
            "The body has no task. Send payload for one task or tasks for many.", field="payload"
        )
    return [_to_new_task(body)]


def _to_new_task(body: TaskBody) -> NewTask:
    payload = check_payload(bytes(body.payload))
    context = None if body.traceparent is None else TraceContext.parse(body.traceparent)
    return NewTask(
        payload if context is None else add_context(payload, context),
        body.priority,
        body.delayMs,
        body.ttlMs,
        body.idempotencyKey,
        body.maxAttempts,
    )


def with_trace_context(tasks: list[NewTask], context: TraceContext) -> list[NewTask]:
    """Give tasks without a trace context that of their request."""
    return [
        task if has_context(task.payload) else replace(task, payload=add_context(task.payload, context))
        for task in tasks
    ]


def enqueue_response(results: list[EnqueueResult]) -> EnqueueResponse:
    return EnqueueResponse(
        [EnqueuedTask(result.id, "duplicate" if result.duplicate else "queued") for result in results]
    )


def dequeue_response(tasks: list[RunningTask]) -> DequeueResponse:
    return DequeueResponse(
        [
            DequeuedTask(
                task.id,
                task.queue,
                task.token,
                Raw(task.payload or b"null"),
                task.attempt,
                task.max_attempts,
                task.priority,
                iso_from_ms(task.enqueued_ms),
                iso_from_ms(task.started_ms),
                iso_from_ms(task.deadline_ms),
                UNSET if task.traceparent is None else task.traceparent,
            )
            for task in tasks
        ]
    )


def task_change_response(change: TaskChange) -> TaskChangeResponse:
    return TaskChangeResponse(change.id, change.state, iso_from_ms_or_none(change.due_ms))


def task_results(ids: list[str], outcomes: list[TaskOutcome]) -> TaskResults:
    """One result per id, in order. A rejected item has the reason, and changed nothing."""
    return TaskResults(
        [_task_result(task_id, outcome) for task_id, outcome in zip(ids, outcomes, strict=True)]
    )


def _task_result(task_id: str, outcome: TaskOutcome) -> ChangedTask | RejectedTask:
    if isinstance(outcome, PenstockError):
        return RejectedTask(task_id, False, outcome.code, outcome.detail)
    return ChangedTask(task_id, True, outcome.state, iso_from_ms_or_none(outcome.due_ms))


def task_detail(caller: Caller, task: Task) -> TaskDetail:
    may_read_payload = caller.may(AccessScope.READ_PAYLOAD)
    return TaskDetail(
        id=task.id,
        queue=task.queue,
        state=task.state,
        priority=task.priority,
        attempts=task.attempts,
        maxAttempts=task.max_attempts,
        enqueuedAt=iso_from_ms(task.enqueued_ms),
        eligibleAt=iso_from_ms(task.eligible_ms),
        startedAt=iso_from_ms_or_none(task.started_ms),
        dueAt=iso_from_ms_or_none(task.due_ms),
        ttlMs=task.ttl_ms,
        worker=task.worker,
        error=task.error,
        deadAt=iso_from_ms_or_none(task.dead_ms),
        payload=Raw((task.payload if may_read_payload else None) or b"null"),
        payloadProblem=UNSET if may_read_payload else PAYLOAD_WITHHELD,
        traceparent=UNSET if task.traceparent is None else task.traceparent,
    )


def to_leases(body: LeasesBody) -> list[Lease]:
    return [Lease(item.id, item.token) for item in body.tasks]


def to_nack(task_id: str, body: NackBody) -> Nack:
    return Nack(Lease(task_id, body.token), body.error, body.retry, body.delayMs)


def iso_from_ms(time_ms: int) -> str:
    return iso(to_utc(time_ms / 1000))


def iso_from_ms_or_none(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_from_ms(time_ms)
