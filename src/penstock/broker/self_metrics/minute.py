"""One minute of measurements of a broker process, and the rows to store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.broker.overload.load import SampleSummary
from penstock.broker.self_metrics.lag import LagSummary, merge_digests
from penstock.broker.self_metrics.queue_metrics import QueueTally
from penstock.clock import to_utc
from penstock.model import Scope
from penstock.telemetry import OVERFLOW

MINUTE_S: Final = 60

COUNT_COLUMNS: Final = (
    *("push_requests", "push_messages", "pop_requests", "pop_messages", "ack_requests", "ack_messages"),
    *("transaction_requests", "transaction_messages", "database_errors", "dead_letters"),
)
GAUGE_COLUMNS: Final = (
    *("busy_connections", "free_connections", "connection_waiters", "pending_requests"),
    *("parked_pops", "spilled", "resident_bytes"),
)
QUEUE_COLUMNS: Final = {"push_messages": "eq", "pop_messages": "dq", "completed": "ak", "failed": "nk"} | {
    "released": "rl",
    "dead_letters": "dl",
    "expired": "ex",
}
"""Columns of a queue's row, and the wire names of their counters."""

MAX_QUEUES: Final = 1_000
"""Queues and groups with a row of their own; all others of an environment share one row."""

QueueKey = tuple[Scope, str, str]
"""Scope, queue, group."""

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Identifies this process in its rows and events."""

    hostname: str
    worker: int
    pid: int
    started_at: float

    def to_columns(self) -> Row:
        return {
            "hostname": self.hostname,
            "worker": self.worker,
            "pid": self.pid,
            "started_at": to_utc(self.started_at).isoformat(),
        }


@dataclass(slots=True)
class QueueMinute:
    """The minute of one queue and group."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUE_COLUMNS, 0))
    lag: LagSummary = field(default_factory=LagSummary)


class WorkerMinute:
    """Collects measurements from `covered_from` on. It shares no mutable object with others."""

    def __init__(self, start_s: int, covered_from: float) -> None:
        self.start_s = start_s
        self.covered_from = covered_from
        self.covered_to = covered_from
        self.counts = dict.fromkeys(COUNT_COLUMNS, 0)
        self.cpu_s = 0.0
        self.loop_lag = SampleSummary()
        self.gauges = {name: SampleSummary() for name in GAUGE_COLUMNS}
        self.pending: dict[str, SampleSummary] = {}
        self.queues: dict[QueueKey, QueueMinute] = {}

    @property
    def end_s(self) -> int:
        return self.start_s + MINUTE_S

    def add_tally(self, scope: Scope, queue: str, group: str, tally: QueueTally) -> None:
        key = (scope, queue, group)
        queue_minute = self.queues.get(key)
        if queue_minute is None:
            if len(self.queues) >= MAX_QUEUES:
                key = (scope, OVERFLOW, "")
            queue_minute = self.queues.setdefault(key, QueueMinute())
        for column, counter in QUEUE_COLUMNS.items():
            queue_minute.counts[column] += tally.counters.get(counter, 0)
        if tally.wait_times_ms:
            queue_minute.lag.add(tally.wait_times_ms)
        self.counts["push_messages"] += tally.counters.get("eq", 0)
        self.counts["pop_messages"] += tally.counters.get("dq", 0)
        self.counts["dead_letters"] += tally.counters.get("dl", 0)
        self.counts["ack_messages"] += tally.acked

    def to_rows(self, identity: WorkerIdentity) -> tuple[Row, list[Row]]:
        """Return the row of the process, and one row per queue and group."""
        key = {"bucket_at": to_utc(self.start_s).isoformat(), **identity.to_columns()}
        return key | self._process_columns(), [
            {
                **key,
                "organization": scope.organization,
                "project": scope.project,
                "environment": scope.environment,
                "queue": queue,
                "group_name": group,
                **queue_minute.counts,
                **_lag_columns([queue_minute.lag]),
            }
            for (scope, queue, group), queue_minute in self.queues.items()
        ]

    def _process_columns(self) -> Row:
        gauges: dict[str, int] = {}
        for name, summary in self.gauges.items():
            gauges |= {f"{name}_sum": int(summary.total)}
            gauges |= {f"{name}_min": int(summary.lowest), f"{name}_max": int(summary.highest)}
        return {
            "covered_from": to_utc(self.covered_from).isoformat(),
            "covered_to": to_utc(self.covered_to).isoformat(),
            **self.counts,
            "cpu_s": self.cpu_s,
            **_lag_columns([queue_minute.lag for queue_minute in self.queues.values()]),
            "late_count": self.loop_lag.count,
            "late_sum_ms": self.loop_lag.total * 1000,
            "late_max_ms": self.loop_lag.highest * 1000,
            "samples": self.gauges["busy_connections"].count,
            **gauges,
            "pending": {
                name: {"sum": int(summary.total), "max": int(summary.highest)}
                for name, summary in self.pending.items()
            },
        }


def _lag_columns(summaries: list[LagSummary]) -> Row:
    digest = merge_digests(summaries)
    return {
        "lag_count": sum(summary.count for summary in summaries),
        "lag_sum_ms": sum(summary.sum_ms for summary in summaries),
        "lag_max_ms": max((summary.max_ms for summary in summaries), default=0),
        "lag_digest": None if digest is None else f"\\x{digest.to_bytes().hex()}",
    }
