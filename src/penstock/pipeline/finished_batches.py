"""Describe finished batches: what the sink measured, and what Spark measured around the sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from penstock.pipeline.sink.clickhouse_sink import SinkBatch, SinkState
from penstock.streams.batch_history import BatchRecord

_PLAN = ("latestOffset", "getBatch", "queryPlanning")
_CHECKPOINT = ("walCommit", "commitOffsets")
"""Spark's names of durations."""


def take_finished_batches(state: SinkState, progress: Iterable[Mapping[str, Any]]) -> list[BatchRecord]:
    """Remove the batches that are over from the state, and describe them, the oldest first.

    Spark reports its progress shortly after the sink has finished, so the newest batch may stay until the
    next call. Spark keeps few reports: a batch whose report is gone has no times of Spark.
    """
    reports = {int(report["batchId"]): report for report in progress if "addBatch" in report["durationMs"]}
    newest_report = max(reports, default=-1)
    records = []
    while state.recent_batches and state.recent_batches[0].batch_id <= newest_report:
        batch = state.recent_batches.popleft()
        records.append(_describe(batch, reports.get(batch.batch_id)))
    return records


def _describe(batch: SinkBatch, report: Mapping[str, Any] | None) -> BatchRecord:
    durations = report["durationMs"] if report else {}
    duration_ms = durations.get("triggerExecution", batch.read_ms + batch.insert_ms)
    return {
        "batch_id": batch.batch_id,
        "started_at": (
            datetime.fromisoformat(report["timestamp"]).timestamp()
            if report
            else batch.ended_at - duration_ms / 1000
        ),
        "duration_ms": round(duration_ms, 1),
        "plan_ms": _sum_durations(durations, _PLAN),
        "read_ms": round(batch.read_ms, 1),
        "insert_ms": round(batch.insert_ms, 1),
        "checkpoint_ms": _sum_durations(durations, _CHECKPOINT),
        "entries": batch.entries,
        "rows": batch.rows,
    }


def _sum_durations(durations: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return sum(durations.get(name, 0) for name in names) if durations else None
