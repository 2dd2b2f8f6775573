"""Tasks and run queues as a client sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

State = Literal["delayed", "eligible", "running", "dead"]


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue. The payload is anything msgspec can write as JSON, dataclasses included."""

    payload: Any
    priority: int = 0
    """0 to 9; larger first."""
    delay_s: float = 0.0
    ttl_s: float | None = None
    """It expires if it has not started by then."""
    idempotency_key: str | None = None
    max_attempts: int | None = None


class EnqueuedTask(Struct, frozen=True):
    id: str
    status: Literal["queued", "duplicate"]
    """`duplicate`: the queue has a task with this idempotency key already, and this is its id."""


class Task(Struct, frozen=True, eq=False, rename="camel"):
    """A task in a worker's hands. Two are the same only if they are the same hand-out."""

    id: str
    queue: str
    token: int
    """What it is settled under: an earlier or later hand-out of the same task has another."""
    payload: Any
    attempt: int
    max_attempts: int
    priority: int
    enqueued_at: datetime
    started_at: datetime
    held_until: datetime

    def into(self, kind: type[T]) -> T:
        """The payload as a dataclass, Struct or any other type; msgspec.ValidationError if it is none."""
        return msgspec.convert(self.payload, kind)


class TaskStatus(Struct, frozen=True, rename="camel"):
    """A task as the broker sees it. `due_at`: when that changes by itself."""

    id: str
    queue: str
    state: State
    priority: int
    attempts: int
    max_attempts: int
    enqueued_at: datetime
    eligible_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    ttl_ms: int | None
    worker: str
    error: str
    dead_at: datetime | None
    payload: Any


class Settled(Struct, frozen=True, rename="camel"):
    """What became of a task: its state, None when it is finished and gone."""

    id: str
    state: State | None = None
    due_at: datetime | None = None


class TaskResult(Struct, frozen=True, rename="camel"):
    """What became of one of many. If it was refused, `code` and `error` say why, and nothing changed."""

    id: str
    success: bool
    state: State | None = None
    due_at: datetime | None = None
    code: str | None = None
    error: str | None = None
    uncertain: bool = False
    """It was refused, but an earlier attempt whose answer was lost may have done it."""


class RunQueue(Struct, frozen=True, rename="camel"):
    """A run queue now. `depth` is what could start, `delayed` what cannot yet; no `concurrency`: no limit."""

    name: str
    depth: int
    delayed: int
    running: int
    dead: int
    concurrency: int | None
    paused: bool
    oldest_age_ms: int


class EnvironmentLimits(Struct, frozen=True, rename="camel"):
    """All run queues of an environment. Together they run at most `concurrency` × `burst` tasks."""

    queues: int
    depth: int
    delayed: int
    running: int
    concurrency: int | None
    burst: float
    oldest_age_ms: int


class DeadTasks(Struct, frozen=True):
    """A page, the oldest first; `next` goes on after it."""

    tasks: Sequence[TaskStatus]
    total: int
    next: str | None
