"""Measurements as columns: the one format of events, partial aggregates and their sums.

A single event is a row with `events` 1. So folding rows into fewer rows is the same operation for events and
for aggregates, and it can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.digits import Flags, Integers
from penstock.streams.wire import Event

ABSENT = -1
"""Marks a gauge that was not observed, and the time and id of its observation."""

SEQUENCE_BITS, INDEX_BITS = 14, 8
"""Bits of a sortable id below the milliseconds: for entries, and for events inside a packed entry."""

MAX_SEQUENCE = 1 << 40
"""Redis allows larger sequence numbers, but assigns none on its own."""


@dataclass(slots=True)
class NumberLists:
    """One list of numbers per row: the length of each list, and all numbers in row order."""

    lengths: Integers
    values: Integers


@dataclass(slots=True)
class Rows:
    """Columns of equal length, named as in the metric definition.

    `at_ms` is the start of the bucket (for an event not yet folded: its own time). `newest_ms` is the time of
    the newest event. `seen_ms` and `seen_id` are the time and the sortable id of the last observation of a
    gauge. (A single event always has its own id.)
    """

    dimensions: Sequence[pa.Array]
    at_ms: Integers
    newest_ms: Integers
    events: Integers
    seen_ms: Integers
    seen_id: Integers
    counters: Mapping[str, Integers]
    gauge_max: Mapping[str, Integers]
    gauge_last: Mapping[str, Integers]
    samples: Mapping[str, NumberLists]

    def __len__(self) -> int:
        return len(self.at_ms)


def sortable_id(milliseconds: Integers, sequence: Integers, index: Integers | int = 0) -> Integers:
    """Combine a stream id and the index inside a packed entry into one number with the same order.

    While Redis's clock is behind its last id, one millisecond gets more entries than it has numbers. The
    surplus then takes numbers of the next milliseconds, which keeps the entries in order.
    """
    entry: Integers = (milliseconds << SEQUENCE_BITS) + np.minimum(sequence, MAX_SEQUENCE)
    number: Integers = (entry << INDEX_BITS) + index
    return number


def events_to_rows(definition: MetricDefinition, events: Sequence[Event]) -> Rows:
    """Return the columns of events that were read one by one."""

    def column(values: list[int]) -> Integers:
        return np.array(values, dtype=np.int64)

    observed = column([bool(event.gauges) for event in events]).astype(bool)
    at_ms = column([event.at_ms for event in events])
    ids = sortable_id(
        column([e.id_ms for e in events]),
        column([min(e.id_sequence, MAX_SEQUENCE) for e in events]),
        column([e.index for e in events]),
    )
    gauges = {g.name: column([e.gauges.get(g.name, ABSENT) for e in events]) for g in definition.gauges}
    samples = {}
    for sample in definition.samples:
        lists = [event.samples.get(sample.name, ()) for event in events]
        samples[sample.name] = NumberLists(
            column([len(numbers) for numbers in lists]),
            column([number for numbers in lists for number in numbers]),
        )
    return Rows(
        dimensions=[
            pa.array([event.dimensions[i] for event in events], pa.string())
            for i in range(len(definition.dimensions))
        ],
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(len(events), dtype=np.int64),
        seen_ms=np.where(observed, at_ms, ABSENT),
        seen_id=ids,
        counters={c.name: column([e.counters.get(c.name, 0) for e in events]) for c in definition.counters},
        gauge_max=gauges,
        gauge_last=gauges,
        samples=samples,
    )


def concatenate(blocks: Sequence[Rows]) -> Rows:
    """Return the rows of all blocks, in order. Needs at least one block."""
    if len(blocks) == 1:
        return blocks[0]
    first = blocks[0]

    def join(columns: list[Integers]) -> Integers:
        return np.concatenate(columns)

    return Rows(
        dimensions=[
            pa.chunked_array([dictionary_encoded(block.dimensions[i]) for block in blocks])
            .unify_dictionaries()
            .combine_chunks()
            for i in range(len(first.dimensions))
        ],
        at_ms=join([block.at_ms for block in blocks]),
        newest_ms=join([block.newest_ms for block in blocks]),
        events=join([block.events for block in blocks]),
        seen_ms=join([block.seen_ms for block in blocks]),
        seen_id=join([block.seen_id for block in blocks]),
        counters={name: join([block.counters[name] for block in blocks]) for name in first.counters},
        gauge_max={name: join([block.gauge_max[name] for block in blocks]) for name in first.gauge_max},
        gauge_last={name: join([block.gauge_last[name] for block in blocks]) for name in first.gauge_last},
        samples={
            name: NumberLists(
                join([block.samples[name].lengths for block in blocks]),
                join([block.samples[name].values for block in blocks]),
            )
            for name in first.samples
        },
    )


def select_rows(rows: Rows, chosen: Flags) -> Rows:
    """Return the chosen rows. All rows must be single events."""

    def filter_columns(columns: dict[str, Integers]) -> dict[str, Integers]:
        return {name: column[chosen] for name, column in columns.items()}

    gauges = filter_columns(dict(rows.gauge_max))
    return Rows(
        dimensions=[column.filter(pa.array(chosen)) for column in rows.dimensions],
        at_ms=rows.at_ms[chosen],
        newest_ms=rows.newest_ms[chosen],
        events=rows.events[chosen],
        seen_ms=rows.seen_ms[chosen],
        seen_id=rows.seen_id[chosen],
        counters=filter_columns(dict(rows.counters)),
        gauge_max=gauges,
        gauge_last=gauges,
        samples={
            name: NumberLists(lists.lengths[chosen], lists.values[np.repeat(chosen, lists.lengths)])
            for name, lists in rows.samples.items()
        },
    )


def dictionary_encoded(texts: pa.Array) -> pa.DictionaryArray:
    """Return the column as a dictionary column; one that is encoded already is returned unchanged."""
    return texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
