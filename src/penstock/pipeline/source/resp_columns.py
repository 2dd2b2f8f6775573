"""A raw XRANGE reply turned into columns, without an object per entry.

A reply is lines: per entry `*2`, the id's length and text, `*2k`, then k times name length, name, value
length, value. Where the lines fall tells everything, so the whole reply is taken apart with a few vector
operations. Anything unusual goes the plain way: single entries whose values are not ordinary numbers, and the
whole reply when a name or value holds a line break or begins with `*`, which would be taken for structure.
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
    low_bytes,
    parse,
    parse_lists,
    words_of,
)
from penstock.pipeline.source.entry_chunk import Chunk, Entry, joined_chunks, read_plainly
from penstock.pipeline.source.packed_entries import PackedEntry, read_packs
from penstock.pipeline.source.rows import ABSENT, Lists, Rows, id_number, rows_of_events, selected
from penstock.streams.positions import id_parts
from penstock.streams.wire import AHEAD_MS, LAST_MS, LATEST_MS

_CR, _LF, _STAR, _TWO, _DASH = b"\r\n*2-"
_MS_DIGITS = 13
_ENTRY_START = b"*2\r\n$"
_PACK_START = b"*2\r\n$1\r\n%s\r\n$" % PACK_WIRE.encode()
_PACKED_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n" + re.escape(_PACK_START) + rb"(\d+)\r\n")


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
    if buffer.find(_PACK_START, begin, end) < 0:
        chunk = _read_singles(definition, buffer, begin, end)
    else:
        chunk = _read_mixed(definition, buffer, begin, end)
    return chunk or read_plainly(definition, hiredis_entries(buffer[begin:end]))


def hiredis_entries(reply: bytes | bytearray) -> list[Entry]:
    """The reply's entries as objects, by the ordinary parser."""
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    return [(entry, list(zip(body[::2], body[1::2], strict=True))) for entry, body in reader.gets()]


def _read_singles(
    definition: MetricDefinition, buffer: bytes | bytearray, begin: int, end: int
) -> Chunk | None:
    layout = _layout(buffer, begin, end)
    return None if layout is None else _read_layout(definition, layout)


def _read_mixed(
    definition: MetricDefinition, buffer: bytes | bytearray, begin: int, end: int
) -> Chunk | None:
    """The packed entries are cut out, and what is left is read as single ones.

    What looks like a packed entry may be part of some text. Then the text around the cut does not have the
    length it claims, or the entries are not as many as the reply says.
    """
    packed, rest = _cut_packs(buffer, begin, end)
    layout = _layout(rest, PADDING, len(rest) - PADDING, strict=True)
    if layout is None:
        return None
    singles = len(layout.id_start)
    header = re.match(rb"\*(\d+)\r\n", memoryview(buffer)[begin : begin + 16])
    if header is None or int(header[1]) != singles + len(packed):
        return None
    chunks = [read_packs(definition, packed)] if packed else []
    ids = [packed[0][0], packed[-1][0]] if packed else []
    if singles:
        chunks.append(_read_layout(definition, layout))
        ids += [chunks[-1].first_id or b"", chunks[-1].last_id or b""]
    chunk = joined_chunks(chunks)
    ids.sort(key=lambda entry_id: id_parts(entry_id.decode()))
    chunk.first_id, chunk.last_id = ids[0], ids[-1]
    return chunk


def _cut_packs(buffer: bytes | bytearray, begin: int, end: int) -> tuple[list[PackedEntry], bytes]:
    """The packed entries, and the reply without them, with room around it."""
    view = memoryview(buffer)
    packed: list[PackedEntry] = []
    kept: list[bytes | memoryview] = [bytes(PADDING)]
    done = search = begin
    while (found := buffer.find(_PACK_START, search, end)) >= 0:
        search = found + len(_PACK_START)
        start = buffer.rfind(_ENTRY_START, done, found)
        match = _PACKED_ENTRY.match(buffer, start, end) if start >= 0 else None
        if match is None:
            continue
        finish = match.end() + int(match[2])
        if match.end(2) - found > 40 or buffer[finish : finish + 2] != b"\r\n" or finish + 2 > end:
            continue
        packed.append((match[1], bytes(view[match.end() : finish])))
        kept.append(view[done:start])
        done = search = finish + 2
    kept += [view[done:end], bytes(PADDING)]
    return packed, b"".join(kept)


def _read_layout(definition: MetricDefinition, layout: _Layout) -> Chunk:
    if not len(layout.id_start):
        return Chunk(rows_of_events(definition, ()))
    rows, usual = _read_usual(definition, layout)
    if usual.all():
        chunk = Chunk(rows, len(usual))
    else:
        unusual = read_plainly(definition, _entries_at(layout, np.flatnonzero(~usual)))
        chunk = joined_chunks([Chunk(selected(rows, usual)), unusual])
        chunk.entries = len(usual)
    chunk.first_id, chunk.last_id = (
        layout.data[layout.id_start[i] : layout.id_end[i]].tobytes() for i in (0, -1)
    )
    return chunk


def _layout(buffer: bytes | bytearray, begin: int, end: int, *, strict: bool = False) -> _Layout | None:
    """Positions of all parts, or None if the lines do not add up to entries of names and values.

    `strict`: every text must also have the length it claims.
    """
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
    if not np.array_equal(np.append(1, following), np.append(head, len(line_start))):
        return None
    fields = parts // 2
    entry = np.repeat(np.arange(len(head)), fields)
    within = np.arange(len(entry)) - (np.cumsum(fields) - fields)[entry]
    name_line = head[entry] + 5 + 4 * within
    name_start, name_end = line_start[name_line], line_end[name_line]
    if strict:
        texts = np.concatenate((head + 2, name_line, name_line + 2))
        claimed, good = parse(words, line_start[texts - 1] + 1, line_end[texts - 1])
        if not good.all() or np.any(claimed != line_end[texts] - line_start[texts]):
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
    usual &= (at_ms >= id_ms - LATEST_MS) & (at_ms <= np.minimum(id_ms + AHEAD_MS, LAST_MS))
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
        seen_id=id_number(id_ms, id_sequence),
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
    counts, values, good = parse_lists(layout.data, layout.words, start, end)
    usual[entry[~good]] = False
    lengths = np.zeros(entries, dtype=np.int64)
    lengths[entry] = counts
    return Lists(lengths, values)


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
