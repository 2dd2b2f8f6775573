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

    ahead: int = 0
    pending: int = 0
    in_flight: int = 1
    max_in_flight: int = 1
    stats: BatchStats = field(default_factory=BatchStats)

    def batches_ahead(self) -> int:
        return self.ahead

    def oldest_batch_s(self) -> float:
        return 0.0

    async def drain(self) -> None: ...


class Simulation:
    """A load monitor with a fake pool and fake batchers, whose batches take 0.1 s."""

    def __init__(self, **thresholds: Threshold) -> None:
        self.pool = FakePool()
        self.batchers = {name: FakeBatcher() for name in ("push", "ack", "pop", "spill push", "spill ack")}
        # The fake has what the monitor measures of a database; the monitor is never started.
        self.load = LoadMonitor(self.pool, DEFAULT_THRESHOLDS | thresholds, spike_s=SPIKE_S)  # type: ignore[arg-type]
        self.load.watch(self.batchers)
        self.run(2)

    def run(self, seconds: float, *, batch_s: float = 0.1, requests: tuple[str, ...] = ()) -> None:
        """Measure for some simulated time, with a request of each of these kinds before each measurement."""
        for _ in range(round(seconds / INTERVAL_S)):
            for kind in requests:
                self.load.decide(kind)
            for batcher in self.batchers.values():
                batcher.stats.add(10, 10, batch_s)
            self.load.measure(INTERVAL_S)


@pytest.fixture
def simulation() -> Simulation:
    return Simulation()


def test_a_calm_broker_executes_however_busy_its_connections_are(simulation: Simulation) -> None:
    simulation.pool.busy, simulation.pool.waiting = 10, 10
    simulation.run(5)
    assert [simulation.load.decide(kind) for kind in ("push", "ack", "pop")] == [EXECUTE] * 3
    assert simulation.load.pool.value == pytest.approx(1.0, abs=0.01)


def test_each_kind_is_busy_from_its_own_threshold(simulation: Simulation) -> None:
    for batcher in simulation.batchers.values():
        batcher.ahead = 9
    simulation.batchers["spill push"].ahead = simulation.batchers["spill ack"].ahead = 0
    simulation.run(10)
    assert [simulation.load.decide(kind) for kind in ("push", "ack", "pop")] == [DEFER, DEFER, EXECUTE]
    simulation.batchers["pop"].ahead = 10
    simulation.run(10)
    assert simulation.load.decide("pop") is REFUSE


def test_a_short_peak_does_not_make_a_kind_busy(simulation: Simulation) -> None:
    simulation.batchers["push"].ahead = 20
    simulation.run(2 * INTERVAL_S)
    simulation.batchers["push"].ahead = 0
    assert simulation.load.decide("push") is EXECUTE


def test_a_kind_stays_busy_until_the_load_is_well_below_its_threshold(simulation: Simulation) -> None:
    push = simulation.batchers["push"]
    push.ahead = 8
    simulation.run(10)
    assert simulation.load.decide("push") is DEFER
    push.ahead = 6
    simulation.run(10)
    assert simulation.load.decide("push") is DEFER, "0.6 is below 0.7, but not by much"
    push.ahead = 4
    simulation.run(10)
    assert simulation.load.decide("push") is EXECUTE


def test_a_long_queue_is_noticed_at_once(simulation: Simulation) -> None:
    simulation.batchers["push"].ahead = 9
    assert simulation.load.decide("push") is EXECUTE
    simulation.batchers["push"].ahead = 11
    assert simulation.load.decide("push") is DEFER
    assert simulation.load.decide("ack") is EXECUTE


def test_a_slow_database_is_a_load(simulation: Simulation) -> None:
    simulation.run(10, batch_s=0.9)
    assert simulation.load.decide("push") is DEFER


def test_full_lanes_refuse_and_report_when_to_retry() -> None:
    simulation = Simulation(push=Threshold(0.7, 100))
    simulation.batchers["push"].ahead = 11
    assert simulation.load.decide("push") is DEFER
    simulation.load.add_deferred("push", 100)
    assert simulation.load.decide("push") is REFUSE
    assert simulation.load.retry_after_s("push") == 30, "nothing has been drained yet"
    simulation.load._kinds["push"].drain_rate.value = 10
    assert simulation.load.retry_after_s("push") == pytest.approx(3.0)
    assert simulation.load.estimated_wait_s("push") == pytest.approx(10.1)


def test_the_time_to_retry_is_the_measured_wait(simulation: Simulation) -> None:
    simulation.batchers["pop"].ahead = 13
    assert simulation.load.decide("pop") is REFUSE
    assert simulation.load.retry_after_s("pop") == pytest.approx(1.3, abs=0.01)


def test_the_time_to_retry_is_at_most_the_queue_timeout(simulation: Simulation) -> None:
    queue_timeout = simulation.load.queue_timeout("push")
    assert queue_timeout is not None
    simulation.batchers["push"].ahead = 130
    assert simulation.load.retry_after_s("push") == queue_timeout.seconds == 2.0


def test_a_sustained_overload_refuses_instead_of_deferring(simulation: Simulation) -> None:
    push = simulation.batchers["push"]
    push.ahead = 11
    simulation.run(SPIKE_S - 1, requests=("push",))
    assert simulation.load.decide("push") is DEFER
    simulation.run(2, requests=("push",))
    assert simulation.load.decide("push") is REFUSE
    push.ahead = 3
    assert simulation.load.decide("push") is REFUSE, "a longer queue adds no throughput"
    push.ahead = 2
    assert simulation.load.decide("push") is EXECUTE, "as many as possible are executed"
    assert simulation.load.to_dict()["operations"]["push"]["state"] == "overloaded"


def test_an_overload_whose_rest_is_refused_goes_on_however_low_the_load_is(simulation: Simulation) -> None:
    push = simulation.batchers["push"]
    push.ahead = 11
    simulation.run(SPIKE_S + 1, requests=("push",))
    push.ahead = 3
    simulation.run(SPIKE_S, requests=("push",))
    assert simulation.load.to_dict()["operations"]["push"]["load"] < 0.4
    assert not simulation.load.may_defer("push")
    push.ahead = 0
    simulation.run(3, requests=("push",))
    assert not simulation.load.may_defer("push"), "the overload may come back"
    simulation.run(10, requests=("push",))
    assert simulation.load.may_defer("push")


def test_in_an_overload_the_next_batch_is_filled_however_slow_the_database_is(simulation: Simulation) -> None:
    push = simulation.batchers["push"]
    push.ahead = 2
    simulation.run(SPIKE_S + 1, batch_s=2.0, requests=("push",))
    assert simulation.load.decide("push") is REFUSE
    push.ahead = 1
    assert simulation.load.decide("push") is EXECUTE


def test_slow_deferring_refuses(simulation: Simulation) -> None:
    simulation.batchers["push"].ahead = simulation.batchers["spill push"].ahead = 11
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


def test_a_threshold_of_0_defers_every_request_until_the_lanes_are_full() -> None:
    simulation = Simulation(push=Threshold(0.0, 2))
    assert [simulation.load.decide("push"), simulation.load.decide("ack")] == [DEFER, EXECUTE]
    simulation.load.add_deferred("push", 2)
    assert simulation.load.decide("push") is REFUSE


def push_verdict(simulation: Simulation) -> tuple[str, str]:
    status = simulation.load.to_dict()["operations"]["push"]
    return status["decision"], status["reason"]


def test_the_status_says_what_happens_to_a_new_request_and_why() -> None:
    simulation = Simulation(push=Threshold(0.7, 100))
    push = simulation.batchers["push"]
    assert push_verdict(simulation) == ("execute", "calm")
    push.ahead = 11
    assert push_verdict(simulation) == ("spill", "busy")
    status = simulation.load.to_dict()["operations"]["push"]
    assert (status["waitMs"], status["batchMs"]) == pytest.approx((1100, 100), rel=0.02)
    simulation.load.add_deferred("push", 100)
    assert push_verdict(simulation) == ("refuse", "lanes_full")
    simulation.load.decide("push")
    simulation.run(1)
    assert push_verdict(simulation) == ("refuse", "sustained_overload")
    assert simulation.load.to_dict()["operations"]["push"]["overloadSeconds"] == pytest.approx(1.0)
    push.ahead = 1
    assert push_verdict(simulation) == ("execute", "next_batch")
    for _ in range(5):
        simulation.load.measure(MAX_LOOP_LAG_S * 3)
    assert push_verdict(simulation) == ("refuse", "event_loop_lags")
    assert sum(simulation.load.to_dict()["operations"]["push"]["decisions"].values()) == 1, "looking is free"
