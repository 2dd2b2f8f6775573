"""The probable cause of an incident, by checks in a fixed order. Nothing here reads a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

OVERLOADED_AFTER_S = 5.0
"""A deferred operation that has waited longer says that PostgreSQL does not keep up."""
HORIZON_HELD_S = 600.0
SPIKE_FACTOR = 3.0
MIN_SPIKE_MESSAGES = 20
DOMINATING_SHARE = 0.5
MIN_ERRORS = 3
MIN_BLOCKED_ATTEMPTS = 2
STALE_LAG_S = 60.0
CONSUMER_WINDOW_MINUTES = 10


class CauseKind(StrEnum):
    """Causes in the order of their checks."""

    PAUSED = "paused"
    LIMIT_REACHED = "limit_reached"
    NO_CONSUMERS = "no_consumers"
    BLOCKED_PARTITION = "blocked_partition"
    ERROR_GROUP = "error_group"
    ENQUEUE_SPIKE = "enqueue_spike"
    DATABASE_OVERLOADED = "database_overloaded"
    VACUUM_HORIZON = "vacuum_horizon"
    PIPELINE_STALE = "pipeline_stale"
    UNKNOWN = "unknown"
    """No check names a cause."""


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """A partition whose next message fails again and again."""

    partition: str
    group: str
    offset: int
    attempts: int
    message_id: str | None


@dataclass(frozen=True, slots=True)
class QueueEvidence:
    """What the servers say about a queue of the incident."""

    queue: str
    paused: bool
    depth: int
    running: int
    limit: int | None = None
    groups: int | None = None
    """Consumer groups; None for a run queue."""
    dequeued: int = 0
    """In the last CONSUMER_WINDOW_MINUTES."""
    enqueued_hour: int = 0
    enqueued_hour_last_week: int = 0
    blocked: BlockedPartition | None = None
    errors: Sequence[tuple[str, int]] = ()
    """Error groups of the last two hours, the most frequent first: pattern and dead letters."""


@dataclass(frozen=True, slots=True)
class PlatformEvidence:
    """What the servers say about themselves and about the environment's run queues together."""

    pipeline_lag_s: float
    pending_operations: int = 0
    oldest_operation_s: float = 0.0
    horizon_holder: str | None = None
    horizon_held_s: float = 0.0
    environment_running: int = 0
    environment_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that names the cause, with the figures that say so."""

    summary: str
    figures: Mapping[str, Any]


Check = Callable[[Sequence[QueueEvidence], PlatformEvidence], Finding | str]
"""Returns a finding, or why the cause is excluded."""


def find_cause(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> dict[str, Any]:
    """Return the first cause whose check names one, and why each other one is excluded."""
    cause: dict[str, Any] | None = None
    excluded: list[dict[str, str]] = []
    for kind, check in CHECKS.items():
        result = check(queues, platform)
        if isinstance(result, str):
            excluded.append({"kind": kind.value, "reason": result})
        elif cause is None:
            cause = {"kind": kind.value, "summary": result.summary, "figures": dict(result.figures)}
    if cause is None:
        cause = {"kind": CauseKind.UNKNOWN.value, "summary": "No known cause applies.", "figures": {}}
    return {**cause, "excluded": excluded}


def _check_paused(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    for queue in queues:
        if queue.paused:
            return Finding(f"{queue.queue} is paused.", {"queue": queue.queue, "waiting": queue.depth})
    return "no queue of the incident is paused"


def _check_limit(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    for queue in queues:
        if queue.limit is not None and queue.running >= queue.limit:
            return Finding(
                f"{queue.queue} runs at its concurrency limit: {queue.running:,} of {queue.limit:,}.",
                {"queue": queue.queue, "running": queue.running, "limit": queue.limit},
            )
    limit, running = platform.environment_limit, platform.environment_running
    if limit is not None and running >= limit and any(queue.groups is None for queue in queues):
        return Finding(
            f"The run queues of the environment run at their limit together: {running:,} of {limit:,.0f}.",
            {"running": running, "limit": limit},
        )
    limits = [f"{queue.queue} runs {queue.running:,} of {queue.limit:,}" for queue in queues if queue.limit]
    return "; ".join(limits) or "the queues have no concurrency limit"


def _check_consumers(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    for queue in queues:
        if queue.depth > 0 and queue.running == 0 and queue.dequeued == 0:
            figures = {"queue": queue.queue, "waiting": queue.depth, "running": 0, "dequeued": 0}
            if queue.groups == 0:
                return Finding(f"No consumer has ever read from {queue.queue}.", figures)
            return Finding(
                f"No consumer took work from {queue.queue} in the last {CONSUMER_WINDOW_MINUTES} min, "
                f"and {queue.depth:,} wait.",
                figures,
            )
    parts = [f"{queue.queue}: {queue.dequeued:,} taken, {queue.running:,} running" for queue in queues]
    return "; ".join(parts) or "the rule belongs to the environment"


def _check_blocked(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    for queue in queues:
        blocked = queue.blocked
        if blocked is not None and blocked.attempts >= MIN_BLOCKED_ATTEMPTS:
            return Finding(
                f"Partition {blocked.partition} of {queue.queue} is blocked by message {blocked.message_id}, "
                f"which failed {blocked.attempts:,} times in group {blocked.group}.",
                {
                    "queue": queue.queue,
                    "partition": blocked.partition,
                    "group": blocked.group,
                    "offset": blocked.offset,
                    "messageId": blocked.message_id,
                    "attempts": blocked.attempts,
                },
            )
    return "no partition waits for a message that failed repeatedly"


def _check_errors(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    for queue in queues:
        total = sum(messages for _, messages in queue.errors)
        if total < MIN_ERRORS:
            continue
        pattern, messages = queue.errors[0]
        if messages / total >= DOMINATING_SHARE:
            return Finding(
                f"{messages:,} of {total:,} dead letters of {queue.queue} in the last two hours have the "
                f"error: {pattern}",
                {"queue": queue.queue, "error": pattern, "deadLetters": messages, "ofDeadLetters": total},
            )
    counts = [f"{queue.queue}: {sum(count for _, count in queue.errors):,}" for queue in queues]
    return f"no error dominates the dead letters of the last two hours ({', '.join(counts) or 'none'})"


def _check_spike(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    reasons = []
    for queue in queues:
        current, before = queue.enqueued_hour, queue.enqueued_hour_last_week
        if before and current >= MIN_SPIKE_MESSAGES and current >= SPIKE_FACTOR * before:
            return Finding(
                f"{queue.queue} got {current:,} in the last hour, ×{current / before:.1f} of the same hour "
                "last week.",
                {"queue": queue.queue, "enqueued": current, "enqueuedLastWeek": before},
            )
        compared = f"{before:,} in the same hour last week" if before else "nothing last week to compare"
        reasons.append(f"{queue.queue} got {current:,} in the last hour, {compared}")
    return "; ".join(reasons) or "the rule belongs to the environment"


def _check_database(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    count, oldest_s = platform.pending_operations, platform.oldest_operation_s
    if count and oldest_s >= OVERLOADED_AFTER_S:
        return Finding(
            f"PostgreSQL is overloaded or was away: {count:,} deferred operations wait, the oldest for "
            f"{oldest_s:,.0f} s.",
            {"deferredOperations": count, "oldestSeconds": round(oldest_s, 1)},
        )
    return f"PostgreSQL answers, and {count:,} deferred operations wait"


def _check_horizon(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    if platform.horizon_holder is not None:
        minutes = platform.horizon_held_s / 60
        return Finding(
            f"The vacuum horizon is held for {minutes:,.0f} min by {platform.horizon_holder}.",
            {"holder": platform.horizon_holder, "seconds": round(platform.horizon_held_s)},
        )
    return f"nothing holds the vacuum horizon for more than {HORIZON_HELD_S / 60:.0f} min"


def _check_pipeline(queues: Sequence[QueueEvidence], platform: PlatformEvidence) -> Finding | str:
    lag_s = platform.pipeline_lag_s
    if lag_s >= STALE_LAG_S:
        return Finding(f"The metrics are {lag_s:,.0f} s behind.", {"lagSeconds": round(lag_s, 1)})
    return f"the metrics are {lag_s:,.0f} s behind"


CHECKS: dict[CauseKind, Check] = {
    CauseKind.PAUSED: _check_paused,
    CauseKind.LIMIT_REACHED: _check_limit,
    CauseKind.NO_CONSUMERS: _check_consumers,
    CauseKind.BLOCKED_PARTITION: _check_blocked,
    CauseKind.ERROR_GROUP: _check_errors,
    CauseKind.ENQUEUE_SPIKE: _check_spike,
    CauseKind.DATABASE_OVERLOADED: _check_database,
    CauseKind.VACUUM_HORIZON: _check_horizon,
    CauseKind.PIPELINE_STALE: _check_pipeline,
}
"""The checks, in their order."""
