"""Turn the rows of the source into landing rows: pure functions of data frames.

This step does not aggregate. The source has folded each range already, and ClickHouse sums the rows of
several ranges for one bucket. An aggregation in between would cost a shuffle per batch and change no result.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.definitions import MetricDefinition

NOTE_COLUMNS = ("kind", "shard", "label", "example", "began_ms")


def landing_columns(definition: MetricDefinition) -> list[str]:
    """Return the columns of the landing table, in order."""
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
    """Return the columns that `landing_rows` selects. Build them once per query: building is expensive."""
    bucket = F.expr(f"at_ms - pmod(at_ms, {definition.bucket_ms}L)")
    derived = {"at": F.timestamp_millis(bucket).alias("at")}
    return [
        *(F.col(name) for name in NOTE_COLUMNS),
        *(derived.get(name, F.col(name)) for name in landing_columns(definition)),
    ]


def landing_rows(frame: DataFrame, expressions: list[Column]) -> DataFrame:
    """Return the batch with timestamps instead of milliseconds, in the columns of the landing table.

    Late events stay in the bucket of their own time: every bucket accepts events at any time.
    """
    return frame.select(*expressions)
