"""Types of run queues: tasks, leases, outcomes and states.

All are frozen. Times are milliseconds since the epoch by the clock of Redis, never by that of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import PenstockError
from penstock.model import Scope


class TaskState(StrEnum):
    """State of a stored task. An acked or expired task is deleted."""

    DELAYED = "delayed"
    ELIGIBLE = "eligible"
    RUNNING = "running"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue.

    `ttl_ms`: the task expires if it has not started by then. `idempotency_key`: while the key is
    remembered, a second task with the same key is not added to the queue. A larger `priority` runs first,
    from 0 to 9.
    """

    payload: bytes = b""
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int | None = None
    idempotency_key: str | None = None
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """Id of an enqueued task. `duplicate`: the id belongs to the first task with this idempotency key."""

    id: str
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to ack a task: the task's id and the token of this attempt (below 2**53)."""

    id: str
    token: int


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task leased to a worker until `deadline_ms`, unless the worker sends heartbeats."""

    id: str
    scope: Scope
    queue: str
    token: int
    payload: bytes
    attempt: int
    max_attempts: int
    priority: int
    enqueued_ms: int
    started_ms: int
    deadline_ms: int
    traceparent: str | None = None
    """The trace context in which the task was enqueued."""

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.token)


@dataclass(frozen=True, slots=True)
class Task:
    """A stored task.

    `due_ms`: when the state changes by time alone (the task becomes eligible, expires or loses its lease).
    `attempts` counts leases. `error` is that of the last failed attempt. The token of a lease is not
    included.
    """

    id: str
    queue: str
    state: TaskState
    priority: int
    attempts: int
    max_attempts: int
    enqueued_ms: int
    eligible_ms: int
    started_ms: int | None
    due_ms: int | None
    ttl_ms: int | None
    worker: str
    error: str
    dead_ms: int | None
    payload: bytes
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class TaskChange:
    """State of one task after a call; `state` is None if the task is finished and deleted."""

    id: str
    state: TaskState | None
    due_ms: int | None = None


TaskOutcome = TaskChange | PenstockError
"""Result for one item of a call for many. LeaseLost and UnknownTask concern that item alone."""


@dataclass(frozen=True, slots=True)
class Nack:
    """A failed attempt: retried with backoff, retried after `delay_ms`, or not retried (`retry=False`)."""

    lease: Lease
    error: str = ""
    retry: bool = True
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """State of a run queue.

    `limit`: None if the queue has no limit of its own. `totals`: events since the queue was created, by the
    names of the metric's counters.
    """

    queue: str
    eligible: int
    delayed: int
    running: int
    dead: int
    limit: int | None
    paused: bool
    oldest_age_ms: int
    totals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EnvironmentState:
    """State of all run queues of an environment.

    Together they run at most `limit` × `burst` tasks; a single queue runs at most `limit`.
    """

    queues: int
    eligible: int
    delayed: int
    running: int
    limit: int | None
    burst: float
    oldest_age_ms: int


@dataclass(frozen=True, slots=True)
class DeadTaskPage:
    """A page of dead tasks, oldest first. `next` is the cursor of the next page; None at the end."""

    tasks: tuple[Task, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Number of tasks that a sweep changed; `next_ms`: ms until the next task is due, None if none is."""

    promoted: int = 0
    released: int = 0
    dead: int = 0
    expired: int = 0
    next_ms: int | None = None
