"""Packed entries turned into columns, many entries at a time.

An entry costs a few small objects, an event none: the columns of all entries are joined and then treated as
one. Rows come out in the packs' order (by entry, shape, event). Entries and events that are not as usual are
read the plain way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.definitions import TIME_WIRE, Dimension, MetricDefinition
from penstock.pipeline.source.digits import MOST_DIGITS, PADDING, Flags, Integers, parse_lists, words_of
from penstock.pipeline.source.entry_chunk import Chunk, chunk_of_events, joined_chunks, read_plainly
from penstock.pipeline.source.rows import ABSENT, LARGEST_SEQUENCE, Lists, Rows, id_number, selected
from penstock.streams.packing import BrokenPackError, Numbers, Opened, Pack, column_kinds, opened
from penstock.streams.positions import id_parts
from penstock.streams.wire import AHEAD_MS, LAST_MS, LATEST_MS, broken_pack, read_events

PackedEntry = tuple[bytes, bytes]
"""An id and a payload."""

_TOO_LARGE = 10**MOST_DIGITS
_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<i1"),
    2: np.dtype("<i2"),
    4: np.dtype("<i4"),
    8: np.dtype("<i8"),
}
_ZEROS = np.zeros(256, dtype=np.int8)
_IN_ORDER = np.arange(256)


@dataclass(slots=True)
class _Column:
    """One field in all packs that have it, as the packs hold it."""

    counts: list[int] = field(default_factory=list)
    """How many events of each pack have it."""
    numbers: list[Numbers] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    codes: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    joined: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Joined:
    """All packs together."""

    entries: list[PackedEntry] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    """How many each entry holds."""
    order: list[Integers] = field(default_factory=list)
    """Per entry: which of its events each row is."""
    shapes: dict[tuple[str, ...], int] = field(default_factory=dict)
    shape_runs: list[int] = field(default_factory=list)
    shape_lengths: list[int] = field(default_factory=list)
    columns: defaultdict[str, _Column] = field(default_factory=lambda: defaultdict(_Column))


def read_packs(definition: MetricDefinition, entries: list[PackedEntry]) -> Chunk:
    """The events of the packed entries."""
    kinds = column_kinds(definition)
    joined, chunks = _Joined(), []
    for entry_id, payload in entries:
        try:
            found = opened(payload)
        except BrokenPackError:
            chunks.append(chunk_of_events(definition, [broken_pack(entry_id, payload)]))
            continue
        if _as_declared(found.pack, kinds) and _usual_id(entry_id):
            _add(joined, (entry_id, payload), found, kinds)
        else:
            chunks.append(read_plainly(definition, [(entry_id, [(b"p", payload)])]))
    if joined.entries:
        chunks.insert(0, _read_joined(definition, joined))
    chunk = joined_chunks(chunks)
    chunk.entries = len(entries)
    return chunk


def _as_declared(pack: Pack, kinds: dict[str, str]) -> bool:
    """Whether every declared field is in the kind of column it belongs to."""
    return not any(
        kinds.get(name, kind) != kind
        for kind, names in (("numbers", pack.numbers), ("texts", pack.texts), ("lists", pack.lists))
        for name in names
    )


def _usual_id(entry_id: bytes) -> bool:
    milliseconds, sequence = id_parts(entry_id.decode())
    return milliseconds <= LAST_MS and sequence <= LARGEST_SEQUENCE


def _add(joined: _Joined, entry: PackedEntry, found: Opened, kinds: dict[str, str]) -> None:
    pack, shape_counts, counts = found
    events = len(pack.shape_of)
    joined.entries.append(entry)
    joined.events.append(events)
    if len(shape_counts) == 1:
        joined.order.append(_IN_ORDER[:events])
    else:
        joined.order.append(np.argsort(np.frombuffer(pack.shape_of, dtype=np.uint8), kind="stable"))
    numbers = joined.shapes
    joined.shape_runs += [numbers.setdefault(shape, len(numbers)) for shape in pack.shapes]
    joined.shape_lengths += shape_counts
    for name, column in pack.numbers.items():
        if name in kinds:
            into = joined.columns[name]
            into.counts.append(counts[name])
            into.numbers.append(column)
    for name, (texts, codes) in pack.texts.items():
        if name in kinds:
            into = joined.columns[name]
            into.counts.append(counts[name])
            into.offsets.append(len(into.texts))
            into.texts += texts
            into.codes.append(codes)
    for name, (lengths, text) in pack.lists.items():
        if name in kinds:
            into = joined.columns[name]
            into.counts.append(counts[name])
            into.numbers.append(lengths)
            into.joined.append(text)


def _read_joined(definition: MetricDefinition, joined: _Joined) -> Chunk:
    rows, usual = _rows(definition, joined)
    if usual.all():
        return Chunk(rows)
    owner = np.repeat(np.arange(len(joined.events)), joined.events)
    order = np.concatenate(joined.order)
    unusual: defaultdict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(~usual):
        unusual[int(owner[row])].append(int(order[row]))
    plainly = []
    for entry, indexes in unusual.items():
        entry_id, payload = joined.entries[entry]
        read = read_events(definition, entry_id, [(b"p", payload)])
        plainly += [read[index] for index in sorted(indexes)]
    return joined_chunks([Chunk(selected(rows, usual)), chunk_of_events(definition, plainly)])


def _rows(definition: MetricDefinition, joined: _Joined) -> tuple[Rows, Flags]:
    """Rows for all events, and which of them are right; the others need the plain reader."""
    events = sum(joined.events)
    usual = np.ones(events, dtype=np.bool_)
    measured = np.zeros(events, dtype=np.bool_)
    shape_of = np.repeat(joined.shape_runs, joined.shape_lengths)

    def present(wire: str) -> Integers | None:
        """Which rows have the field; None for all of them."""
        having = np.array([wire in shape for shape in joined.shapes])
        return None if having.all() else np.flatnonzero(having[shape_of])

    def numbers(wire: str, absent: int | Integers) -> tuple[Integers, Integers | slice]:
        """The field's column, and which rows have it."""
        column = joined.columns.get(wire)
        if column is None:
            return np.full(events, absent) if isinstance(absent, int) else absent, slice(0)
        values = _numbers(column)
        good = (values >= 0) & (values < _TOO_LARGE)
        where = present(wire)
        if where is None:
            usual[~good] = False
            return values, slice(None)
        usual[where[~good]] = False
        whole = np.full(events, absent) if isinstance(absent, int) else absent.copy()
        whole[where] = values
        return whole, where

    ids = [id_parts(entry_id.decode()) for entry_id, _ in joined.entries]
    id_ms = np.repeat(np.array([ms for ms, _ in ids]), joined.events)
    at_ms, _ = numbers(TIME_WIRE, id_ms)
    usual &= (at_ms >= id_ms - LATEST_MS) & (at_ms <= np.minimum(id_ms + AHEAD_MS, LAST_MS))
    dimensions = [
        _texts(joined.columns[dimension.wire], dimension, present(dimension.wire), events, usual)
        for dimension in definition.dimensions
    ]
    counters = {}
    for counter in definition.counters:
        counters[counter.name], where = numbers(counter.wire, 0)
        measured[where] = True
    gauges, seen = {}, np.zeros(events, dtype=np.bool_)
    for gauge in definition.gauges:
        gauges[gauge.name], where = numbers(gauge.wire, ABSENT)
        seen[where] = True
    samples = {}
    for sample in definition.samples:
        samples[sample.name] = _lists(joined.columns[sample.wire], present(sample.wire), events, usual)
        measured |= samples[sample.name].lengths > 0
    usual &= measured | seen
    sequence = np.repeat(np.array([sequence for _, sequence in ids]), joined.events)
    place = id_number(id_ms, sequence, np.concatenate(joined.order))
    return Rows(
        dimensions=dimensions,
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(events, dtype=np.int64),
        seen_ms=np.where(seen, at_ms, ABSENT),
        seen_id=place,
        counters=counters,
        gauge_max=gauges,
        gauge_last=gauges,
        samples=samples,
    ), usual


def _numbers(column: _Column) -> Integers:
    parts = [
        np.frombuffer(data, _TYPES[len(data) // count]) if data else _ZEROS[:count]
        for (_, data), count in zip(column.numbers, column.counts, strict=True)
    ]
    values: Integers = np.concatenate(parts, dtype=np.int64)
    bases = [base for base, _ in column.numbers]
    if any(bases):
        values += np.repeat(np.array(bases), column.counts)
    return values


def _texts(
    column: _Column, dimension: Dimension, where: Integers | None, events: int, usual: Flags
) -> pa.Array:
    """The dimension's values as a dictionary column; what is absent is empty text."""
    parts = [
        np.frombuffer(codes, np.uint8) if codes else _ZEROS[:count]
        for codes, count in zip(column.codes, column.counts, strict=True)
    ]
    texts = column.texts
    codes = np.concatenate(parts, dtype=np.int64) if parts else np.zeros(0, dtype=np.int64)
    codes += np.repeat(np.array(column.offsets, dtype=np.int64), column.counts)
    if where is not None:
        whole = np.full(events, len(texts))
        whole[where] = codes
        texts, codes = [*texts, ""], whole
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    indices = encoded.indices.to_numpy()[codes]
    if not dimension.optional:
        empty = encoded.dictionary.index("").as_py()
        if empty >= 0:
            usual &= indices != empty
    return pa.DictionaryArray.from_arrays(pa.array(indices), encoded.dictionary)


def _lists(column: _Column, where: Integers | None, events: int, usual: Flags) -> Lists:
    if not column.joined:
        return Lists(np.zeros(events, dtype=np.int64), np.zeros(0, dtype=np.int64))
    padding = bytes(PADDING)
    data = np.frombuffer(b"".join(chain((padding,), column.joined, (padding,))), dtype=np.uint8)
    end = np.cumsum(_numbers(column)) + PADDING
    start = np.concatenate(([PADDING], end[:-1]))
    counts, values, good = parse_lists(data, words_of(data), start, end)
    if where is None:
        usual &= good
        return Lists(counts, values)
    usual[where[~good]] = False
    lengths = np.zeros(events, dtype=np.int64)
    lengths[where] = counts
    return Lists(lengths, values)
