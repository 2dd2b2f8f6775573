"""What the rows of the list of queues say about limits and growth."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.api.live.queue_rows import (
    DEPTH_POINTS,
    Cap,
    QueueRow,
    build_durable_rows,
    build_run_rows,
    find_growth,
)
from penstock.broker.durable_store import ListedQueue
from penstock.runqueue.task_model import EnvironmentState, QueueState
from penstock.warehouse.matrix.queue_activity import EnvironmentActivity, QueueActivity

NOW_S = 1_000_000.0
NO_LIMIT = EnvironmentState(1, 5, 0, 3, None, 1.0, 0)


def run_row(
    *,
    running: int = 3,
    limit: int | None = None,
    environment: EnvironmentState = NO_LIMIT,
    activity: EnvironmentActivity | None = None,
) -> QueueRow:
    state = QueueState("q", 5, 0, running, 0, limit, False, 60_000, {})
    [row] = build_run_rows([state], environment, activity, NOW_S)
    return row


def durable_row(activity: QueueActivity | None, *, age_s: float = 60.0, running: int = 0) -> QueueRow:
    oldest_at = datetime.fromtimestamp(NOW_S - age_s, UTC)
    queue = ListedQueue("q", False, 1, 5, running, oldest_at, 0, None, None, None)
    known = None if activity is None else EnvironmentActivity(int(NOW_S), {"q": activity})
    [row] = build_durable_rows([queue], known, NOW_S)
    return row


def test_a_run_queue_below_all_limits_is_capped_by_nothing() -> None:
    assert run_row(limit=4).cap is None


def test_its_own_limit_comes_before_that_of_the_environment() -> None:
    environment = EnvironmentState(1, 5, 0, 3, 3, 1.0, 0)
    assert run_row(limit=3, environment=environment).cap is Cap.OWN_LIMIT
    assert run_row(limit=4, environment=environment).cap is Cap.ENVIRONMENT_LIMIT


def test_a_queue_may_reach_the_limit_of_the_environment_alone() -> None:
    """With a burst of 2, all run queues together may run 6 tasks, and one of them 3."""
    environment = EnvironmentState(1, 5, 0, 3, 3, 2.0, 0)
    assert run_row(environment=environment).cap is Cap.ENVIRONMENT_LIMIT
    assert run_row(running=2, environment=environment).cap is None


@pytest.mark.parametrize(
    ("activity", "age_s", "running", "expected"),
    [
        (QueueActivity(dequeued=0), 60.0, 0, Cap.NO_CONSUMERS),
        (QueueActivity(dequeued=1), 60.0, 0, None),
        (QueueActivity(dequeued=0), 5.0, 0, None),
        (QueueActivity(dequeued=0), 60.0, 1, None),
        (None, 60.0, 0, None),
    ],
)
def test_a_queue_has_no_consumers_if_work_waits_and_none_is_taken(
    activity: QueueActivity | None, age_s: float, running: int, expected: Cap | None
) -> None:
    assert durable_row(activity, age_s=age_s, running=running).cap is expected


@pytest.mark.parametrize(
    ("depths", "depth", "gained"),
    [
        ({0: 100}, 130, 30),
        ({0: 100}, 115, None),
        ({0: 0}, 9, None),
        ({25: 90}, 100, None),
        ({0: 500, 18: 100, 25: 300}, 400, 300),
        ({}, 1_000, None),
    ],
)
def test_a_backlog_grows_if_it_gained_a_fifth_in_ten_minutes(
    depths: dict[int, int], depth: int, gained: int | None
) -> None:
    queue = QueueActivity(depths=depths)
    growth = find_growth(EnvironmentActivity(int(NOW_S), {"q": queue}), queue, depth)
    assert (None if growth is None else growth.messages) == gained


def test_the_depth_holds_until_the_next_observation() -> None:
    history = durable_row(QueueActivity(depths={3: 7, 10: 9})).depth_history()
    assert history == [None] * 3 + [7] * 7 + [9] * (DEPTH_POINTS - 11) + [5]
    assert durable_row(QueueActivity(), age_s=3600.0).depth_history() == [5] * DEPTH_POINTS
    assert durable_row(None).depth_history() is None


def test_work_that_is_younger_than_the_history_did_not_wait_before() -> None:
    assert durable_row(QueueActivity(), age_s=60.0).depth_history() == [None] * (DEPTH_POINTS - 1) + [5]
