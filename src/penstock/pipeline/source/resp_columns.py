"""Parse a raw XRANGE reply into columns, without an object per entry.

A reply consists of lines: per entry `*2`, the length and text of the id, `*2k`, then k times name length,
name, value length, value. The positions of the lines determine the structure, so a few vector operations
parse the whole reply. Irregular data is read one by one: single entries whose values are not ordinary
numbers, and the whole reply when a name or value contains a line break or begins with `*`, which looks like
structure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import hiredis
import numpy as np
import pyarrow as pa

from penstock.definitions import MAX_WIRE_NAME_LENGTH, PACK_WIRE, MetricDefinition
from penstock.pipeline.source.digits import (
    PADDING,
    Bytes,
    Flags,
    Integers,
    Words,
    as_words,
    low_bytes,
    parse_number_lists,
    parse_numbers,
)
from penstock.pipeline.source.entry_chunk import Entry, EntryChunk, join_chunks, read_one_by_one
from penstock.pipeline.source.packed_entries import PackedEntry, read_packed_entries
from penstock.pipeline.source.rows import ABSENT, NumberLists, Rows, events_to_rows, select_rows, sortable_id
from penstock.streams.positions import parse_entry_id
from penstock.streams.wire import MAX_AHEAD_MS, MAX_LATENESS_MS, MAX_TIME_MS

_CR, _LF, _STAR, _TWO, _DASH = b"\r\n*2-"
_MS_DIGITS = 13
_ENTRY_START = b"*2\r\n$"
_PACK_START = b"*2\r\n$1\r\n%s\r\n$" % PACK_WIRE.encode()
_PACKED_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n" + re.escape(_PACK_START) + rb"(\d+)\r\n")


class _Layout(NamedTuple):
    """Byte positions in the buffer, per entry and per field."""

    data: Bytes
    words: Words
    id_start: Integers
    id_end: Integers
    field_entry: Integers
    """The entry that a field belongs to."""
    name: Words
    """Name and length of the field as one word; 0 if the name is longer than 7 bytes."""
    name_start: Integers
    name_end: Integers
    value_start: Integers
    value_end: Integers


def read_xrange_reply(
    definition: MetricDefinition, buffer: bytes | bytearray, begin: int, end: int
) -> EntryChunk:
    """Return the content of the reply in `buffer[begin:end]`, which needs 8 spare bytes on both sides."""
    if buffer.find(_PACK_START, begin, end) < 0:
        chunk = _read_singles(definition, buffer, begin, end)
    else:
        chunk = _read_mixed(definition, buffer, begin, end)
    return chunk or read_one_by_one(definition, parse_entries(buffer[begin:end]))


def parse_entries(reply: bytes | bytearray) -> list[Entry]:
    """Return the entries of the reply as objects, parsed by hiredis."""
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    return [(entry, list(zip(body[::2], body[1::2], strict=True))) for entry, body in reader.gets()]


def _read_singles(
    definition: MetricDefinition, buffer: bytes | bytearray, begin: int, end: int
) -> EntryChunk | None:
    layout = _layout(buffer, begin, end)
    return None if layout is None else _read_layout(definition, layout)


def _read_mixed(
    definition: MetricDefinition, buffer: bytes | bytearray, begin: int, end: int
) -> EntryChunk | None:
    """Cut the packed entries out of the reply and read the rest as single entries.

    Bytes that look like a packed entry may be part of a text. Then the text around the cut does not have its
    declared length, or the number of entries differs from the reply's header; in both cases this returns
    None.
    """
    packed, remainder = _cut_out_packed_entries(buffer, begin, end)
    layout = _layout(remainder, PADDING, len(remainder) - PADDING, strict=True)
    if layout is None:
        return None
    singles = len(layout.id_start)
    header = re.match(rb"\*(\d+)\r\n", memoryview(buffer)[begin : begin + 16])
    if header is None or int(header[1]) != singles + len(packed):
        return None
    chunks = [read_packed_entries(definition, packed)] if packed else []
    ids = [packed[0][0], packed[-1][0]] if packed else []
    if singles:
        chunks.append(_read_layout(definition, layout))
        ids += [chunks[-1].first_id or b"", chunks[-1].last_id or b""]
    chunk = join_chunks(chunks)
    ids.sort(key=lambda entry_id: parse_entry_id(entry_id.decode()))
    chunk.first_id, chunk.last_id = ids[0], ids[-1]
    return chunk


def _cut_out_packed_entries(
    buffer: bytes | bytearray, begin: int, end: int
) -> tuple[list[PackedEntry], bytes]:
    """Return the packed entries, and the reply without them, with padding on both sides."""
    view = memoryview(buffer)
    packed: list[PackedEntry] = []
    remaining: list[bytes | memoryview] = [bytes(PADDING)]
    copied_to = search = begin
    while (pack_start := buffer.find(_PACK_START, search, end)) >= 0:
        search = pack_start + len(_PACK_START)
        start = buffer.rfind(_ENTRY_START, copied_to, pack_start)
        match = _PACKED_ENTRY.match(buffer, start, end) if start >= 0 else None
        if match is None:
            continue
        finish = match.end() + int(match[2])
        if match.end(2) - pack_start > 40 or buffer[finish : finish + 2] != b"\r\n" or finish + 2 > end:
            continue
        packed.append((match[1], bytes(view[match.end() : finish])))
        remaining.append(view[copied_to:start])
        copied_to = search = finish + 2
    remaining += [view[copied_to:end], bytes(PADDING)]
    return packed, b"".join(remaining)


def _read_layout(definition: MetricDefinition, layout: _Layout) -> EntryChunk:
    if not len(layout.id_start):
        return EntryChunk(events_to_rows(definition, ()))
    rows, regular = _read_regular(definition, layout)
    if regular.all():
        chunk = EntryChunk(rows, len(regular))
    else:
        irregular = read_one_by_one(definition, _entries_by_index(layout, np.flatnonzero(~regular)))
        chunk = join_chunks([EntryChunk(select_rows(rows, regular)), irregular])
        chunk.entries = len(regular)
    chunk.first_id, chunk.last_id = (
        layout.data[layout.id_start[i] : layout.id_end[i]].tobytes() for i in (0, -1)
    )
    return chunk


def _layout(buffer: bytes | bytearray, begin: int, end: int, *, strict: bool = False) -> _Layout | None:
    """Return the positions of all fields, or None if the lines do not form entries of names and values.

    `strict`: also check that every text has its declared length.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    words = as_words(data)
    line_end = np.flatnonzero(data[begin:end] == _CR) + begin
    if not len(line_end) or np.any(data[line_end + 1] != _LF):
        return None
    line_start = np.concatenate(([begin], line_end[:-1] + 2))
    starred = np.flatnonzero(data[line_start] == _STAR)
    # The line of the reply, then two per entry: its start, and three lines later the number of its items.
    head, body = starred[1::2], starred[2::2]
    if not len(starred) or len(head) != len(body) or starred[0] != 0 or np.any(body != head + 3):
        return None
    item_count, valid = parse_numbers(words, line_start[body] + 1, line_end[body])
    if not valid.all() or np.any(data[line_start[head] + 1] != _TWO) or np.any(item_count % 2):
        return None
    next_head = head + 4 + 2 * item_count
    if not np.array_equal(np.append(1, next_head), np.append(head, len(line_start))):
        return None
    field_count = item_count // 2
    entry = np.repeat(np.arange(len(head)), field_count)
    index_in_entry = np.arange(len(entry)) - (np.cumsum(field_count) - field_count)[entry]
    name_line = head[entry] + 5 + 4 * index_in_entry
    name_start, name_end = line_start[name_line], line_end[name_line]
    if strict:
        text_line = np.concatenate((head + 2, name_line, name_line + 2))
        length, valid = parse_numbers(words, line_start[text_line - 1] + 1, line_end[text_line - 1])
        if not valid.all() or np.any(length != line_end[text_line] - line_start[text_line]):
            return None
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
    length = np.minimum(end - start, MAX_WIRE_NAME_LENGTH + 1)
    name = low_bytes(words[start], length) | length.astype(np.uint64) << np.uint64(56)
    return np.where(length <= MAX_WIRE_NAME_LENGTH, name, np.uint64(0))


def _name_word(wire: str) -> np.uint64:
    return np.uint64(int.from_bytes(wire.encode().ljust(7, b"\0") + bytes([len(wire)]), "little"))


def _read_regular(definition: MetricDefinition, layout: _Layout) -> tuple[Rows, Flags]:
    """Return rows for all entries, and which of them are regular; the others are read one by one."""
    entries = len(layout.id_start)
    regular = np.ones(entries, dtype=np.bool_)
    measured = np.zeros(entries, dtype=np.bool_)

    def locate_field(wire: str) -> tuple[Integers, Integers, Integers]:
        """Return the entries that have the field, in order, and the bounds of its value."""
        field_index = np.flatnonzero(layout.name == _name_word(wire))
        entry = layout.field_entry[field_index]
        repeated = np.concatenate(([False], entry[1:] == entry[:-1])) if len(entry) else entry == 0
        if repeated.any():
            regular[entry[repeated]] = False
            field_index, entry = field_index[~repeated], entry[~repeated]
        return entry, layout.value_start[field_index], layout.value_end[field_index]

    def number_column(wire: str, absent: int | Integers) -> tuple[Integers, Flags]:
        entry, start, end = locate_field(wire)
        value, valid = parse_numbers(layout.words, start, end)
        regular[entry[~valid]] = False
        column = np.empty(entries, dtype=np.int64)
        column[:] = absent
        column[entry] = value
        present = np.zeros(entries, dtype=np.bool_)
        present[entry] = True
        return column, present

    id_ms, id_sequence = _parse_ids(layout, regular)
    at_ms, _ = number_column("t", id_ms)
    regular &= (at_ms >= id_ms - MAX_LATENESS_MS) & (at_ms <= np.minimum(id_ms + MAX_AHEAD_MS, MAX_TIME_MS))
    dimensions = []
    for dimension in definition.dimensions:
        entry, start, end = locate_field(dimension.wire)
        dimensions.append(_text_column(layout, entries, entry, start, end, dimension.optional, regular))
    counters = {}
    for counter in definition.counters:
        counters[counter.name], present = number_column(counter.wire, 0)
        measured |= present
    gauges, observed = {}, np.zeros(entries, dtype=np.bool_)
    for gauge in definition.gauges:
        gauges[gauge.name], present = number_column(gauge.wire, ABSENT)
        observed |= present
    samples = {}
    for sample in definition.samples:
        samples[sample.name] = _list_column(layout, entries, *locate_field(sample.wire), regular)
        measured |= samples[sample.name].lengths > 0
    regular &= measured | observed
    return Rows(
        dimensions=dimensions,
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(entries, dtype=np.int64),
        seen_ms=np.where(observed, at_ms, ABSENT),
        seen_id=sortable_id(id_ms, id_sequence),
        counters=counters,
        gauge_max=gauges,
        gauge_last=gauges,
        samples=samples,
    ), regular


def _parse_ids(layout: _Layout, regular: Flags) -> tuple[Integers, Integers]:
    dash = layout.id_start + _MS_DIGITS
    milliseconds, valid = parse_numbers(layout.words, layout.id_start, np.minimum(dash, layout.id_end))
    sequence, valid_sequence = parse_numbers(layout.words, np.minimum(dash + 1, layout.id_end), layout.id_end)
    regular &= valid & valid_sequence & (layout.data[dash] == _DASH)
    return milliseconds, sequence


def _text_column(
    layout: _Layout,
    entries: int,
    entry: Integers,
    start: Integers,
    end: Integers,
    optional: bool,
    regular: Flags,
) -> pa.Array:
    """Return the values of the dimension as a dictionary column; absent values are empty text."""
    begin = np.full(entries, ABSENT)
    begin[entry] = start
    finish = np.full(entries, PADDING)
    finish[entry] = end
    # Absent values become empty spans at the end of the previous value.
    finish = np.maximum.accumulate(finish)
    begin = np.where(begin == ABSENT, finish, begin)
    if not optional:
        regular &= finish > begin
    # The offsets alternate between a value and the gap to the next value, over the reply itself. No byte is
    # copied until `take` selects the values.
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
        texts = [_decode_or_none(value) for value in values.dictionary.to_pylist()]
        undecodable = np.array([text is None for text in texts])
        regular &= ~undecodable[values.indices.to_numpy()]
        dictionary = pa.array([f"\0{i}" if text is None else text for i, text in enumerate(texts)])
    return pa.DictionaryArray.from_arrays(values.indices, dictionary)


def _list_column(
    layout: _Layout, entries: int, entry: Integers, start: Integers, end: Integers, regular: Flags
) -> NumberLists:
    counts, values, valid = parse_number_lists(layout.data, layout.words, start, end)
    regular[entry[~valid]] = False
    lengths = np.zeros(entries, dtype=np.int64)
    lengths[entry] = counts
    return NumberLists(lengths, values)


def _entries_by_index(layout: _Layout, indexes: Integers) -> list[Entry]:
    def text(start: Integers, end: Integers, i: int) -> bytes:
        return layout.data[start[i] : end[i]].tobytes()

    entries = []
    for i in indexes:
        fields = range(*np.searchsorted(layout.field_entry, [i, i + 1]))
        pairs = [
            (text(layout.name_start, layout.name_end, j), text(layout.value_start, layout.value_end, j))
            for j in fields
        ]
        entries.append((text(layout.id_start, layout.id_end, i), pairs))
    return entries


def _decode_or_none(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None
