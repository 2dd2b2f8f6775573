"""Measurements as columns: the one form in which entries, partial aggregates and their sums travel.

A single event is a row with `events` 1, so folding rows into fewer rows is one operation whatever they stand
for, and can be repeated.
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
"""A gauge that was not observed, and the time of an observation that was not made."""

SEQUENCE_BITS, INDEX_BITS = 14, 8
"""How a millisecond of ids is divided: entries, and events inside a packed one."""

LARGEST_SEQUENCE = 1 << 40
"""Redis allows more; none comes about by itself."""


@dataclass(slots=True)
class Lists:
    """One list of numbers per row: how many each has, and all of them in row order."""

    lengths: Integers
    values: Integers


@dataclass(slots=True)
class Rows:
    """Equally long columns, by the definition's names.

    `at_ms` is the start of the bucket (of an event not yet folded: its time), `newest_ms` the newest event's
    time, `seen_ms` and `seen_id` time and stream id of the last observation of a gauge. (A single event has
    its own id in any case.)
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
    samples: Mapping[str, Lists]

    def __len__(self) -> int:
        return len(self.at_ms)


def id_number(milliseconds: Integers, sequence: Integers, index: Integers | int = 0) -> Integers:
    """A stream id, and the place inside a packed entry, as one number in the same order.

    While Redis's clock is behind its last id, that id's millisecond gets more entries than there is room for.
    They then run on into the next milliseconds, which keeps their order among themselves.
    """
    entry: Integers = (milliseconds << SEQUENCE_BITS) + np.minimum(sequence, LARGEST_SEQUENCE)
    number: Integers = (entry << INDEX_BITS) + index
    return number


def rows_of_events(definition: MetricDefinition, events: Sequence[Event]) -> Rows:
    """The columns of events read one by one."""

    def column(values: list[int]) -> Integers:
        return np.array(values, dtype=np.int64)

    seen = column([bool(event.gauges) for event in events]).astype(bool)
    at_ms = column([event.at_ms for event in events])
    ids = id_number(
        column([e.id_ms for e in events]),
        column([min(e.id_sequence, LARGEST_SEQUENCE) for e in events]),
        column([e.index for e in events]),
    )
    gauges = {g.name: column([e.gauges.get(g.name, ABSENT) for e in events]) for g in definition.gauges}
    samples = {}
    for sample in definition.samples:
        lists = [event.samples.get(sample.name, ()) for event in events]
        samples[sample.name] = Lists(
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
        seen_ms=np.where(seen, at_ms, ABSENT),
        seen_id=ids,
        counters={c.name: column([e.counters.get(c.name, 0) for e in events]) for c in definition.counters},
        gauge_max=gauges,
        gauge_last=gauges,
        samples=samples,
    )


def concatenated(parts: Sequence[Rows]) -> Rows:
    """All rows, in order. At least one part."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]

    def joined(columns: list[Integers]) -> Integers:
        return np.concatenate(columns)

    return Rows(
        dimensions=[
            pa.chunked_array([encoded(part.dimensions[i]) for part in parts])
            .unify_dictionaries()
            .combine_chunks()
            for i in range(len(first.dimensions))
        ],
        at_ms=joined([part.at_ms for part in parts]),
        newest_ms=joined([part.newest_ms for part in parts]),
        events=joined([part.events for part in parts]),
        seen_ms=joined([part.seen_ms for part in parts]),
        seen_id=joined([part.seen_id for part in parts]),
        counters={name: joined([part.counters[name] for part in parts]) for name in first.counters},
        gauge_max={name: joined([part.gauge_max[name] for part in parts]) for name in first.gauge_max},
        gauge_last={name: joined([part.gauge_last[name] for part in parts]) for name in first.gauge_last},
        samples={
            name: Lists(
                joined([part.samples[name].lengths for part in parts]),
                joined([part.samples[name].values for part in parts]),
            )
            for name in first.samples
        },
    )


def selected(rows: Rows, chosen: Flags) -> Rows:
    """The chosen ones of rows that are single events."""

    def pick(columns: dict[str, Integers]) -> dict[str, Integers]:
        return {name: column[chosen] for name, column in columns.items()}

    gauges = pick(dict(rows.gauge_max))
    return Rows(
        dimensions=[column.filter(pa.array(chosen)) for column in rows.dimensions],
        at_ms=rows.at_ms[chosen],
        newest_ms=rows.newest_ms[chosen],
        events=rows.events[chosen],
        seen_ms=rows.seen_ms[chosen],
        seen_id=rows.seen_id[chosen],
        counters=pick(dict(rows.counters)),
        gauge_max=gauges,
        gauge_last=gauges,
        samples={
            name: Lists(lists.lengths[chosen], lists.values[np.repeat(chosen, lists.lengths)])
            for name, lists in rows.samples.items()
        },
    )


def encoded(texts: pa.Array) -> pa.DictionaryArray:
    return texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
