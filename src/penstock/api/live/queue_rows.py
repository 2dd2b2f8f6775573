"""The rows of the list of queues: what the servers say about each queue now, and what limits it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.alerts.incidents.cause import MIN_BLOCKED_ATTEMPTS
from penstock.broker.durable_store import ListedQueue
from penstock.model import QUEUE_MODE, QUEUE_MODE_LABEL
from penstock.runqueue.task_model import EnvironmentState, QueueState

if TYPE_CHECKING:
    from penstock.warehouse.matrix.queue_activity import EnvironmentActivity, QueueActivity

NO_CONSUMERS_AFTER_S = 10.0
"""Work that waits shorter than this may just be on its way to a consumer."""

GROWTH_MINUTES = 10
MIN_GROWTH = 10
MIN_GROWTH_SHARE = 0.2
"""A backlog grows if it gained so many messages, and this share of what it had, in GROWTH_MINUTES."""

DEPTH_POINTS = 30
"""Points of a depth history, one per minute."""


class ListedKind(StrEnum):
    DURABLE = "durable"
    RUN = "run"


class Cap(StrEnum):
    """What limits a queue now, in the order of the checks."""

    PAUSED = "paused"
    OWN_LIMIT = "own_limit"
    ENVIRONMENT_LIMIT = "environment_limit"
    NO_CONSUMERS = "no_consumers"
    BLOCKED_PARTITION = "blocked_partition"


@dataclass(frozen=True, slots=True)
class Growth:
    """A backlog that grows: by how many messages in GROWTH_MINUTES, and since when."""

    messages: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue now. What no server could say is None; `is_known` is False if even its state is unknown."""

    name: str
    kind: ListedKind
    is_known: bool = True
    paused: bool | None = None
    depth: int | None = None
    running: int | None = None
    delayed: int | None = None
    limit: int | None = None
    groups: int | None = None
    oldest_s: float | None = None
    """When the oldest waiting message or task became ready, in seconds since the epoch."""
    dead: int | None = None
    cap: Cap | None = None
    cap_detail: str | None = None
    activity: QueueActivity | None = None
    """None if the metrics are unavailable."""
    growth: Growth | None = None
    depths_start_s: float = 0.0
    """The start of the first minute of the depth history."""

    def depth_history(self) -> list[int | None] | None:
        """Return the depth at the end of each of the last DEPTH_POINTS minutes; None without metrics.

        The last one is the depth of now. A queue emits its depth when it changes, so a depth holds until the
        next one. Without any in this time, it has not changed, unless the waiting work is younger.
        """
        if self.activity is None:
            return None
        depths = self.activity.depths
        is_younger = self.oldest_s is not None and self.oldest_s > self.depths_start_s
        depth = None if depths or is_younger else self.depth
        history: list[int | None] = []
        for minute in range(DEPTH_POINTS - 1):
            depth = depths.get(minute, depth)
            history.append(depth)
        return [*history, self.depth]


def build_durable_rows(
    queues: Iterable[ListedQueue], activity: EnvironmentActivity | None, now_s: float
) -> list[QueueRow]:
    """Return the rows of durable queues."""
    rows = []
    for queue in queues:
        queue_activity = None if activity is None else activity.of_queue(queue.queue)
        oldest_s = None if queue.oldest_at is None else queue.oldest_at.timestamp()
        cap, detail = _durable_cap(queue, queue_activity, oldest_s, now_s)
        rows.append(
            QueueRow(
                name=queue.queue,
                kind=ListedKind.DURABLE,
                paused=queue.paused,
                depth=queue.depth,
                running=queue.running,
                groups=queue.groups,
                oldest_s=oldest_s,
                dead=queue.dead,
                cap=cap,
                cap_detail=detail,
                activity=queue_activity,
                growth=find_growth(activity, queue_activity, queue.depth),
                depths_start_s=0.0 if activity is None else activity.depths_start_s,
            )
        )
    return rows


def build_run_rows(
    queues: Iterable[QueueState],
    environment: EnvironmentState,
    activity: EnvironmentActivity | None,
    now_s: float,
) -> list[QueueRow]:
    """Return the rows of run queues."""
    rows = []
    for queue in queues:
        queue_activity = None if activity is None else activity.of_queue(queue.queue)
        cap, detail = _run_cap(queue, environment, queue_activity)
        rows.append(
            QueueRow(
                name=queue.queue,
                kind=ListedKind.RUN,
                paused=queue.paused,
                depth=queue.eligible,
                running=queue.running,
                delayed=queue.delayed,
                limit=queue.limit,
                # Redis says the age. Whole seconds: the time would otherwise differ with every read.
                oldest_s=round(now_s - queue.oldest_age_ms / 1000) if queue.eligible else None,
                dead=queue.dead,
                cap=cap,
                cap_detail=detail,
                activity=queue_activity,
                growth=find_growth(activity, queue_activity, queue.eligible),
                depths_start_s=0.0 if activity is None else activity.depths_start_s,
            )
        )
    return rows


def build_unknown_rows(rows: Iterable[QueueRow], kind: ListedKind) -> list[QueueRow]:
    """Return the queues of a kind without their figures, for when their server is away."""
    return [QueueRow(name=row.name, kind=kind, is_known=False) for row in rows if row.kind is kind]


def find_growth(
    activity: EnvironmentActivity | None, queue: QueueActivity | None, depth: int
) -> Growth | None:
    """Return how a backlog grows, or None if it does not, or the metrics are unavailable."""
    if activity is None or queue is None or not queue.depths or depth < MIN_GROWTH:
        return None
    before = _depth_at(queue.depths, DEPTH_POINTS - 1 - GROWTH_MINUTES)
    gained = depth - before
    if gained < max(MIN_GROWTH, MIN_GROWTH_SHARE * before):
        return None
    lowest = min(queue.depths.values())
    last_low = max(minute for minute, value in queue.depths.items() if value == lowest)
    return Growth(gained, activity.depths_start_s + last_low * 60)


def _depth_at(depths: Mapping[int, int], minute: int) -> int:
    """Return the depth at the end of a minute; before the first observation, that of the first one."""
    observed = next((earlier for earlier in range(minute, -1, -1) if earlier in depths), min(depths))
    return depths[observed]


def _durable_cap(
    queue: ListedQueue, activity: QueueActivity | None, oldest_s: float | None, now_s: float
) -> tuple[Cap | None, str | None]:
    if queue.paused:
        return Cap.PAUSED, "No message is handed out until the queue is resumed."
    waited_s = 0.0 if oldest_s is None else now_s - oldest_s
    if queue.depth and not queue.groups:
        return Cap.NO_CONSUMERS, "No consumer has ever read from it."
    if _lacks_consumers(queue.depth, queue.running, waited_s, activity):
        return Cap.NO_CONSUMERS, "No consumer took a message in the last 10 minutes."
    attempts = queue.blocked_attempts or 0
    if attempts >= MIN_BLOCKED_ATTEMPTS:
        group = QUEUE_MODE_LABEL if queue.blocked_group == QUEUE_MODE else f"group {queue.blocked_group}"
        return (
            Cap.BLOCKED_PARTITION,
            f"The next message of partition {queue.blocked_partition} failed {attempts} times in {group}.",
        )
    return None, None


def _run_cap(
    queue: QueueState, environment: EnvironmentState, activity: QueueActivity | None
) -> tuple[Cap | None, str | None]:
    if queue.paused:
        return Cap.PAUSED, "No task is handed out until the queue is resumed."
    if not queue.eligible:
        return None, None
    if queue.limit is not None and queue.running >= queue.limit:
        return Cap.OWN_LIMIT, f"It runs {queue.running:,} of {queue.limit:,} tasks."
    if environment.limit is not None:
        together = int(environment.limit * environment.burst)
        if environment.running >= together:
            return (
                Cap.ENVIRONMENT_LIMIT,
                f"The run queues of the environment run {environment.running:,} of {together:,} tasks.",
            )
        if queue.running >= environment.limit:
            return (
                Cap.ENVIRONMENT_LIMIT,
                f"It runs {queue.running:,} tasks; the environment allows {environment.limit:,} per queue.",
            )
    if _lacks_consumers(queue.eligible, queue.running, queue.oldest_age_ms / 1000, activity):
        return Cap.NO_CONSUMERS, "No worker took a task in the last 10 minutes."
    return None, None


def _lacks_consumers(depth: int, running: int, waited_s: float, activity: QueueActivity | None) -> bool:
    """Whether work waits that no consumer takes. Unknown without metrics: then the answer is no."""
    if not depth or running or waited_s < NO_CONSUMERS_AFTER_S:
        return False
    return activity is not None and activity.dequeued == 0
