"""Compute how many workers a queue needs.

Waiting and running work takes `(running + backlog) ÷ rate` seconds of one worker. So many workers that this
fits into the wait target start the last waiting message in time. With arrivals at a steady rate, the wait
settles at the target by Little's law, and the number does not grow from one answer to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """What a number of workers is computed from."""

    IDLE = "idle"
    RATE = "rate"
    BUSY_WORKERS = "busy_workers"
    UNKNOWN = "unknown"


class ScalingLimit(StrEnum):
    """Why the number of workers is not what the work alone would need."""

    PAUSED = "paused"
    CONCURRENCY = "concurrency"
    PARTITIONS = "partitions"
    MIN_WORKERS = "min_workers"
    MAX_WORKERS = "max_workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWork:
    """The work of a queue for one consumer group, as its server says now."""

    backlog: int
    running: int
    busy_workers: int
    """Running tasks, or leases of the group: each is held by one worker."""
    paused: bool = False
    concurrency: int | None = None
    """How many tasks of a run queue may run at once."""
    partitions: int | None = None
    """Partitions of a durable queue with work: each has one lease of the group at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTarget:
    """What the operator asks for."""

    wait_s: float
    min_workers: int = 0
    max_workers: int | None = None


@dataclass(frozen=True, slots=True)
class WantedWorkers:
    """`workers` is None if the rate is needed but cannot be read: keep the workers that there are."""

    workers: int | None
    basis: Basis
    limited_by: ScalingLimit | None = None


def compute_wanted_workers(
    work: QueueWork, target: ScalingTarget, rate_per_worker: float | None, *, is_rate_known: bool
) -> WantedWorkers:
    """Return the workers that keep the wait target. The rate is in messages per second.

    `is_rate_known` is False if the metrics cannot be read. Without a rate although they can be read, nothing
    has finished yet: one more than the busy workers makes a first measurement possible.
    """
    backlog = 0 if work.paused else work.backlog
    limit = ScalingLimit.PAUSED if work.paused and work.backlog else None
    if not backlog and not work.running:
        return _within_bounds(0, Basis.IDLE, limit, target)
    if rate_per_worker is not None:
        work_s = (work.running + backlog) / rate_per_worker
        workers, basis = math.ceil(work_s / target.wait_s), Basis.RATE
        workers = min(workers, work.busy_workers + backlog)
    elif backlog and not is_rate_known:
        return WantedWorkers(None, Basis.UNKNOWN, limit)
    else:
        workers, basis = work.busy_workers + (1 if backlog else 0), Basis.BUSY_WORKERS
    workers = max(workers, 1)
    for name, maximum in (
        (ScalingLimit.CONCURRENCY, work.concurrency),
        (ScalingLimit.PARTITIONS, work.partitions),
    ):
        if maximum is not None and workers > max(maximum, 1):
            workers, limit = max(maximum, 1), name
    return _within_bounds(workers, basis, limit, target)


def _within_bounds(
    workers: int, basis: Basis, limit: ScalingLimit | None, target: ScalingTarget
) -> WantedWorkers:
    if workers < target.min_workers:
        return WantedWorkers(target.min_workers, basis, ScalingLimit.MIN_WORKERS)
    if target.max_workers is not None and workers > target.max_workers:
        return WantedWorkers(target.max_workers, basis, ScalingLimit.MAX_WORKERS)
    return WantedWorkers(workers, basis, limit)
