"""One minute of a broker process: what it did and how it was, and the rows that says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.broker.overload.load import SampleSummary
from penstock.broker.self_metrics.lag import Lag, merged
from penstock.broker.self_metrics.queue_metrics import Tally
from penstock.clock import to_utc
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.telemetry import OVERFLOW

SECONDS: Final = 60

COUNTS: Final = (
    *("push_requests", "push_messages", "pop_requests", "pop_messages", "ack_requests", "ack_messages"),
    *("transaction_requests", "transaction_messages", "database_errors", "dead_letters"),
)
GAUGES: Final = (
    *("busy_connections", "free_connections", "connection_waiters", "pending_requests"),
    *("parked_pops", "spilled", "resident_bytes"),
)
OF_QUEUES: Final = {"push_messages": "eq", "pop_messages": "dq", "completed": "ak", "failed": "nk"} | {
    "dead_letters": "dl",
    "expired": "ex",
}
"""Columns of a queue's row and the counters they come from."""

MOST_QUEUES: Final = 1_000
"""Queues and groups with a row of their own; what others do is put together under one name."""

QueueKey = tuple[Scope, str, str]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process this is."""

    hostname: str
    worker: int
    pid: int
    started_at: float

    def columns(self) -> dict[str, Any]:
        return {
            "hostname": self.hostname,
            "worker": self.worker,
            "pid": self.pid,
            "started_at": to_utc(self.started_at).isoformat(),
        }


@dataclass(slots=True)
class QueueMinute:
    """What happened to one queue and group."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OF_QUEUES, 0))
    lag: Lag = field(default_factory=Lag)


class Minute:
    """Collects from `covered_from` on; nothing in it refers to anything that goes on changing."""

    def __init__(self, at_s: int, covered_from: float) -> None:
        self.at_s = at_s
        self.covered_from = covered_from
        self.covered_to = covered_from
        self.counts = dict.fromkeys(COUNTS, 0)
        self.cpu_s = 0.0
        self.late = SampleSummary()
        self.gauges = {name: SampleSummary() for name in GAUGES}
        self.pending: dict[str, SampleSummary] = {}
        self.queues: dict[QueueKey, QueueMinute] = {}

    @property
    def end_s(self) -> int:
        return self.at_s + SECONDS

    def observe(self, scope: Scope, queue: str, group: str, tally: Tally) -> None:
        """Take note of what happened to a queue and group."""
        key = (scope, queue, group)
        found = self.queues.get(key)
        if found is None:
            if len(self.queues) >= MOST_QUEUES:
                key = (DEFAULT_SCOPE, OVERFLOW, "")
            found = self.queues.setdefault(key, QueueMinute())
        for column, counter in OF_QUEUES.items():
            found.counts[column] += tally.counters.get(counter, 0)
        if tally.waits:
            found.lag.add(tally.waits)
        self.counts["push_messages"] += tally.counters.get("eq", 0)
        self.counts["pop_messages"] += tally.counters.get("dq", 0)
        self.counts["dead_letters"] += tally.counters.get("dl", 0)
        self.counts["ack_messages"] += tally.settled

    def rows(self, identity: Identity) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The process's row, and one per queue and group."""
        key = {"bucket_at": to_utc(self.at_s).isoformat(), **identity.columns()}
        return key | self._row(), [
            {
                **key,
                "organization": scope.organization,
                "project": scope.project,
                "environment": scope.environment,
                "queue": queue,
                "group_name": group,
                **of.counts,
                **_lag_columns([of.lag]),
            }
            for (scope, queue, group), of in self.queues.items()
        ]

    def _row(self) -> dict[str, Any]:
        gauges: dict[str, int] = {}
        for name, seen in self.gauges.items():
            gauges |= {f"{name}_sum": int(seen.total)}
            gauges |= {f"{name}_min": int(seen.lowest), f"{name}_max": int(seen.highest)}
        return {
            "covered_from": to_utc(self.covered_from).isoformat(),
            "covered_to": to_utc(self.covered_to).isoformat(),
            **self.counts,
            "cpu_s": self.cpu_s,
            **_lag_columns([of.lag for of in self.queues.values()]),
            "late_count": self.late.count,
            "late_sum_ms": self.late.total * 1000,
            "late_max_ms": self.late.highest * 1000,
            "samples": self.gauges["busy_connections"].count,
            **gauges,
            "pending": {
                name: {"sum": int(seen.total), "max": int(seen.highest)}
                for name, seen in self.pending.items()
            },
        }


def _lag_columns(lags: list[Lag]) -> dict[str, Any]:
    digest = merged(lags)
    return {
        "lag_count": sum(lag.count for lag in lags),
        "lag_sum_ms": sum(lag.sum_ms for lag in lags),
        "lag_max_ms": max((lag.max_ms for lag in lags), default=0),
        "lag_digest": None if digest is None else f"\\x{digest.to_bytes().hex()}",
    }
