"""Tasks, run queues and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

TaskState = Literal["delayed", "eligible", "running", "dead"]


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue. The payload is anything that msgspec can encode as JSON, such as a dataclass."""

    payload: Any
    priority: int = 0
    """0 to 9; larger first."""
    delay_s: float = 0.0
    ttl_s: float | None = None
    """The task expires if it has not started by then."""
    idempotency_key: str | None = None
    max_attempts: int | None = None
    traceparent: str | None = None
    """The trace context of the task (W3C Trace Context). Default: that of the enqueue."""


class EnqueuedTask(Struct, frozen=True):
    id: str
    status: Literal["queued", "duplicate"]
    """`duplicate`: the queue already has a task with this idempotency key; this is its id."""


class StoredTask(Struct, frozen=True, rename="camel"):
    """What a task has in every state."""

    id: str
    queue: str
    payload: Any
    priority: int
    max_attempts: int
    enqueued_at: datetime


class Task(StoredTask, frozen=True, eq=False, rename="camel"):
    """A dequeued task. Two are equal only if they are the same delivery."""

    token: int
    """Proof of the lease: every delivery of a task has another token."""
    attempt: int
    started_at: datetime
    held_until: datetime
    traceparent: str | None = None
    """The trace context in which the task was enqueued."""

    def into(self, kind: type[T]) -> T:
        """Convert the payload to a dataclass, Struct or other type. Raises msgspec.ValidationError."""
        return msgspec.convert(self.payload, kind)


class TaskStatus(StoredTask, frozen=True, rename="camel"):
    """The state of a task in the broker. `due_at`: when it changes without a request."""

    state: TaskState
    attempts: int
    eligible_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    ttl_ms: int | None
    worker: str
    error: str
    dead_at: datetime | None


class Settled(Struct, frozen=True, rename="camel"):
    """The new state of a task; None if it is finished and deleted."""

    id: str
    state: TaskState | None = None
    due_at: datetime | None = None


class TaskResult(Struct, frozen=True, rename="camel"):
    """The result of one task of a batch. A refused request changes nothing; `code` and `error` say why."""

    id: str
    success: bool
    state: TaskState | None = None
    due_at: datetime | None = None
    code: str | None = None
    error: str | None = None
    uncertain: bool = False
    """The request was refused, but an earlier attempt whose response was lost may have succeeded."""


class RunQueue(Struct, frozen=True, rename="camel"):
    """The state of a run queue. `depth` counts eligible tasks; `concurrency` is None without a limit."""

    name: str
    depth: int
    delayed: int
    running: int
    dead: int
    concurrency: int | None
    paused: bool
    oldest_age_ms: int


class EnvironmentLimits(Struct, frozen=True, rename="camel"):
    """The run queues of an environment. Together they run at most `concurrency` × `burst` tasks."""

    queues: int
    depth: int
    delayed: int
    running: int
    concurrency: int | None
    burst: float
    oldest_age_ms: int


class DeadTasks(Struct, frozen=True):
    """A page of dead tasks, oldest first; `next` is the `after` of the next page."""

    tasks: Sequence[TaskStatus]
    total: int
    next: str | None
