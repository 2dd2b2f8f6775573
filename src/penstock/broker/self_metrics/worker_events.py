"""The worker as a metric of the pipeline: one event per second, sent every five.

A pipeline on a quiet machine works only when there is something in its streams. Sent together, the events
of five seconds wake it once, and each still says of which second it tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.self_metrics.minute import Identity
from penstock.broker.self_metrics.queue_metrics import Tally
from penstock.definitions import WORKER
from penstock.streams.emitter import Emitter

SEND_EVERY_S = 5

_WIRES = {measure.name: measure.wire for measure in (*WORKER.counters, *WORKER.gauges)}


class WorkerEvents:
    def __init__(self, emitter: Emitter, identity: Identity) -> None:
        self._emitter = emitter
        self._identity = identity
        self._messages = dict.fromkeys(("push_messages", "pop_messages", "ack_messages", "dead_letters"), 0)
        self._events: list[dict[str, str | int]] = []

    def observe(self, tally: Tally) -> None:
        """Messages moved since the last event."""
        self._messages["push_messages"] += tally.counters.get("eq", 0)
        self._messages["pop_messages"] += tally.counters.get("dq", 0)
        self._messages["dead_letters"] += tally.counters.get("dl", 0)
        self._messages["ack_messages"] += tally.settled

    def add(self, now_s: float, counted: Mapping[str, int], gauges: Mapping[str, int], late_s: float) -> None:
        """One second is over: what was counted in it, how things are, how late the event loop came at
        worst."""
        counts = {**counted, **self._messages}
        self._messages = dict.fromkeys(self._messages, 0)
        event: dict[str, str | int] = {
            "host": self._identity.hostname,
            "wrk": str(self._identity.worker),
            "t": int(now_s * 1000),
            "lt": str(round(late_s * 1000)),
        }
        event |= {_WIRES[name]: amount for name, amount in counts.items() if amount}
        event |= {_WIRES[name]: value for name, value in gauges.items()}
        self._events.append(event)
        # On the same seconds in all processes, so that the pipeline finds their events together.
        if int(now_s) % SEND_EVERY_S == 0 or len(self._events) > SEND_EVERY_S:
            self.flush()

    def flush(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._emitter.emit(WORKER, event, shard_key=self._identity.hostname)
