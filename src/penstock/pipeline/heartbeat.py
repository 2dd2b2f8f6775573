"""Report the state of the pipeline in Redis, every few seconds, even while it is idle."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TypedDict

from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.pipeline.sink.clickhouse_sink import SinkState
from penstock.streams.positions import read_lag, read_stream_state
from penstock.streams.progress import Progress, write_progress


class MetricReport(TypedDict):
    """The report of one metric; the fields mean the same as in `Progress`."""

    query_id: str | None
    batch_id: int
    input_rows_per_s: float
    processed_rows_per_s: float
    batch_ms: float
    entries: int
    lag: dict[str, int | None]
    freshness: float | None
    rejected: int
    lost: int


class Heartbeat:
    """Combines the state of the sinks and of the streams. `entries` starts at 0 after a restart."""

    def __init__(self, redis: Redis, metrics: Mapping[MetricDefinition, SinkState]) -> None:
        self._redis = redis
        self._metrics = metrics
        self._started_at = time.time()
        self._added: dict[str, tuple[float, int]] = {}
        """Per stream: the time of the last report, and the entries ever added by then."""

    def write_report(self, state: str = "running") -> None:
        """Write one report. Raises redis.RedisError when Redis is unreachable."""
        now = time.time()
        reports = {
            definition.name: self._report(definition, sink, now) for definition, sink in self._metrics.items()
        }
        wait_states = [sink.waiting_for for sink in self._metrics.values() if sink.waiting_for]
        newest_times = [report["freshness"] for report in reports.values() if report["freshness"] is not None]
        first = next(iter(reports.values()))
        write_progress(
            self._redis,
            Progress(
                at=now,
                started_at=self._started_at,
                state=wait_states[0] if wait_states else state,
                host=os.uname().nodename,
                pid=os.getpid(),
                query_id=first["query_id"],
                batch_id=first["batch_id"],
                input_rows_per_s=sum(report["input_rows_per_s"] for report in reports.values()),
                processed_rows_per_s=sum(report["processed_rows_per_s"] for report in reports.values()),
                batch_ms=max(report["batch_ms"] for report in reports.values()),
                lag={key: lag for report in reports.values() for key, lag in report["lag"].items()},
                freshness=max(newest_times, default=None),
                rejected=sum(report["rejected"] for report in reports.values()),
                lost=sum(report["lost"] for report in reports.values()),
                metrics={name: dict(report) for name, report in reports.items()},
            ),
        )

    def _report(self, definition: MetricDefinition, sink: SinkState, now: float) -> MetricReport:
        return {
            "query_id": sink.query_id,
            "batch_id": sink.batch_id,
            "input_rows_per_s": round(sum(self._added_per_s(key, now) for key in definition.stream_keys), 1),
            "processed_rows_per_s": round(sink.entries / max(sink.batch_ms, 1) * 1000, 1),
            "batch_ms": round(sink.batch_ms, 1),
            "entries": sink.total_entries,
            "lag": {key: read_lag(self._redis, key) for key in definition.stream_keys},
            "freshness": sink.freshness,
            "rejected": sink.rejected,
            "lost": sink.lost,
        }

    def _added_per_s(self, key: str, now: float) -> float:
        """Return the entries added per second since the last report."""
        state = read_stream_state(self._redis, key)
        added = state.added if state else 0
        previous = self._added.get(key)
        self._added[key] = (now, added)
        if previous is None or now <= previous[0]:
            return 0.0
        return max(0, added - previous[1]) / (now - previous[0])
