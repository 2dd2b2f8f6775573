"""Read packed entries into columns, many entries at a time.

An entry costs a few small objects, an event costs none: the columns of all entries are joined and processed
together. Rows are in the order of the packs (by entry, shape, event). Irregular entries and events are read
one by one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from penstock.definitions import TIME_WIRE, Dimension, MetricDefinition
from penstock.pipeline.source.digits import MAX_DIGITS, PADDING, Flags, Integers, as_words, parse_number_lists
from penstock.pipeline.source.entry_chunk import EntryChunk, build_chunk, join_chunks, read_one_by_one
from penstock.pipeline.source.rows import ABSENT, MAX_SEQUENCE, NumberLists, Rows, select_rows, sortable_id
from penstock.streams.packing import DecodedPack, InvalidPackError, Numbers, Pack, column_kinds, decode_pack
from penstock.streams.positions import parse_entry_id
from penstock.streams.wire import MAX_AHEAD_MS, MAX_LATENESS_MS, MAX_TIME_MS, read_events, reject_pack

PackedEntry = tuple[bytes, bytes]
"""An entry id and its payload."""

_NUMBER_LIMIT = 10**MAX_DIGITS
_TYPES: dict[int, np.dtype[np.signedinteger]] = {
    1: np.dtype("<i1"),
    2: np.dtype("<i2"),
    4: np.dtype("<i4"),
    8: np.dtype("<i8"),
}
_ZEROS = np.zeros(256, dtype=np.int8)
_INDEXES = np.arange(256)


@dataclass(slots=True)
class _Column:
    """One field in all packs that have it, in the encoding of the packs."""

    counts: list[int] = field(default_factory=list)
    """How many events of each pack have the field."""
    numbers: list[Numbers] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    codes: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    joined: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _JoinedPacks:
    """The columns of all packs, joined."""

    entries: list[PackedEntry] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    """Number of events in each entry."""
    order: list[Integers] = field(default_factory=list)
    """Per entry: the index of the event that each row holds."""
    shapes: dict[tuple[str, ...], int] = field(default_factory=dict)
    shape_runs: list[int] = field(default_factory=list)
    shape_lengths: list[int] = field(default_factory=list)
    columns: defaultdict[str, _Column] = field(default_factory=lambda: defaultdict(_Column))


def read_packed_entries(definition: MetricDefinition, entries: list[PackedEntry]) -> EntryChunk:
    """Return the events of the packed entries."""
    kinds = column_kinds(definition)
    joined, chunks = _JoinedPacks(), []
    for entry_id, payload in entries:
        try:
            decoded = decode_pack(payload)
        except InvalidPackError:
            chunks.append(build_chunk(definition, [reject_pack(entry_id, payload)]))
            continue
        if _matches_definition(decoded.pack, kinds) and _has_regular_id(entry_id):
            _add_pack(joined, (entry_id, payload), decoded, kinds)
        else:
            chunks.append(read_one_by_one(definition, [(entry_id, [(b"p", payload)])]))
    if joined.entries:
        chunks.insert(0, _read_joined_packs(definition, joined))
    chunk = join_chunks(chunks)
    chunk.entries = len(entries)
    return chunk


def _matches_definition(pack: Pack, kinds: dict[str, str]) -> bool:
    """Return whether every declared field is in the kind of column that its definition requires."""
    return not any(
        kinds.get(name, kind) != kind
        for kind, names in (("numbers", pack.numbers), ("texts", pack.texts), ("lists", pack.lists))
        for name in names
    )


def _has_regular_id(entry_id: bytes) -> bool:
    milliseconds, sequence = parse_entry_id(entry_id.decode())
    return milliseconds <= MAX_TIME_MS and sequence <= MAX_SEQUENCE


def _add_pack(joined: _JoinedPacks, entry: PackedEntry, decoded: DecodedPack, kinds: dict[str, str]) -> None:
    pack, shape_counts, counts = decoded
    events = len(pack.shape_of)
    joined.entries.append(entry)
    joined.events.append(events)
    if len(shape_counts) == 1:
        joined.order.append(_INDEXES[:events])
    else:
        joined.order.append(np.argsort(np.frombuffer(pack.shape_of, dtype=np.uint8), kind="stable"))
    shape_numbers = joined.shapes
    joined.shape_runs += [shape_numbers.setdefault(shape, len(shape_numbers)) for shape in pack.shapes]
    joined.shape_lengths += shape_counts
    for name, column in pack.numbers.items():
        if name in kinds:
            target = joined.columns[name]
            target.counts.append(counts[name])
            target.numbers.append(column)
    for name, (texts, codes) in pack.texts.items():
        if name in kinds:
            target = joined.columns[name]
            target.counts.append(counts[name])
            target.offsets.append(len(target.texts))
            target.texts += texts
            target.codes.append(codes)
    for name, (lengths, text) in pack.lists.items():
        if name in kinds:
            target = joined.columns[name]
            target.counts.append(counts[name])
            target.numbers.append(lengths)
            target.joined.append(text)


def _read_joined_packs(definition: MetricDefinition, joined: _JoinedPacks) -> EntryChunk:
    rows, regular = _build_rows(definition, joined)
    if regular.all():
        return EntryChunk(rows)
    entry_of_row = np.repeat(np.arange(len(joined.events)), joined.events)
    order = np.concatenate(joined.order)
    irregular: defaultdict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(~regular):
        irregular[int(entry_of_row[row])].append(int(order[row]))
    results = []
    for entry, indexes in irregular.items():
        entry_id, payload = joined.entries[entry]
        entry_results = read_events(definition, entry_id, [(b"p", payload)])
        results += [entry_results[index] for index in sorted(indexes)]
    return join_chunks([EntryChunk(select_rows(rows, regular)), build_chunk(definition, results)])


def _build_rows(definition: MetricDefinition, joined: _JoinedPacks) -> tuple[Rows, Flags]:
    """Return rows for all events, and which of them are regular; the others are read one by one."""
    events = sum(joined.events)
    regular = np.ones(events, dtype=np.bool_)
    measured = np.zeros(events, dtype=np.bool_)
    shape_of = np.repeat(joined.shape_runs, joined.shape_lengths)

    def rows_with(wire: str) -> Integers | None:
        """Return which rows have the field; None means all rows."""
        shape_has_field = np.array([wire in shape for shape in joined.shapes])
        return None if shape_has_field.all() else np.flatnonzero(shape_has_field[shape_of])

    def numbers(wire: str, absent: int | Integers) -> tuple[Integers, Integers | slice]:
        """Return the column of the field, and which rows have it."""
        column = joined.columns.get(wire)
        if column is None:
            return np.full(events, absent) if isinstance(absent, int) else absent, slice(0)
        values = _decode_numbers(column)
        in_range = (values >= 0) & (values < _NUMBER_LIMIT)
        having_rows = rows_with(wire)
        if having_rows is None:
            regular[~in_range] = False
            return values, slice(None)
        regular[having_rows[~in_range]] = False
        full_column = np.full(events, absent) if isinstance(absent, int) else absent.copy()
        full_column[having_rows] = values
        return full_column, having_rows

    ids = [parse_entry_id(entry_id.decode()) for entry_id, _ in joined.entries]
    id_ms = np.repeat(np.array([ms for ms, _ in ids]), joined.events)
    at_ms, _ = numbers(TIME_WIRE, id_ms)
    regular &= (at_ms >= id_ms - MAX_LATENESS_MS) & (at_ms <= np.minimum(id_ms + MAX_AHEAD_MS, MAX_TIME_MS))
    dimensions = [
        _text_column(joined.columns[dimension.wire], dimension, rows_with(dimension.wire), events, regular)
        for dimension in definition.dimensions
    ]
    counters = {}
    for counter in definition.counters:
        counters[counter.name], having_rows = numbers(counter.wire, 0)
        measured[having_rows] = True
    gauges, observed = {}, np.zeros(events, dtype=np.bool_)
    for gauge in definition.gauges:
        gauges[gauge.name], having_rows = numbers(gauge.wire, ABSENT)
        observed[having_rows] = True
    samples = {}
    for sample in definition.samples:
        samples[sample.name] = _list_column(
            joined.columns[sample.wire], rows_with(sample.wire), events, regular
        )
        measured |= samples[sample.name].lengths > 0
    regular &= measured | observed
    sequence = np.repeat(np.array([sequence for _, sequence in ids]), joined.events)
    order_ids = sortable_id(id_ms, sequence, np.concatenate(joined.order))
    return Rows(
        dimensions=dimensions,
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(events, dtype=np.int64),
        seen_ms=np.where(observed, at_ms, ABSENT),
        seen_id=order_ids,
        counters=counters,
        gauge_max=gauges,
        gauge_last=gauges,
        samples=samples,
    ), regular


def _decode_numbers(column: _Column) -> Integers:
    parts = [
        np.frombuffer(data, _TYPES[len(data) // count]) if data else _ZEROS[:count]
        for (_, data), count in zip(column.numbers, column.counts, strict=True)
    ]
    values: Integers = np.concatenate(parts, dtype=np.int64)
    bases = [base for base, _ in column.numbers]
    if any(bases):
        values += np.repeat(np.array(bases), column.counts)
    return values


def _text_column(
    column: _Column, dimension: Dimension, having_rows: Integers | None, events: int, regular: Flags
) -> pa.Array:
    """Return the values of the dimension as a dictionary column; absent values are empty text."""
    parts = [
        np.frombuffer(codes, np.uint8) if codes else _ZEROS[:count]
        for codes, count in zip(column.codes, column.counts, strict=True)
    ]
    texts = column.texts
    codes = np.concatenate(parts, dtype=np.int64) if parts else np.zeros(0, dtype=np.int64)
    codes += np.repeat(np.array(column.offsets, dtype=np.int64), column.counts)
    if having_rows is not None:
        full_column = np.full(events, len(texts))
        full_column[having_rows] = codes
        texts, codes = [*texts, ""], full_column
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    indices = encoded.indices.to_numpy()[codes]
    if not dimension.optional:
        empty = encoded.dictionary.index("").as_py()
        if empty >= 0:
            regular &= indices != empty
    return pa.DictionaryArray.from_arrays(pa.array(indices), encoded.dictionary)


def _list_column(column: _Column, having_rows: Integers | None, events: int, regular: Flags) -> NumberLists:
    if not column.joined:
        return NumberLists(np.zeros(events, dtype=np.int64), np.zeros(0, dtype=np.int64))
    padding = bytes(PADDING)
    data = np.frombuffer(b"".join(chain((padding,), column.joined, (padding,))), dtype=np.uint8)
    end = np.cumsum(_decode_numbers(column)) + PADDING
    start = np.concatenate(([PADDING], end[:-1]))
    counts, values, valid = parse_number_lists(data, as_words(data), start, end)
    if having_rows is None:
        regular &= valid
        return NumberLists(counts, values)
    regular[having_rows[~valid]] = False
    lengths = np.zeros(events, dtype=np.int64)
    lengths[having_rows] = counts
    return NumberLists(lengths, values)
