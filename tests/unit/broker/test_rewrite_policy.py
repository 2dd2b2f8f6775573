"""Busy tables are rewritten when they have grown and the horizon stands still."""

from __future__ import annotations

from penstock.broker.table_rewriter import (
    HELD_AFTER_S,
    MAX_LOCKED_SHARE,
    MAX_RETRY_S,
    MIN_RETRY_S,
    RewritePolicy,
)
from penstock.durable.storage.busy_tables import BUSY_TABLES, BusyTable, BusyTableSizes

POSITIONS = BUSY_TABLES[0]
SMALL = 8192


class Scene:
    """A policy, a clock that the test moves, and the sizes of the tables."""

    def __init__(self) -> None:
        self.now = 100.0
        self.policy = RewritePolicy(lambda: self.now)
        self.bytes_by_name = {table.name: SMALL for table in BUSY_TABLES}

    def observe(self, *, xid: int = 7, **bytes_by_name: int) -> list[BusyTable]:
        self.bytes_by_name = self.bytes_by_name | bytes_by_name
        return self.policy.observe(BusyTableSizes(self.bytes_by_name, xid))

    def hold(self) -> None:
        """Let the horizon stand still for long enough."""
        self.observe()
        self.now += HELD_AFTER_S


def test_while_the_horizon_moves_vacuum_does_the_work() -> None:
    scene = Scene()
    for xid in range(5):
        assert scene.observe(xid=xid, positions=100 << 20) == []
        assert not scene.policy.is_urgent
        scene.now += HELD_AFTER_S


def test_a_grown_table_is_rewritten_when_the_horizon_is_held() -> None:
    scene = Scene()
    scene.hold()
    assert scene.observe(positions=POSITIONS.min_growth_bytes) == []
    assert scene.observe(positions=POSITIONS.min_growth_bytes + SMALL) == [POSITIONS]


def test_a_large_table_may_grow_further() -> None:
    scene = Scene()
    scene.hold()
    size = 8 * POSITIONS.min_growth_bytes
    scene.policy.on_rewritten(POSITIONS, size, 0)
    growth = int(POSITIONS.min_growth_ratio * size)
    assert growth > POSITIONS.min_growth_bytes
    assert scene.observe(positions=size + growth) == []
    assert scene.observe(positions=size + growth + SMALL) == [POSITIONS]


def test_rewrites_lock_a_table_for_a_small_share_of_the_time() -> None:
    scene = Scene()
    scene.hold()
    locked_ms = 30.0
    scene.policy.on_rewritten(POSITIONS, SMALL, locked_ms)
    size = 100 * POSITIONS.min_growth_bytes
    assert scene.observe(positions=size) == []
    scene.now += locked_ms / 1000 / MAX_LOCKED_SHARE
    assert scene.observe(positions=size) == [POSITIONS]


def test_postponed_rewrites_are_retried_later_and_later() -> None:
    scene = Scene()
    scene.hold()
    size = 100 * POSITIONS.min_growth_bytes
    pause_s = MIN_RETRY_S
    while pause_s < MAX_RETRY_S:
        scene.policy.on_postponed(POSITIONS)
        scene.now += pause_s - 0.01
        assert scene.observe(positions=size) == []
        scene.now += 0.01
        assert scene.observe(positions=size) == [POSITIONS]
        pause_s *= 2
    scene.policy.on_postponed(POSITIONS)
    scene.now += MAX_RETRY_S
    assert scene.observe(positions=size) == [POSITIONS]


def test_rounds_are_frequent_only_while_a_table_changes_under_a_held_horizon() -> None:
    scene = Scene()
    scene.hold()
    scene.observe(positions=2 * SMALL)
    assert scene.policy.is_urgent
    scene.observe(positions=2 * SMALL)
    assert not scene.policy.is_urgent
