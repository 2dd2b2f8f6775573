"""The pipeline's report on itself, written to Redis every few seconds, idle or not."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.pipeline.sink.clickhouse_sink import SinkState
from penstock.streams.positions import read_lag, stream_state
from penstock.streams.progress import Progress, write_progress


class Heartbeat:
    """Puts together what the sinks did and what Redis says about the streams."""

    def __init__(self, redis: Redis, metrics: Mapping[MetricDefinition, SinkState]) -> None:
        self._redis = redis
        self._metrics = metrics
        self._started_at = time.time()
        self._added: dict[str, tuple[float, int]] = {}

    def beat(self, state: str = "running") -> None:
        """Write one report. Raises redis.RedisError when Redis is away."""
        now = time.time()
        reports = {
            definition.name: self._report(definition, sink, now) for definition, sink in self._metrics.items()
        }
        waiting = [sink.waiting for sink in self._metrics.values() if sink.waiting]
        newest = [report["freshness"] for report in reports.values() if report["freshness"] is not None]
        first = next(iter(reports.values()))
        write_progress(
            self._redis,
            Progress(
                at=now,
                started_at=self._started_at,
                state=waiting[0] if waiting else state,
                host=os.uname().nodename,
                pid=os.getpid(),
                query_id=first["query_id"],
                batch_id=first["batch_id"],
                input_rows_per_s=sum(report["input_rows_per_s"] for report in reports.values()),
                processed_rows_per_s=sum(report["processed_rows_per_s"] for report in reports.values()),
                batch_ms=max(report["batch_ms"] for report in reports.values()),
                lag={key: lag for report in reports.values() for key, lag in report["lag"].items()},
                freshness=max(newest, default=None),
                rejected=sum(report["rejected"] for report in reports.values()),
                lost=sum(report["lost"] for report in reports.values()),
                metrics=reports,
            ),
        )

    def _report(self, definition: MetricDefinition, sink: SinkState, now: float) -> dict[str, Any]:
        return {
            "query_id": sink.query_id,
            "batch_id": sink.batch_id,
            "input_rows_per_s": round(sum(self._rate(key, now) for key in definition.stream_keys), 1),
            "processed_rows_per_s": round(sink.entries / max(sink.batch_ms, 1) * 1000, 1),
            "batch_ms": round(sink.batch_ms, 1),
            "entries": sink.total_entries,
            "lag": {key: read_lag(self._redis, key) for key in definition.stream_keys},
            "freshness": sink.freshness,
            "rejected": sink.rejected,
            "lost": sink.lost,
        }

    def _rate(self, key: str, now: float) -> float:
        """Entries added per second since the last report."""
        state = stream_state(self._redis, key)
        added = state.added if state else 0
        before = self._added.get(key)
        self._added[key] = (now, added)
        if before is None or now <= before[0]:
            return 0.0
        return max(0, added - before[1]) / (now - before[0])
