"""What goes into run queues and what comes out: frozen types, times in ms since the epoch by Redis's clock
(never this machine's)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import PenstockError
from penstock.model import Scope

HIGHEST_PRIORITY = 9
LONGEST_DELAY_MS = 366 * 24 * 3_600_000
MOST_ATTEMPTS = 1_000
LARGEST_LIMIT = 1_000_000
LONGEST_NAME = 255
LONGEST_ERROR = 2_000
"""What is kept of a failed attempt's error, in characters."""


class TaskState(StrEnum):
    """A task is in exactly one of these; an acked or expired task is gone."""

    DELAYED = "delayed"
    ELIGIBLE = "eligible"
    RUNNING = "running"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue.

    `ttl_ms`: it expires when it has not started by then. `idempotency_key`: within a queue, a second task
    with the key is not added while the key is remembered. Larger `priority` first, 0 to 9.
    """

    payload: bytes = b""
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int | None = None
    idempotency_key: str | None = None
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Enqueued:
    """`duplicate`: the id is that of the task that came first with this idempotency key."""

    id: str
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to settle a task: its id, and the token of this one hand-out (below 2**53)."""

    id: str
    token: int


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task handed to a worker, which holds it until `deadline_ms` unless it sends heartbeats."""

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

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.token)


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it is now. `due_ms`: when its state changes on its own (eligible, expired or given up on).

    `attempts` counts hand-outs. `error` is the last failed attempt's. A lease's token is never shown.
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


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one task: `state` after the call, or None when it is finished and gone."""

    id: str
    state: TaskState | None
    due_ms: int | None = None


Outcome = Settled | PenstockError
"""One item's result in a call for many: LeaseLost and UnknownTask concern that item alone."""


@dataclass(frozen=True, slots=True)
class Nack:
    """A failed attempt. It is retried with backoff, after `delay_ms` if given, or never (`retry=False`)."""

    lease: Lease
    error: str = ""
    retry: bool = True
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A run queue now. `limit`: None means no limit of its own. `counted`: what happened to its tasks since
    it was made, by the names of the metric's counters."""

    queue: str
    eligible: int
    delayed: int
    running: int
    dead: int
    limit: int | None
    paused: bool
    oldest_age_ms: int
    counted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EnvironmentState:
    """All run queues of an environment. Together they run at most `limit` × `burst` tasks, and one alone
    at most `limit`."""

    queues: int
    eligible: int
    delayed: int
    running: int
    limit: int | None
    burst: float
    oldest_age_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A page, oldest first. `next` goes on after it; None at the end."""

    tasks: tuple[Task, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, and in how many ms there is something to do again (None: nothing in sight)."""

    promoted: int = 0
    released: int = 0
    dead: int = 0
    expired: int = 0
    next_ms: int | None = None
