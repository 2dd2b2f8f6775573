"""The rows that travel from the source through Spark to the sink: their schema, and content made into them.

Three kinds share one frame, because a batch is read by one action: `point` (a partial aggregate),
`set_aside` (a reason with its count and an example) and `position` (how far a stream was read).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from penstock.definitions import MetricDefinition
from penstock.pipeline.digits import Integers
from penstock.pipeline.rows import ABSENT, Lists
from penstock.pipeline.stream_range import RangeContent, StreamRange
from penstock.streams.wire import Reason

POINT, ASIDE, POSITION = "point", "set_aside", "position"

UNKNOWN_ENTRIES = -1


def batch_schema(definition: MetricDefinition) -> StructType:
    """The source's schema for one metric."""
    fields = [
        StructField("kind", StringType(), False),
        StructField("shard", IntegerType(), False),
        StructField("label", StringType()),
        StructField("example", StringType()),
        *(StructField(dimension.name, StringType()) for dimension in definition.dimensions),
        StructField("at_ms", LongType()),
        StructField("events", LongType()),
        StructField("newest_ms", LongType()),
        StructField("seen_ms", LongType()),
        StructField("seen_id", LongType()),
        *(StructField(counter.name, LongType()) for counter in definition.counters),
    ]
    for gauge in definition.gauges:
        fields += [
            StructField(f"{gauge.name}_max", LongType()),
            StructField(f"{gauge.name}_last", LongType()),
        ]
    fields += [StructField(sample.name, ArrayType(LongType())) for sample in definition.samples]
    return StructType(fields)


def batch_rows(
    definition: MetricDefinition, schema: pa.Schema, wanted: StreamRange, content: RangeContent
) -> list[pa.RecordBatch]:
    """One range's content in the given Arrow schema, in an order that depends on the content alone."""
    batches = []
    if content.rows is not None:
        batches.append(_points(definition, schema, wanted.shard, content))
    notes = [
        _note(ASIDE, wanted.shard, reason.value, count, content.examples[reason], _time_of(wanted.end))
        for reason, count in sorted(content.set_aside.items())
    ]
    if content.lost:
        gap = f"{content.lost} entries after {wanted.start}"
        notes.append(_note(ASIDE, wanted.shard, Reason.TRIMMED, content.lost, gap, _time_of(wanted.end)))
    if content.replaced:
        gap = f"{wanted.end_entries} entries where there had been {wanted.start_entries}"
        notes.append(_note(ASIDE, wanted.shard, Reason.STREAM_REPLACED, 0, gap, _time_of(wanted.end)))
    reached = UNKNOWN_ENTRIES if content.end_entries is None else content.end_entries
    notes.append(_note(POSITION, wanted.shard, wanted.end, reached, str(content.entries), None))
    batches.append(pa.RecordBatch.from_pylist(notes, schema=schema))
    return batches


def _note(kind: str, shard: int, label: str, events: int, example: str, at_ms: int | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "shard": shard,
        "label": label,
        "events": events,
        "example": example,
        "at_ms": at_ms,
    }


def _time_of(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _points(
    definition: MetricDefinition, schema: pa.Schema, shard: int, content: RangeContent
) -> pa.RecordBatch:
    rows = content.rows
    assert rows is not None
    count = len(rows)
    columns: dict[str, pa.Array] = {
        "kind": pa.repeat(POINT, count),
        "shard": pa.array(np.full(count, shard, dtype=np.int32)),
        "at_ms": pa.array(rows.at_ms),
        "events": pa.array(rows.events),
        "newest_ms": pa.array(rows.newest_ms),
        "seen_ms": _nullable(rows.seen_ms),
        "seen_id": _nullable(rows.seen_id),
    }
    for dimension, values in zip(definition.dimensions, rows.dimensions, strict=True):
        columns[dimension.name] = values.cast(pa.string())
    for name, numbers in rows.counters.items():
        columns[name] = pa.array(numbers)
    for name in rows.gauge_max:
        columns[f"{name}_max"] = _nullable(rows.gauge_max[name])
        columns[f"{name}_last"] = _nullable(rows.gauge_last[name])
    for name, lists in rows.samples.items():
        columns[name] = _lists(lists, schema.field(name).type)
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nullable(values: Integers) -> pa.Array:
    return pa.array(values, mask=values == ABSENT)


def _lists(lists: Lists, kind: pa.DataType) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lists.lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(lists.values), type=kind)
