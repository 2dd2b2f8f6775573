"""Samples of queues with a bounded number of labels."""

from __future__ import annotations

from penstock.api.exporter.queue_samples import BoundedQueueSamples
from penstock.runqueue.task_model import QueueState
from penstock.telemetry import OVERFLOW


def test_queues_beyond_the_limit_share_a_label() -> None:
    samples = BoundedQueueSamples(max_labels=3)
    for number in range(5):
        samples.add(f"q{number}", "", number, 1, float(number))
    samples.add("q5", "g", 100, 100, 100.0)  # the samples of its queue include it
    assert samples.depth == {("q0", ""): 0, ("q1", ""): 1, ("q2", ""): 2, (OVERFLOW, ""): 7}
    assert (samples.inflight[OVERFLOW, ""], samples.age[OVERFLOW, ""]) == (2, 4.0)


def test_run_queues_beyond_the_limit_share_depth_and_delayed() -> None:
    samples = BoundedQueueSamples(max_labels=1)
    for number in range(3):
        samples.add_run_queue(QueueState(f"q{number}", 1, 2 + number, 3, 0, 4, False, 500, {"enqueued": 9}))
    assert samples.depth == {("q0", ""): 1, (OVERFLOW, ""): 2}
    assert samples.delayed == {("q0",): 2, (OVERFLOW,): 7}
    assert (samples.limit, samples.tasks) == ({("q0",): 4}, {("q0", "enqueued"): 9})
