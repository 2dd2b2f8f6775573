"""How many workers a queue needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.scaling.wanted_workers import (
    Basis,
    QueueWork,
    ScalingLimit,
    ScalingTarget,
    WantedWorkers,
    compute_wanted_workers,
)


def compute(
    work: QueueWork, rate: float | None, *, wait_s: float = 10.0, is_rate_known: bool = True, **bounds: int
) -> WantedWorkers:
    target = ScalingTarget(wait_s=wait_s, **bounds)
    return compute_wanted_workers(work, target, rate, is_rate_known=is_rate_known)


def work_of(
    backlog: int, running: int = 0, *, concurrency: int | None = None, partitions: int | None = None
) -> QueueWork:
    return QueueWork(
        backlog=backlog,
        running=running,
        busy_workers=running,
        concurrency=concurrency,
        partitions=partitions,
    )


@pytest.mark.parametrize(
    ("work", "rate", "wanted"),
    [
        (work_of(100), 1.0, 10),
        (work_of(101), 1.0, 11),
        (work_of(80, 20), 1.0, 10),
        (work_of(0, 3), 100.0, 1),
        (work_of(0), 1.0, 0),
        # Work that takes longer than the target: a worker each, and no more.
        (work_of(2, 3), 0.01, 5),
    ],
)
def test_waiting_and_running_work_fits_into_the_wait_target(
    work: QueueWork, rate: float, wanted: int
) -> None:
    assert compute(work, rate).workers == wanted


def test_a_queue_limits_its_workers() -> None:
    assert compute(work_of(100, concurrency=4), 1.0) == WantedWorkers(4, Basis.RATE, ScalingLimit.CONCURRENCY)
    assert compute(work_of(100, partitions=3), 1.0) == WantedWorkers(3, Basis.RATE, ScalingLimit.PARTITIONS)
    paused = QueueWork(backlog=100, running=0, busy_workers=0, paused=True)
    assert compute(paused, 1.0) == WantedWorkers(0, Basis.IDLE, ScalingLimit.PAUSED)


def test_the_bounds_of_the_operator_hold() -> None:
    assert compute(work_of(0), 1.0, min_workers=2).workers == 2
    assert compute(work_of(1000), 1.0, max_workers=7) == WantedWorkers(
        7, Basis.RATE, ScalingLimit.MAX_WORKERS
    )


def test_without_a_rate_one_more_than_the_busy_workers_is_wanted() -> None:
    assert compute(work_of(5), None) == WantedWorkers(1, Basis.BUSY_WORKERS)
    assert compute(work_of(5, 3), None).workers == 4
    assert compute(work_of(0, 3), None).workers == 3


def test_unknown_metrics_change_no_number_of_workers_while_work_waits() -> None:
    assert compute(work_of(5, 3), None, is_rate_known=False) == WantedWorkers(None, Basis.UNKNOWN)
    assert compute(work_of(5, 3), 2.0, is_rate_known=False).workers == 1
    assert compute(work_of(0), None, is_rate_known=False).workers == 0


@given(
    backlog=st.integers(0, 10**6),
    running=st.integers(0, 10**4),
    rate=st.none() | st.floats(0.001, 10**4),
    is_rate_known=st.booleans(),
    paused=st.booleans(),
    limit=st.none() | st.integers(0, 100),
)
def test_something_that_runs_keeps_a_worker(
    backlog: int, running: int, rate: float | None, is_rate_known: bool, paused: bool, limit: int | None
) -> None:
    work = QueueWork(backlog=backlog, running=running, busy_workers=running, paused=paused, concurrency=limit)
    workers = compute(work, rate, is_rate_known=is_rate_known).workers
    assert workers is None or workers >= (1 if running else 0)
    assert workers is None or workers <= running + backlog


@given(arrivals=st.integers(1, 200), rate=st.floats(0.5, 20), start=st.integers(0, 5_000))
def test_the_number_settles_instead_of_growing(arrivals: int, rate: float, start: int) -> None:
    """Workers that follow the answer serve the arrivals, and the wait settles below the target."""
    backlog, workers = float(start), 0
    for _ in range(120):
        running = min(workers, int(backlog))
        wanted = compute(work_of(int(backlog) - running, running), rate).workers
        assert wanted is not None
        workers = wanted
        backlog = max(0.0, backlog + arrivals - workers * rate)
    assert workers <= arrivals / rate * 1.5 + 3
    assert backlog / max(arrivals, 1) <= 10 + 2 * rate
