"""Build the rows that the source sends through Spark to the sink, and define their schema.

Six kinds of rows share one frame, because one Spark action reads a batch: `point` (a partial aggregate),
`inserted` (the number of points that the task inserted itself, instead of the points), `set_aside` (a reason
with its count and an example), `rejected` (one such event), `position` (how far a stream was read) and
`range_part` (the counts of one of several tasks that read a range; the sink combines them into a position).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import TypedDict

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
from penstock.pipeline.source.range_parts import PartCounts, combine_parts
from penstock.pipeline.source.rows import ABSENT, NumberLists, Rows
from penstock.pipeline.source.stream_range import RangeContent, StreamRange
from penstock.streams.positions import parse_entry_id
from penstock.streams.wire import RejectionReason

POINT_KIND, SET_ASIDE_KIND, POSITION_KIND, PART_KIND = "point", "set_aside", "position", "range_part"
REJECTED_KIND, INSERTED_KIND = "rejected", "inserted"

UNKNOWN_RANK = -1


class _Note(TypedDict):
    """A row that is not a point. What `label`, `events` and `example` hold depends on the kind.

    Set-aside events lie between `began_ms` (null: as `at_ms`) and `at_ms`.
    """

    kind: str
    shard: int
    label: str
    events: int
    example: str
    at_ms: int | None
    began_ms: int | None


def batch_schema(definition: MetricDefinition) -> StructType:
    """Return the schema of the source for one metric."""
    fields = [
        StructField("kind", StringType(), False),
        StructField("shard", IntegerType(), False),
        StructField("label", StringType()),
        StructField("example", StringType()),
        StructField("began_ms", LongType()),
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


def build_batches(
    definition: MetricDefinition, schema: pa.Schema, stream_range: StreamRange, content: RangeContent
) -> list[pa.RecordBatch]:
    """Return the content of one range in the Arrow schema, in an order that depends on the content alone."""
    batches = []
    if content.rows is not None and content.inserted is None:
        batches.append(build_point_batch(definition, schema, stream_range.shard, content.rows))
    end_ms = parse_entry_id(stream_range.end)[0]
    notes = [
        _note(SET_ASIDE_KIND, stream_range.shard, reason.value, count, content.examples[reason], end_ms)
        for reason, count in sorted(content.set_aside.items())
    ]
    notes += [
        _note(
            SET_ASIDE_KIND,
            stream_range.shard,
            RejectionReason.DROPPED,
            lost.events,
            f"{lost.events} events that a broker could not write to Redis",
            lost.until_ms,
            lost.since_ms,
        )
        for lost in content.lost
    ]
    notes += [
        _note(
            *(REJECTED_KIND, stream_range.shard, event.reason.value, 1),
            json.dumps([event.entry, event.text, event.fields]),
            end_ms,
        )
        for event in content.rejected
    ]
    if content.inserted is not None:
        inserted_json = json.dumps(content.inserted.to_dict())
        notes.append(
            _note(
                INSERTED_KIND,
                stream_range.shard,
                stream_range.name,
                content.inserted.rows,
                inserted_json,
                None,
            )
        )
    if stream_range.part_count == 1:
        notes += _range_notes(
            definition, stream_range.shard, stream_range.start, stream_range.end, [content.counts]
        )
    else:
        part_json = json.dumps({"start": stream_range.start, "counts": asdict(content.counts)})
        notes.append(
            _note(PART_KIND, stream_range.shard, stream_range.end, content.counts.entries, part_json, end_ms)
        )
    batches.append(pa.RecordBatch.from_pylist(notes, schema=schema))
    return batches


def combine_range_parts(definition: MetricDefinition, table: pa.Table) -> pa.Table:
    """Return the landing rows of a batch with the rows of range parts combined into those of ranges."""
    is_part = pc.equal(table["kind"], PART_KIND)
    part_rows = table.filter(is_part).select(["shard", "label", "example"]).to_pylist()
    if not part_rows:
        return table
    notes: list[dict[str, object]] = []
    for shard, shard_rows in groupby(part_rows, key=itemgetter("shard")):
        rows = list(shard_rows)
        parts = [json.loads(row["example"]) for row in rows]
        counts = [PartCounts(**part["counts"]) for part in parts]
        for note in _range_notes(definition, shard, parts[0]["start"], rows[-1]["label"], counts):
            at_ms = note["at_ms"]
            at = None if at_ms is None else datetime.fromtimestamp(at_ms // 1000, UTC)
            notes.append({**note, "at": at})
    return pa.concat_tables(
        [table.filter(pc.invert(is_part)), pa.Table.from_pylist(notes, schema=table.schema)]
    )


def _range_notes(
    definition: MetricDefinition, shard: int, start: str, end: str, parts: list[PartCounts]
) -> list[_Note]:
    """Return the rows about a whole range: the entries missing from it, and its position."""
    whole, end_ms, notes = combine_parts(parts), parse_entry_id(end)[0], []
    gap_start_ms, gap_end_ms = whole.gap_ms or (parse_entry_id(start)[0], end_ms)
    # An event enters its stream some time after its own time.
    interval = (gap_end_ms, max(0, gap_start_ms - int(definition.max_emit_delay_s * 1000)))
    if whole.lost:
        example = f"{whole.lost} entries after {start}, each of one event or of many"
        notes.append(_note(SET_ASIDE_KIND, shard, RejectionReason.TRIMMED, whole.lost, example, *interval))
    elif whole.gap_ms is not None and not whole.entries:
        example = f"all entries after {start}; their number is part of the next loss of this stream"
        notes.append(_note(SET_ASIDE_KIND, shard, RejectionReason.TRIMMED, 0, example, *interval))
    if whole.stream_replaced:
        example = f"{parts[0].range_end_rank} entries where there had been {parts[0].range_start_rank}"
        notes.append(_note(SET_ASIDE_KIND, shard, RejectionReason.STREAM_REPLACED, 0, example, *interval))
    rank = UNKNOWN_RANK if whole.reached_rank is None else whole.reached_rank
    notes.append(_note(POSITION_KIND, shard, end, rank, str(whole.entries), None))
    return notes


def _note(
    kind: str,
    shard: int,
    label: str,
    events: int,
    example: str,
    at_ms: int | None,
    began_ms: int | None = None,
) -> _Note:
    return {
        "kind": kind,
        "shard": shard,
        "label": label,
        "events": events,
        "example": example,
        "at_ms": at_ms,
        "began_ms": began_ms,
    }


def build_point_batch(
    definition: MetricDefinition, schema: pa.Schema, shard: int, rows: Rows
) -> pa.RecordBatch:
    """Return folded rows in the Arrow schema."""
    count = len(rows)
    columns: dict[str, pa.Array] = {
        "kind": pa.repeat(POINT_KIND, count),
        "shard": pa.array(np.full(count, shard, dtype=np.int32)),
        "at_ms": pa.array(rows.at_ms),
        "events": pa.array(rows.events),
        "newest_ms": pa.array(rows.newest_ms),
        "seen_ms": _null_if_absent(rows.seen_ms),
        "seen_id": _null_if_absent(rows.seen_id),
    }
    for dimension, values in zip(definition.dimensions, rows.dimensions, strict=True):
        columns[dimension.name] = values.cast(pa.string())
    for name, numbers in rows.counters.items():
        columns[name] = pa.array(numbers)
    for name in rows.gauge_max:
        columns[f"{name}_max"] = _null_if_absent(rows.gauge_max[name])
        columns[f"{name}_last"] = _null_if_absent(rows.gauge_last[name])
    for name, lists in rows.samples.items():
        columns[name] = _list_array(lists, schema.field(name).type)
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _null_if_absent(values: Integers) -> pa.Array:
    return pa.array(values, mask=values == ABSENT)


def _list_array(lists: NumberLists, kind: pa.DataType) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lists.lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(lists.values), type=kind)
