"""Ten times the capacity on a simulated clock: goodput holds, and what is accepted waits briefly."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from penstock.broker.overload.load import DEFAULT_THRESHOLDS, INTERVAL_S, Decision, LoadMonitor
from tests.unit.broker.overload.simulated_batcher import SimulatedBatcher
from tests.unit.broker.overload.test_load import FakeBatcher, FakePool

SERVICE_S, BATCH, PARALLEL = 0.115, 5, 2
"""As in `make bench-overload`: the database is 100 ms away, and five requests fill a batch."""
CAPACITY = PARALLEL * BATCH / SERVICE_S
MAX_ATTEMPTS, BACKOFF_S = 3, 0.5
SPIKE_S, WARM_UP_S, WINDOW_S = 2.0, 8.0, 20.0


class SimulatedLoad:
    """Clients that repeat refused pushes as usual, and a broker that decides about each attempt."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.push = SimulatedBatcher(service_s=SERVICE_S, max_items=BATCH, max_in_flight=PARALLEL)
        self.deferral = SimulatedBatcher(service_s=SERVICE_S, max_items=BATCH, max_in_flight=1)
        self.load = LoadMonitor(FakePool(), DEFAULT_THRESHOLDS, spike_s=SPIKE_S)  # type: ignore[arg-type]
        others = {name: FakeBatcher() for name in ("pop", "ack", "spill ack")}
        self.load.watch({"push": self.push, "spill push": self.deferral, **others})
        self.executed: list[tuple[float, float]] = []
        """When each push was executed, and how long after its arrival."""
        self.deferred: list[float] = []
        self._at(INTERVAL_S, self._measure)

    def run(self, rate: float, seconds: float) -> None:
        """Let pushes arrive at random times, `rate` per second on average."""
        due = 0.0
        while (due := due + self._random.expovariate(rate)) < seconds:
            self._at(due, lambda due=due: self._attempt(due, 1))  # type: ignore[misc]
        while self._events:
            at, _, act = heapq.heappop(self._events)
            if at > seconds:
                return
            for batcher in (self.push, self.deferral):
                batcher.advance(at - batcher.now)
            act()

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), act))

    def _measure(self) -> None:
        self.load.measure(INTERVAL_S)
        self._at(self.push.now + INTERVAL_S, self._measure)

    def _attempt(self, arrived_at: float, attempt: int) -> None:
        decision = self.load.decide("push")
        if decision is Decision.EXECUTE:
            self.push.arrive(lambda: self.executed.append((self.push.now, self.push.now - arrived_at)))
        elif decision is Decision.DEFER:
            self.deferral.arrive(lambda: self.deferred.append(self.deferral.now))
        elif attempt < MAX_ATTEMPTS:
            backoff_s = self._random.uniform(0, BACKOFF_S * 2 ** (attempt - 1))
            retry_at = self.push.now + self.load.retry_after_s("push") + backoff_s
            self._at(retry_at, lambda: self._attempt(arrived_at, attempt + 1))


def test_ten_times_the_capacity_is_executed_at_full_speed_with_a_short_wait() -> None:
    simulated = SimulatedLoad()
    simulated.run(10 * CAPACITY, WARM_UP_S + WINDOW_S)
    in_window = sorted(wait_s for executed_at, wait_s in simulated.executed if executed_at > WARM_UP_S)
    assert len(in_window) / WINDOW_S > 0.97 * CAPACITY
    assert in_window[int(len(in_window) * 0.99)] < 3.0
    assert simulated.deferred, "the spike was deferred"
    assert max(simulated.deferred) < SPIKE_S + 2, "and nothing after it"


def test_the_capacity_itself_is_executed_without_refusals() -> None:
    simulated = SimulatedLoad()
    simulated.run(0.9 * CAPACITY, WINDOW_S)
    decisions = simulated.load.to_dict()["operations"]["push"]["decisions"]
    assert (decisions["spill"], decisions["refuse"]) == (0, 0)
