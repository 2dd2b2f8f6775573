"""Emit the worker metric: one event per second, sent together every fifteen seconds.

The pipeline of an idle platform runs a batch only when its streams have entries, and these events are most
of them. Each event names its own second, so sending them later changes no point of a series.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.self_metrics.minute import WorkerIdentity
from penstock.broker.self_metrics.queue_metrics import QueueTally
from penstock.definitions import WORKER, WORKER_SEND_INTERVAL_S
from penstock.streams.emitter import Emitter

_WIRE_NAMES = {measure.name: measure.wire for measure in (*WORKER.counters, *WORKER.gauges)}


class WorkerEvents:
    """Buffers the events of this process and passes them to the emitter."""

    def __init__(self, emitter: Emitter, identity: WorkerIdentity) -> None:
        self._emitter = emitter
        self._identity = identity
        self._messages = dict.fromkeys(("push_messages", "pop_messages", "ack_messages", "dead_letters"), 0)
        self._events: list[dict[str, str | int]] = []

    def add_tally(self, tally: QueueTally) -> None:
        """Count the messages of a tally in the event of the current second."""
        self._messages["push_messages"] += tally.counters.get("eq", 0)
        self._messages["pop_messages"] += tally.counters.get("dq", 0)
        self._messages["dead_letters"] += tally.counters.get("dl", 0)
        self._messages["ack_messages"] += tally.acked

    def add_second(
        self, now_s: float, counts: Mapping[str, int], gauges: Mapping[str, int], max_loop_lag_s: float
    ) -> None:
        """Add the event of the second that ends now."""
        all_counts = {**counts, **self._messages}
        self._messages = dict.fromkeys(self._messages, 0)
        event: dict[str, str | int] = {
            "host": self._identity.hostname,
            "wrk": str(self._identity.worker),
            "t": int(now_s * 1000),
            "lt": str(round(max_loop_lag_s * 1000)),
        }
        event |= {_WIRE_NAMES[name]: amount for name, amount in all_counts.items() if amount}
        event |= {_WIRE_NAMES[name]: value for name, value in gauges.items()}
        self._events.append(event)
        # All processes send on the same seconds, so that the pipeline finds their events together.
        if int(now_s) % WORKER_SEND_INTERVAL_S == 0 or len(self._events) > WORKER_SEND_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._emitter.emit(WORKER, event, shard_key=self._identity.hostname)
