"""A raw XRANGE reply turned into columns, without an object per entry.

A reply is lines: per entry `*2`, the id's length and text, `*2k`, then k times name length, name, value
length, value. Where the lines fall tells everything, so the whole reply is taken apart with a few vector
operations. Anything unusual goes the plain way: single entries whose values are not ordinary numbers, and the
whole reply when a name or value holds a line break or begins with `*`, which would be taken for structure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import hiredis
import numpy as np
import pyarrow as pa

from penstock.definitions import LONGEST_WIRE_NAME, MetricDefinition
from penstock.pipeline.digits import PADDING, Bytes, Flags, Integers, Words, low_bytes, parse, words_of
from penstock.pipeline.rows import ABSENT, Lists, Rows, concatenated, id_number, rows_of_events
from penstock.streams.wire import AHEAD_MS, LATEST_MS, Event, Reason, SetAside, read_entry

_CR, _LF, _STAR, _TWO, _DASH, _COMMA = b"\r\n*2-,"
_MS_DIGITS = 13


@dataclass(slots=True)
class Chunk:
    """What one reply held: rows to count, and how many entries were set aside why, with an example each."""

    rows: Rows
    entries: int
    last_id: bytes | None
    set_aside: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)


class _Layout(NamedTuple):
    """Where everything is in the buffer: byte positions per entry, and per field."""

    data: Bytes
    words: Words
    id_start: Integers
    id_end: Integers
    field_entry: Integers
    """The entry a field belongs to."""
    name: Words
    """Its name and length as one word; 0 if longer than 7 bytes."""
    name_start: Integers
    name_end: Integers
    value_start: Integers
    value_end: Integers


def read_reply(definition: MetricDefinition, buffer: bytes | bytearray, begin: int, end: int) -> Chunk:
    """The content of the reply to one XRANGE, which is `buffer[begin:end]`, with 8 bytes to spare around."""
    layout = _layout(buffer, begin, end)
    if layout is None:
        return _read_plainly(definition, hiredis_entries(buffer[begin:end]))
    if not len(layout.id_start):
        return Chunk(rows_of_events(definition, ()), 0, None)
    rows, usual = _read_usual(definition, layout)
    last = bytes(layout.data[layout.id_start[-1] : layout.id_end[-1]])
    if usual.all():
        return Chunk(rows, len(usual), last)
    unusual = _read_plainly(definition, _entries_at(layout, np.flatnonzero(~usual)))
    kept = _selected(rows, usual)
    return Chunk(concatenated([kept, unusual.rows]), len(usual), last, unusual.set_aside, unusual.examples)


def hiredis_entries(reply: bytes | bytearray) -> list[tuple[bytes, list[tuple[bytes, bytes]]]]:
    """The reply's entries as objects, by the ordinary parser."""
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    return [(entry, list(zip(body[::2], body[1::2], strict=True))) for entry, body in reader.gets()]


def _read_plainly(
    definition: MetricDefinition, entries: list[tuple[bytes, list[tuple[bytes, bytes]]]]
) -> Chunk:
    events: list[Event] = []
    chunk = Chunk(rows_of_events(definition, ()), len(entries), entries[-1][0] if entries else None)
    for entry_id, pairs in entries:
        read = read_entry(definition, entry_id, pairs)
        if isinstance(read, SetAside):
            chunk.set_aside[read.reason] += 1
            chunk.examples.setdefault(read.reason, read.example)
        else:
            events.append(read)
    chunk.rows = rows_of_events(definition, events)
    return chunk


def _layout(buffer: bytes | bytearray, begin: int, end: int) -> _Layout | None:
    """Positions of all parts, or None if the lines do not add up to entries of names and values."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    words = words_of(data)
    line_end = np.flatnonzero(data[begin:end] == _CR) + begin
    if not len(line_end) or np.any(data[line_end + 1] != _LF):
        return None
    line_start = np.concatenate(([begin], line_end[:-1] + 2))
    starred = np.flatnonzero(data[line_start] == _STAR)
    # The reply's own line, then two per entry: its start, and three lines on the number of its parts.
    head, body = starred[1::2], starred[2::2]
    if len(head) != len(body) or starred[0] != 0 or np.any(body != head + 3):
        return None
    parts, good = parse(words, line_start[body] + 1, line_end[body])
    if not good.all() or np.any(data[line_start[head] + 1] != _TWO) or np.any(parts % 2):
        return None
    following = head + 4 + 2 * parts
    if np.any(following[:-1] != head[1:]) or (len(head) and following[-1] != len(line_start)):
        return None
    fields = parts // 2
    entry = np.repeat(np.arange(len(head)), fields)
    within = np.arange(len(entry)) - (np.cumsum(fields) - fields)[entry]
    name_line = head[entry] + 5 + 4 * within
    name_start, name_end = line_start[name_line], line_end[name_line]
    return _Layout(
        data=data,
        words=words,
        id_start=line_start[head + 2],
        id_end=line_end[head + 2],
        field_entry=entry,
        name=_name_words(words, name_start, name_end),
        name_start=name_start,
        name_end=name_end,
        value_start=line_start[name_line + 2],
        value_end=line_end[name_line + 2],
    )


def _name_words(words: Words, start: Integers, end: Integers) -> Words:
    length = np.minimum(end - start, LONGEST_WIRE_NAME + 1)
    name = low_bytes(words[start], length) | length.astype(np.uint64) << np.uint64(56)
    return np.where(length <= LONGEST_WIRE_NAME, name, np.uint64(0))


def _as_word(wire: str) -> np.uint64:
    return np.uint64(int.from_bytes(wire.encode().ljust(7, b"\0") + bytes([len(wire)]), "little"))


def _read_usual(definition: MetricDefinition, layout: _Layout) -> tuple[Rows, Flags]:
    """Rows for all entries, and which of them are right; the others need the plain reader."""
    entries = len(layout.id_start)
    usual = np.ones(entries, dtype=np.bool_)
    measured = np.zeros(entries, dtype=np.bool_)

    def find(wire: str) -> tuple[Integers, Integers, Integers]:
        """The entries that have the field, in order, and where its value is."""
        place = np.flatnonzero(layout.name == _as_word(wire))
        entry = layout.field_entry[place]
        repeated = np.concatenate(([False], entry[1:] == entry[:-1])) if len(entry) else entry == 0
        if repeated.any():
            usual[entry[repeated]] = False
            place, entry = place[~repeated], entry[~repeated]
        return entry, layout.value_start[place], layout.value_end[place]

    def numbers(wire: str, absent: int | Integers) -> tuple[Integers, Flags]:
        entry, start, end = find(wire)
        value, good = parse(layout.words, start, end)
        usual[entry[~good]] = False
        column = np.empty(entries, dtype=np.int64)
        column[:] = absent
        column[entry] = value
        present = np.zeros(entries, dtype=np.bool_)
        present[entry] = True
        return column, present

    id_ms, id_sequence = _ids(layout, usual)
    at_ms, _ = numbers("t", id_ms)
    usual &= (at_ms >= id_ms - LATEST_MS) & (at_ms <= id_ms + AHEAD_MS)
    dimensions = []
    for dimension in definition.dimensions:
        entry, start, end = find(dimension.wire)
        dimensions.append(_texts(layout, entries, entry, start, end, dimension.optional, usual))
    counters = {}
    for counter in definition.counters:
        counters[counter.name], present = numbers(counter.wire, 0)
        measured |= present
    gauges, seen = {}, np.zeros(entries, dtype=np.bool_)
    for gauge in definition.gauges:
        gauges[gauge.name], present = numbers(gauge.wire, ABSENT)
        seen |= present
    samples = {}
    for sample in definition.samples:
        samples[sample.name] = _lists(layout, entries, *find(sample.wire), usual)
        measured |= samples[sample.name].lengths > 0
    usual &= measured | seen
    return Rows(
        dimensions=dimensions,
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(entries, dtype=np.int64),
        seen_ms=np.where(seen, at_ms, ABSENT),
        seen_id=np.where(seen, id_number(id_ms, id_sequence), ABSENT),
        counters=counters,
        gauge_max=gauges,
        gauge_last=gauges,
        samples=samples,
    ), usual


def _ids(layout: _Layout, usual: Flags) -> tuple[Integers, Integers]:
    dash = layout.id_start + _MS_DIGITS
    milliseconds, good = parse(layout.words, layout.id_start, np.minimum(dash, layout.id_end))
    sequence, sequence_good = parse(layout.words, np.minimum(dash + 1, layout.id_end), layout.id_end)
    usual &= good & sequence_good & (layout.data[dash] == _DASH)
    return milliseconds, sequence


def _texts(
    layout: _Layout,
    entries: int,
    entry: Integers,
    start: Integers,
    end: Integers,
    optional: bool,
    usual: Flags,
) -> pa.Array:
    """The dimension's values as a dictionary column; what is absent is empty text."""
    begin = np.full(entries, ABSENT)
    begin[entry] = start
    finish = np.full(entries, PADDING)
    finish[entry] = end
    # Absent values become empty spans where the value before them ended.
    finish = np.maximum.accumulate(finish)
    begin = np.where(begin == ABSENT, finish, begin)
    if not optional:
        usual &= finish > begin
    # Offsets alternate between a value and the gap to the next one, over the reply itself: no byte is copied
    # until `take` picks the values out.
    offsets = np.empty(2 * entries + 1, dtype=np.int32)
    offsets[0:-1:2] = begin
    offsets[1::2] = finish
    offsets[-1] = finish[-1]
    spans = pa.Array.from_buffers(
        pa.binary(), 2 * entries, [None, pa.py_buffer(offsets), pa.py_buffer(layout.data)]
    )
    values = spans.take(pa.array(np.arange(0, 2 * entries, 2))).dictionary_encode()
    try:
        dictionary = values.dictionary.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_decoded(value) for value in values.dictionary.to_pylist()]
        broken = np.array([text is None for text in texts])
        usual &= ~broken[values.indices.to_numpy()]
        dictionary = pa.array([f"\0{i}" if text is None else text for i, text in enumerate(texts)])
    return pa.DictionaryArray.from_arrays(values.indices, dictionary)


def _lists(
    layout: _Layout, entries: int, entry: Integers, start: Integers, end: Integers, usual: Flags
) -> Lists:
    """Comma-separated numbers; an empty text holds none."""
    filled = end > start
    entry, start, end = entry[filled], start[filled], end[filled]
    lengths = np.zeros(entries, dtype=np.int64)
    if not len(entry):
        return Lists(lengths, np.zeros(0, dtype=np.int64))
    commas = np.flatnonzero(layout.data == _COMMA)
    first, after = np.searchsorted(commas, start), np.searchsorted(commas, end)
    count = after - first + 1
    total = int(count.sum())
    begins = np.cumsum(count) - count
    owner = np.repeat(np.arange(len(entry)), count)
    within = np.arange(total) - begins[owner]
    comma = first[owner] + within
    padded = np.append(commas, 0)
    number_start = np.where(within == 0, start[owner], padded[np.maximum(comma - 1, 0)] + 1)
    number_end = np.where(within == count[owner] - 1, end[owner], padded[np.minimum(comma, len(commas))])
    values, good = parse(layout.words, number_start, number_end)
    usual[entry[owner[~good]]] = False
    lengths[entry] = count
    return Lists(lengths, values)


def _selected(rows: Rows, chosen: Flags) -> Rows:
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


def _entries_at(layout: _Layout, chosen: Integers) -> list[tuple[bytes, list[tuple[bytes, bytes]]]]:
    def text(start: Integers, end: Integers, i: int) -> bytes:
        return layout.data[start[i] : end[i]].tobytes()

    found = []
    for i in chosen:
        fields = range(*np.searchsorted(layout.field_entry, [i, i + 1]))
        pairs = [
            (text(layout.name_start, layout.name_end, j), text(layout.value_start, layout.value_end, j))
            for j in fields
        ]
        found.append((text(layout.id_start, layout.id_end, i), pairs))
    return found


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None
