"""Decisions from measurements: defer when busy, refuse when full or lagging, without flapping."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.batching import BatchStats
from penstock.broker.overload.load import (
    DEFAULT_THRESHOLDS,
    INTERVAL_S,
    MAX_LOOP_LAG_S,
    Decision,
    LoadMonitor,
    Threshold,
)

EXECUTE, DEFER, REFUSE = Decision
SPIKE_S = 30.0


@dataclass
class FakePool:
    """The part of a database that the load monitor measures."""

    size: int = 10
    busy: int = 0
    waiting: int = 0

    @property
    def connections(self) -> tuple[int, int]:
        return self.size, self.busy


@dataclass
class FakeBatcher:
    """The part of a batcher that the load monitor measures."""

    pending: int = 0
    in_flight: int = 0
    oldest_s: float = 0.0
    stats: BatchStats = field(default_factory=BatchStats)

    def oldest_wait_s(self) -> float:
        return self.oldest_s

    async def drain(self) -> None: ...


class Simulation:
    """A load monitor with a fake pool and fake batchers."""

    def __init__(self, **thresholds: Threshold) -> None:
        self.pool = FakePool()
        self.batchers = {name: FakeBatcher() for name in ("push", "ack", "pop", "spill push", "spill ack")}
        # The fake has what the monitor measures of a database; the monitor is never started.
        self.load = LoadMonitor(self.pool, DEFAULT_THRESHOLDS | thresholds, spike_s=SPIKE_S)  # type: ignore[arg-type]
        self.load.watch(self.batchers)

    def run(self, seconds: float, rate: int = 1_000, batch_s: float = 0.005) -> None:
        """Measure for some simulated time, with this many executed requests per second of every kind."""
        for _ in range(round(seconds / INTERVAL_S)):
            for batcher in self.batchers.values():
                batcher.stats.add(round(rate * INTERVAL_S), round(rate * INTERVAL_S), batch_s)
            self.load.measure(INTERVAL_S)


@pytest.fixture
def simulation() -> Simulation:
    return Simulation()


def test_a_calm_broker_executes(simulation: Simulation) -> None:
    simulation.pool.busy = 10
    simulation.run(5)
    assert [simulation.load.decide(kind) for kind in ("push", "ack", "pop")] == [EXECUTE] * 3
    assert simulation.load.pool.value == pytest.approx(0.5, abs=0.01), "all are busy, no operation waits"


def test_operations_that_wait_for_a_connection_make_each_kind_busy_at_its_own_threshold(
    simulation: Simulation,
) -> None:
    simulation.pool.busy, simulation.pool.waiting = 10, 5
    simulation.run(10)
    assert [simulation.load.decide(kind) for kind in ("push", "ack", "pop")] == [DEFER, EXECUTE, EXECUTE]
    simulation.pool.waiting = 10
    simulation.run(10)
    assert [simulation.load.decide(kind) for kind in ("push", "ack", "pop")] == [DEFER, DEFER, REFUSE]


def test_a_short_peak_does_not_make_a_kind_busy(simulation: Simulation) -> None:
    simulation.pool.busy, simulation.pool.waiting = 10, 10
    simulation.run(2 * INTERVAL_S)
    assert simulation.load.decide("push") is EXECUTE


def test_a_kind_stays_busy_until_the_load_is_well_below_its_threshold(simulation: Simulation) -> None:
    simulation.pool.busy, simulation.pool.waiting = 10, 6
    simulation.run(10)
    assert simulation.load.decide("push") is DEFER
    simulation.pool.waiting = 2
    simulation.run(10)
    assert simulation.load.decide("push") is DEFER, "0.6 is below 0.7, but not by much"
    simulation.pool.busy, simulation.pool.waiting = 4, 0
    simulation.run(10)
    assert simulation.load.decide("push") is EXECUTE


def test_many_pending_requests_alone_are_no_overload(simulation: Simulation) -> None:
    simulation.batchers["push"].pending = 500
    assert simulation.load.decide("push") is EXECUTE


def test_a_long_queue_is_noticed_at_once(simulation: Simulation) -> None:
    simulation.batchers["push"].pending = 10
    simulation.run(10, rate=1_000)
    simulation.batchers["push"].pending = 900
    assert simulation.load.decide("push") is EXECUTE
    simulation.batchers["push"].pending = 1_100
    assert simulation.load.decide("push") is DEFER
    assert simulation.load.decide("ack") is EXECUTE


def test_a_slow_database_is_a_load(simulation: Simulation) -> None:
    simulation.run(10, batch_s=0.9)
    assert simulation.load.decide("push") is DEFER


def test_a_queue_that_does_not_move_is_a_load_before_its_rate_is_known(simulation: Simulation) -> None:
    simulation.batchers["push"].pending, simulation.batchers["push"].oldest_s = 3, 1.5
    simulation.load.measure(INTERVAL_S)
    assert simulation.load.decide("push") is DEFER


def test_full_lanes_refuse_and_report_when_to_retry() -> None:
    simulation = Simulation(push=Threshold(0.7, 100))
    simulation.batchers["push"].pending = 1_100
    simulation.run(1)
    assert simulation.load.decide("push") is DEFER
    simulation.load.add_deferred("push", 100)
    assert simulation.load.decide("push") is REFUSE
    assert simulation.load.retry_after_s("push") == 30, "nothing has been drained yet"
    simulation.load._kinds["push"].drain_rate.value = 10
    assert simulation.load.retry_after_s("push") == pytest.approx(3.0)
    assert simulation.load.estimated_wait_s("push") == pytest.approx(10.1)


def test_a_sustained_overload_refuses_instead_of_deferring(simulation: Simulation) -> None:
    push = simulation.batchers["push"]
    push.pending = 1_100
    simulation.run(10)
    assert simulation.load.decide("push") is DEFER
    simulation.run(SPIKE_S)
    assert simulation.load.decide("push") is REFUSE
    push.pending = 600
    assert simulation.load.decide("push") is EXECUTE, "as many as possible are executed"
    assert simulation.load.to_dict()["operations"]["push"]["state"] == "overloaded"
    push.pending = 0
    simulation.run(3)
    assert not simulation.load.may_defer("push"), "the overload may come back"
    simulation.run(10)
    assert simulation.load.may_defer("push")


def test_slow_deferring_refuses(simulation: Simulation) -> None:
    simulation.batchers["push"].pending = 6_000
    simulation.run(1)
    defer_batcher = simulation.batchers["spill push"]
    defer_batcher.pending, defer_batcher.oldest_s = 10, 1.5
    simulation.load.measure(INTERVAL_S)
    assert simulation.load.decide("push") is REFUSE


def test_a_lagging_event_loop_refuses_everything(simulation: Simulation) -> None:
    for _ in range(5):
        simulation.load.measure(MAX_LOOP_LAG_S * 3)
    assert {simulation.load.decide(kind) for kind in ("push", "ack", "pop")} == {REFUSE}


def test_one_stall_of_the_event_loop_is_no_overload(simulation: Simulation) -> None:
    simulation.load.measure(5.0)
    assert simulation.load.decide("push") is EXECUTE


def test_decisions_are_counted(simulation: Simulation) -> None:
    simulation.load.decide("push")
    status = simulation.load.to_dict()["operations"]["push"]
    assert status["decisions"] == {"execute": 1, "spill": 0, "refuse": 0}
    assert status["state"] == "calm"
