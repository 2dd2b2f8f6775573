"""The estimated wait follows service times: it is right under load, and never too long on a calm broker."""

from __future__ import annotations

import pytest

from penstock.broker.overload.wait_estimate import WaitEstimate
from tests.unit.broker.overload.simulated_batcher import SimulatedBatcher

TICK_S = 0.1

NO_TRAFFIC: list[float] = []
SEQUENTIAL = [0.021] * 40
"""Seconds between arrivals: each request is sent when the one before it was answered, 20 ms away."""
SLOW = [0.7, 1.3, 0.4, 2.0, 0.9]
QUIET = [*SEQUENTIAL, 10.0]


class Recording:
    """A batcher whose wait is estimated after every tick of a simulated clock."""

    def __init__(self, batcher: SimulatedBatcher) -> None:
        self.batcher = batcher
        self.estimate = WaitEstimate(batcher)

    def advance(self, seconds: float) -> None:
        """Let time pass and measure at every tick."""
        end = self.batcher.now + seconds
        while (next_tick := (int(self.batcher.now / TICK_S + 1e-9) + 1) * TICK_S) <= end:
            self.batcher.advance(next_tick - self.batcher.now)
            self.estimate.measure(TICK_S)
        self.batcher.advance(end - self.batcher.now)

    def replay(self, intervals_s: list[float]) -> None:
        """Let a request arrive before each interval."""
        for interval_s in intervals_s:
            self.batcher.arrive()
            self.advance(interval_s)

    def burst(self, requests: int) -> list[tuple[float, float]]:
        """Let requests arrive at once. Return the estimated and the real wait of each."""
        first = len(self.batcher.waits_s) + self.batcher.pending
        estimates: list[float] = []
        for _ in range(requests):
            estimates.append(self.estimate.wait_s)
            self.batcher.arrive()
        self.advance(60)
        return list(zip(estimates, self.batcher.waits_s[first:], strict=True))


@pytest.mark.parametrize("requests", [50, 200, 1_000, 5_000])
@pytest.mark.parametrize("service_s", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("max_in_flight", [1, 2])
@pytest.mark.parametrize("traffic", [NO_TRAFFIC, SEQUENTIAL, SLOW, QUIET])
def test_a_burst_never_seems_to_wait_a_batch_longer_than_it_does(
    requests: int, service_s: float, max_in_flight: int, traffic: list[float]
) -> None:
    recording = Recording(SimulatedBatcher(service_s=service_s, max_in_flight=max_in_flight))
    recording.replay(traffic)
    for estimated_s, real_s in recording.burst(requests):
        assert estimated_s < real_s + service_s


def test_the_estimate_is_right_while_the_queue_grows() -> None:
    recording = Recording(SimulatedBatcher(service_s=0.05, max_items=10))
    for _ in range(2_000):  # 2.5 times the capacity, which is 400 requests per second
        recording.replay([0.001])
    [(estimated_s, real_s)] = recording.burst(1)
    assert real_s > 2
    assert estimated_s == pytest.approx(real_s, rel=0.1)


def test_a_batch_that_does_not_end_makes_the_wait_grow() -> None:
    recording = Recording(SimulatedBatcher(service_s=0.02))
    recording.replay(SEQUENTIAL)
    recording.batcher.stall()
    for _ in range(3):
        recording.batcher.arrive()
    recording.advance(1)
    earlier_s = recording.estimate.wait_s
    assert earlier_s == pytest.approx(0.5, rel=0.2), (
        "the oldest batch takes 1 s already, one of two ends first"
    )
    recording.advance(1)
    assert recording.estimate.wait_s == pytest.approx(1.0, rel=0.2)


def test_a_lagging_event_loop_does_not_count_as_a_slow_batch() -> None:
    batcher = SimulatedBatcher(service_s=0.02, max_in_flight=1)
    estimate = WaitEstimate(batcher)
    batcher.arrive()
    batcher.stall()  # it has ended, but the event loop has not run since
    batcher.advance(3.0)
    estimate.measure(3.0, loop_lag_s=2.9)
    assert estimate.wait_s <= 0.1 + 1e-9


def test_a_pause_within_an_overload_does_not_make_the_estimate_forget_the_service_time() -> None:
    recording = Recording(SimulatedBatcher(service_s=0.2))
    recording.replay(SEQUENTIAL)
    recording.advance(1.5)
    for _ in range(3):
        recording.batcher.arrive()
    assert recording.estimate.wait_s == pytest.approx(0.1, rel=0.3)


def test_one_slow_batch_is_not_taken_for_the_usual_time() -> None:
    recording = Recording(SimulatedBatcher(service_s=2.0))
    recording.replay([2.1])  # the first batch opens connections
    recording.batcher.service_s = 0.02
    recording.replay(SEQUENTIAL[:10])
    for estimated_s, _ in recording.burst(200):
        assert estimated_s < 0.5
