"""Samples of queues with a bounded number of labels."""

from __future__ import annotations

from penstock.api.exporter.queue_samples import BoundedQueueSamples
from penstock.model import Scope
from penstock.runqueue.task_model import QueueState
from penstock.telemetry import OVERFLOW

OURS, THEIRS = Scope("acme", "shop", "ours"), Scope("acme", "shop", "theirs")


def test_queues_beyond_the_limit_share_a_label_of_their_environment() -> None:
    samples = BoundedQueueSamples(max_labels=3)
    for number in range(5):
        samples.add(OURS, f"q{number}", "", number, 1, float(number))
    samples.add(OURS, "q5", "g", 100, 100, 100.0)  # the samples of its queue include it
    samples.add(THEIRS, "q0", "", 50, 1, None)
    depth = {("q0", ""): 0, ("q1", ""): 1, ("q2", ""): 2, (OVERFLOW, ""): 7}
    assert samples.depth == {
        **{(*OURS, *labels): value for labels, value in depth.items()},
        (*THEIRS, OVERFLOW, ""): 50,
    }
    assert (samples.inflight[*OURS, OVERFLOW, ""], samples.age[*OURS, OVERFLOW, ""]) == (2, 4.0)


def test_run_queues_beyond_the_limit_share_depth_and_delayed() -> None:
    samples = BoundedQueueSamples(max_labels=1)
    for number in range(3):
        state = QueueState(f"q{number}", 1, 2 + number, 3, 0, 4, False, 500, {"enqueued": 9})
        samples.add_run_queue(OURS, state)
    assert samples.depth == {(*OURS, "q0", ""): 1, (*OURS, OVERFLOW, ""): 2}
    assert samples.delayed == {(*OURS, "q0"): 2, (*OURS, OVERFLOW): 7}
    assert (samples.limit, samples.tasks) == ({(*OURS, "q0"): 4}, {(*OURS, "q0", "enqueued"): 9})
