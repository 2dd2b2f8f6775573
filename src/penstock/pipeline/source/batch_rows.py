"""The rows that travel from the source through Spark to the sink: their schema, and content made into them.

Four kinds share one frame, because a batch is read by one action: `point` (a partial aggregate),
`set_aside` (a reason with its count and an example), `position` (how far a stream was read) and `piece` (what
one of several readers of a range found; together they make a position).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.digits import Integers
from penstock.pipeline.source.range_parts import Found, settle
from penstock.pipeline.source.rows import ABSENT, Lists, Rows
from penstock.pipeline.source.stream_range import RangeContent, StreamRange
from penstock.streams.positions import id_parts
from penstock.streams.wire import Reason

POINT, ASIDE, POSITION, PIECE = "point", "set_aside", "position", "piece"

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
        batches.append(point_rows(definition, schema, wanted.shard, content.rows))
    end_ms = id_parts(wanted.end)[0]
    notes = [
        _note(ASIDE, wanted.shard, reason.value, count, content.examples[reason], end_ms)
        for reason, count in sorted(content.set_aside.items())
    ]
    if wanted.pieces == 1:
        notes += _settled_notes(wanted.shard, wanted.start, wanted.end, [content.found])
    else:
        told = json.dumps({"after": wanted.start, "found": asdict(content.found)})
        notes.append(_note(PIECE, wanted.shard, wanted.end, content.found.entries, told, end_ms))
    batches.append(pa.RecordBatch.from_pylist(notes, schema=schema))
    return batches


def settled(table: pa.Table) -> pa.Table:
    """A batch's landing rows, with the notes of pieces replaced by what they tell together."""
    is_piece = pc.equal(table["kind"], PIECE)
    pieces = table.filter(is_piece).select(["shard", "label", "example"]).to_pylist()
    if not pieces:
        return table
    notes = []
    for shard, some in groupby(pieces, key=itemgetter("shard")):
        rows = list(some)
        told = [json.loads(row["example"]) for row in rows]
        notes += _settled_notes(
            shard, told[0]["after"], rows[-1]["label"], [Found(**piece["found"]) for piece in told]
        )
    for note in notes:
        at_ms = note.pop("at_ms")
        note["at"] = None if at_ms is None else datetime.fromtimestamp(at_ms // 1000, UTC)
    return pa.concat_tables(
        [table.filter(pc.invert(is_piece)), pa.Table.from_pylist(notes, schema=table.schema)]
    )


def _settled_notes(shard: int, start: str, end: str, found: list[Found]) -> list[dict[str, Any]]:
    """What is to be told about a whole range: what is missing from it, and how far it reached."""
    whole, end_ms, notes = settle(found), id_parts(end)[0], []
    if whole.lost:
        gap = f"{whole.lost} entries after {start}, each of one event or of many"
        notes.append(_note(ASIDE, shard, Reason.TRIMMED, whole.lost, gap, end_ms))
    if whole.replaced:
        gap = f"{found[0].end} entries where there had been {found[0].start}"
        notes.append(_note(ASIDE, shard, Reason.STREAM_REPLACED, 0, gap, end_ms))
    reached = UNKNOWN_ENTRIES if whole.reached is None else whole.reached
    notes.append(_note(POSITION, shard, end, reached, str(whole.entries), None))
    return notes


def _note(kind: str, shard: int, label: str, events: int, example: str, at_ms: int | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "shard": shard,
        "label": label,
        "events": events,
        "example": example,
        "at_ms": at_ms,
    }


def point_rows(definition: MetricDefinition, schema: pa.Schema, shard: int, rows: Rows) -> pa.RecordBatch:
    """Folded rows in the given Arrow schema."""
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
