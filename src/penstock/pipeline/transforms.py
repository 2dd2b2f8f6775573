"""From the source's rows to landing rows: pure functions of frames, and of nothing else.

Rows are not summed again here. The source has folded each range already, and ClickHouse sums what several
ranges say about one bucket; a second aggregation in between costs a shuffle per batch and changes no result.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.definitions import MetricDefinition

NOTE_COLUMNS = ("kind", "shard", "label", "example")


def landing_columns(definition: MetricDefinition) -> list[str]:
    """The landing table's columns, in order."""
    return [
        *(dimension.name for dimension in definition.dimensions),
        "at",
        "events",
        "newest_ms",
        "seen_ms",
        "seen_id",
        *(counter.name for counter in definition.counters),
        *(f"{gauge.name}_{kind}" for gauge in definition.gauges for kind in ("max", "last")),
        *(sample.name for sample in definition.samples),
    ]


def landing_expressions(definition: MetricDefinition) -> list[Column]:
    """What `landing_rows` selects. Building columns costs more than using them: build once per query."""
    bucket = F.expr(f"at_ms - pmod(at_ms, {definition.bucket_ms}L)")
    derived = {"at": F.timestamp_millis(bucket).alias("at")}
    return [
        *(F.col(name) for name in NOTE_COLUMNS),
        *(derived.get(name, F.col(name)) for name in landing_columns(definition)),
    ]


def landing_rows(frame: DataFrame, expressions: list[Column]) -> DataFrame:
    """The batch with times instead of milliseconds, in the landing table's columns; notes keep theirs.

    Late events stay in the bucket of their own time: buckets are never closed.
    """
    return frame.select(*expressions)
