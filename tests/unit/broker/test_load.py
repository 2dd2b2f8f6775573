"""Decisions from measurements: spilled when busy, refused when full or late, and no flapping in between."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.batching import BatchStats
from penstock.broker.overload.load import DEFAULT_THRESHOLDS, INTERVAL_S, MAX_LOOP_LAG_S, Decision, LoadMonitor, Threshold

EXECUTE, SPILL, REFUSE = Decision
SPIKE_S = 30.0


@dataclass
class Pool:
    """What a load looks at of a database."""

    size: int = 10
    busy: int = 0
    waiting: int = 0

    @property
    def connections(self) -> tuple[int, int]:
        return self.size, self.busy


@dataclass
class Batching:
    """And of a batcher."""

    pending: int = 0
    in_flight: int = 0
    oldest: float = 0.0
    stats: BatchStats = field(default_factory=BatchStats)

    def oldest_wait_s(self) -> float:
        return self.oldest


class Situation:
    def __init__(self, **kinds: Threshold) -> None:
        self.pool = Pool()
        self.batchers = {name: Batching() for name in ("push", "ack", "pop", "spill push", "spill ack")}
        self.load = LoadMonitor(self.pool, {**DEFAULT_THRESHOLDS, **kinds}, spike_s=SPIKE_S)  # type: ignore[arg-type]
        self.load.watch(self.batchers)  # type: ignore[arg-type]

    def lasts(self, seconds: float, rate: int = 1_000, batch_s: float = 0.005) -> None:
        """Let things be as they are for a while, with so many requests a second carried out of every kind."""
        for _ in range(round(seconds / INTERVAL_S)):
            for batcher in self.batchers.values():
                batcher.stats.add(round(rate * INTERVAL_S), round(rate * INTERVAL_S), batch_s)
            self.load.measure(INTERVAL_S)


@pytest.fixture
def situation() -> Situation:
    return Situation()


def test_a_calm_broker_executes(situation: Situation) -> None:
    situation.pool.busy = 10
    situation.lasts(5)
    assert [situation.load.decide(kind) for kind in ("push", "ack", "pop")] == [EXECUTE] * 3
    assert situation.load.pool.value == pytest.approx(0.5, abs=0.01), "all busy, nobody waits"


def test_waiters_make_it_busy_and_each_kind_has_its_own_threshold(situation: Situation) -> None:
    situation.pool.busy, situation.pool.waiting = 10, 5
    situation.lasts(10)
    assert [situation.load.decide(kind) for kind in ("push", "ack", "pop")] == [SPILL, EXECUTE, EXECUTE]
    situation.pool.waiting = 10
    situation.lasts(10)
    assert [situation.load.decide(kind) for kind in ("push", "ack", "pop")] == [SPILL, SPILL, REFUSE]


def test_a_moment_is_not_a_load(situation: Situation) -> None:
    situation.pool.busy, situation.pool.waiting = 10, 10
    situation.lasts(2 * INTERVAL_S)
    assert situation.load.decide("push") is EXECUTE


def test_it_stays_busy_until_it_is_a_good_deal_better(situation: Situation) -> None:
    situation.pool.busy, situation.pool.waiting = 10, 6
    situation.lasts(10)
    assert situation.load.decide("push") is SPILL
    situation.pool.waiting = 2
    situation.lasts(10)
    assert situation.load.decide("push") is SPILL, "0.6 is below 0.7, but not by much"
    situation.pool.busy, situation.pool.waiting = 4, 0
    situation.lasts(10)
    assert situation.load.decide("push") is EXECUTE


def test_the_first_crowd_is_no_overload(situation: Situation) -> None:
    situation.batchers["push"].pending = 500
    assert situation.load.decide("push") is EXECUTE


def test_a_long_line_is_seen_at_once(situation: Situation) -> None:
    situation.batchers["push"].pending = 10
    situation.lasts(10, rate=1_000)
    situation.batchers["push"].pending = 900
    assert situation.load.decide("push") is EXECUTE
    situation.batchers["push"].pending = 1_100
    assert situation.load.decide("push") is SPILL
    assert situation.load.decide("ack") is EXECUTE


def test_a_slow_database_is_a_load(situation: Situation) -> None:
    situation.lasts(10, batch_s=0.9)
    assert situation.load.decide("push") is SPILL


def test_a_line_that_does_not_move_is_a_load_before_any_rate_is_known(situation: Situation) -> None:
    situation.batchers["push"].pending, situation.batchers["push"].oldest = 3, 1.5
    situation.load.measure(INTERVAL_S)
    assert situation.load.decide("push") is SPILL


def test_full_lanes_refuse_and_say_when_to_come_back() -> None:
    situation = Situation(push=Threshold(0.7, 100))
    situation.batchers["push"].pending = 1_100
    situation.lasts(1)
    assert situation.load.decide("push") is SPILL
    situation.load.add_deferred("push", 100)
    assert situation.load.decide("push") is REFUSE
    assert situation.load.retry_after_s("push") == 30, "nothing has been drained yet"
    situation.load._kinds["push"].drain_rate.value = 10
    assert situation.load.retry_after_s("push") == pytest.approx(3.0)
    assert situation.load.estimated_wait_s("push") == pytest.approx(10.1)


def test_an_overload_that_stays_is_not_spilled_for_ever(situation: Situation) -> None:
    push = situation.batchers["push"]
    push.pending = 1_100
    situation.lasts(10)
    assert situation.load.decide("push") is SPILL
    situation.lasts(SPIKE_S)
    assert situation.load.decide("push") is REFUSE
    push.pending = 600
    assert situation.load.decide("push") is EXECUTE, "as much as can be done is"
    assert situation.load.to_dict()["operations"]["push"]["state"] == "overloaded"
    push.pending = 0
    situation.lasts(3)
    assert not situation.load.may_defer("push"), "it may come back"
    situation.lasts(10)
    assert situation.load.may_defer("push")


def test_when_accepting_is_slow_itself_it_refuses(situation: Situation) -> None:
    situation.batchers["push"].pending = 6_000
    situation.lasts(1)
    spill = situation.batchers["spill push"]
    spill.pending, spill.oldest = 10, 1.5
    situation.load.measure(INTERVAL_S)
    assert situation.load.decide("push") is REFUSE


def test_a_late_event_loop_refuses_everything(situation: Situation) -> None:
    for _ in range(5):
        situation.load.measure(MAX_LOOP_LAG_S * 3)
    assert {situation.load.decide(kind) for kind in ("push", "ack", "pop")} == {REFUSE}


def test_one_stall_is_no_overload(situation: Situation) -> None:
    situation.load.measure(5.0)
    assert situation.load.decide("push") is EXECUTE


def test_decisions_are_counted(situation: Situation) -> None:
    situation.load.decide("push")
    described = situation.load.to_dict()["operations"]["push"]
    assert described["decisions"] == {"execute": 1, "spill": 0, "refuse": 0}
    assert described["state"] == "calm"
