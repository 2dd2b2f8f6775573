"""Pack many events into one stream entry, column by column.

A packed entry has one field, `p`. It is equivalent to the single entries that `unpack` returns; only `wire`
defines how an entry is read.

Events with the same field names in the same order have the same *shape*. The payload is MessagePack: the
version of the format, the shapes, one byte per event with the number of its shape, and a column per field
name. A column holds the values of the events whose shape has the name, ordered by shape, then by event:

- numbers: a base and the little-endian differences to it, 0 (all equal), 1, 2, 4 or 8 bytes each;
- texts: the distinct texts, and one byte per event with the number of its text (none if there is one text);
- lists, in the text form of single entries: the length of each, as numbers, and all texts joined.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from penstock.definitions import PACK_WIRE, TIME_WIRE, MetricDefinition

VERSION = 1

MAX_EVENTS_PER_PACK = 256
"""One byte numbers the events."""

Fields = Mapping[str, str | int]
Pairs = list[tuple[bytes, bytes]]
Numbers = tuple[int, bytes]
Texts = tuple[tuple[str, ...], bytes]
ListTexts = tuple[Numbers, bytes]

_ARRAY_TYPES = (("b", 7), ("h", 15), ("i", 31), ("q", 63))
_WIDTHS = (1, 2, 4, 8)
_MIN_BASE = 1 << 31
_MAX_BASE = 1 << 53
_ALL_NUMBERS = bytes(range(MAX_EVENTS_PER_PACK))


class InvalidPackError(Exception):
    """The payload is not a valid pack."""


class Pack(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """The encoded form of a payload."""

    version: int
    shapes: tuple[tuple[str, ...], ...]
    shape_of: bytes
    numbers: dict[str, Numbers]
    texts: dict[str, Texts]
    lists: dict[str, ListTexts]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Pack)


def pack(definition: MetricDefinition, events: Sequence[tuple[Fields, int]]) -> bytes | None:
    """Return the payload for up to 256 events. Each comes with the time to use if its fields hold none.

    Returns None if an event cannot be packed: it has undeclared fields, or values of another type. Such an
    event must be a single entry.
    """
    try:
        return _encode_pack(definition, events)
    except (KeyError, TypeError, OverflowError, UnicodeEncodeError):
        return None


def _encode_pack(definition: MetricDefinition, events: Sequence[tuple[Fields, int]]) -> bytes:
    shape_names = [tuple(fields) for fields, _ in events]
    numbered = {shape: number for number, shape in enumerate(dict.fromkeys(shape_names))}
    shape_of = bytes(map(numbered.__getitem__, shape_names))
    members: list[list[tuple[Fields, int]]] = [[] for _ in numbered]
    for event, shape in zip(events, shape_of, strict=True):
        members[shape].append(event)
    columns: dict[str, list[str | int]] = {}
    shapes = []
    for names, shape_events in zip(numbered, members, strict=True):
        rows = [fields.values() for fields, _ in shape_events]
        for name, column in zip(names, zip(*rows, strict=True), strict=False):
            columns.setdefault(name, []).extend(column)
        if TIME_WIRE in names:
            shapes.append(names)
        else:
            shapes.append((*names, TIME_WIRE))
            columns.setdefault(TIME_WIRE, []).extend([at_ms for _, at_ms in shape_events])
    encoded: dict[str, dict[str, object]] = {"numbers": {}, "texts": {}, "lists": {}}
    kinds = column_kinds(definition)
    for name, values in columns.items():
        encoded[kinds[name]][name] = _COLUMN_ENCODERS[kinds[name]](values)
    return _encoder.encode((VERSION, shapes, shape_of, *encoded.values()))


@lru_cache(maxsize=64)
def column_kinds(definition: MetricDefinition) -> dict[str, str]:
    """Return the kind of column of each field: numbers, texts or lists."""
    return {
        TIME_WIRE: "numbers",
        **{measure.wire: "numbers" for measure in (*definition.counters, *definition.gauges)},
        **{dimension.wire: "texts" for dimension in definition.dimensions},
        **{sample.wire: "lists" for sample in definition.samples},
    }


def _encode_numbers(values: Sequence[int]) -> Numbers:
    low, high = min(values), max(values)
    if type(low) is not int or type(high) is not int:
        raise TypeError
    if low == high:
        if abs(low) > _MAX_BASE:
            raise OverflowError
        return low, b""
    base = 0
    if _MIN_BASE <= low <= _MAX_BASE and high - low < _MIN_BASE:
        base, low, high = low, 0, high - low
        values = [value - base for value in values]
    for code, bits in _ARRAY_TYPES:
        if -(1 << bits) <= low and high < 1 << bits:
            column = array(code, values)
            if sys.byteorder == "big":
                column.byteswap()
            return base, column.tobytes()
    raise OverflowError


def _encode_texts(values: Sequence[str]) -> tuple[list[str], bytes]:
    distinct = list(dict.fromkeys(values))
    if not all(type(text) is str for text in distinct):
        raise TypeError
    if len(distinct) == 1:
        return distinct, b""
    numbered = {text: number for number, text in enumerate(distinct)}
    return distinct, bytes(map(numbered.__getitem__, values))


def _encode_lists(values: Sequence[str | int]) -> tuple[Numbers, bytes]:
    texts = [value if type(value) is str else _format_number(value) for value in values]
    return _encode_numbers(list(map(len, texts))), "".join(texts).encode("ascii")


def _format_number(value: str | int) -> str:
    if type(value) is not int:
        raise TypeError
    return str(value)


_COLUMN_ENCODERS: dict[str, Callable[[list[Any]], object]] = {
    "numbers": _encode_numbers,
    "texts": _encode_texts,
    "lists": _encode_lists,
}


class DecodedPack(NamedTuple):
    """A payload whose columns have the right lengths."""

    pack: Pack
    shape_counts: list[int]
    """How many events have each shape."""
    counts: dict[str, int]
    """How many events have each field."""


def decode_pack(payload: bytes | bytearray | memoryview) -> DecodedPack:
    """Decode and check a payload. Raises InvalidPackError."""
    try:
        decoded = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPackError(str(error)) from None
    if decoded.version != VERSION:
        raise InvalidPackError(f"version {decoded.version}")
    if len(decoded.shapes) > MAX_EVENTS_PER_PACK:
        raise InvalidPackError("more shapes than events")
    shape_counts = [decoded.shape_of.count(shape) for shape in range(len(decoded.shapes))]
    if not 0 < sum(shape_counts) == len(decoded.shape_of) <= MAX_EVENTS_PER_PACK:
        raise InvalidPackError("events without a shape")
    common_names, other_names = _split_names(decoded.shapes)
    counts = dict.fromkeys(common_names, len(decoded.shape_of))
    for name, shapes in other_names:
        counts[name] = sum([shape_counts[shape] for shape in shapes])
    names = {*decoded.numbers, *decoded.texts, *decoded.lists}
    columns = len(decoded.numbers) + len(decoded.texts) + len(decoded.lists)
    if names != counts.keys() or len(names) != columns:
        raise InvalidPackError("columns and shapes differ")
    for name, column in decoded.numbers.items():
        _check_numbers(column, counts[name])
    for name, (texts, codes) in decoded.texts.items():
        events = counts[name] if len(texts) != 1 else 0
        if len(codes) != events or codes.translate(None, _ALL_NUMBERS[: len(texts)]):
            raise InvalidPackError("text numbers out of range")
    for name, (lengths, joined) in decoded.lists.items():
        _check_numbers(lengths, counts[name])
        numbers = _decode_numbers(lengths, counts[name])
        if min(numbers, default=0) < 0 or sum(numbers) != len(joined):
            raise InvalidPackError("list lengths do not match")
    return DecodedPack(decoded, shape_counts, counts)


@lru_cache(maxsize=1024)
def _split_names(
    shapes: tuple[tuple[str, ...], ...],
) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """Return the names in all shapes, and the other names with the numbers of their shapes.

    Raises InvalidPackError if a shape repeats a name.
    """
    if any(len(set(shape)) != len(shape) for shape in shapes):
        raise InvalidPackError("a repeated name in a shape")
    names = dict.fromkeys(name for shape in shapes for name in shape)
    shapes_by_name = [(name, [i for i, shape in enumerate(shapes) if name in shape]) for name in names]
    return (
        [name for name, with_name in shapes_by_name if len(with_name) == len(shapes)],
        [(name, with_name) for name, with_name in shapes_by_name if len(with_name) < len(shapes)],
    )


def _check_numbers(column: Numbers, events: int) -> None:
    base, data = column
    width, remainder = divmod(len(data), events) if events else (0, len(data))
    if remainder or (data and width not in _WIDTHS):
        raise InvalidPackError("numbers of an unknown width")
    if base and not (abs(base) <= _MAX_BASE and width < _WIDTHS[-1]):
        raise InvalidPackError("a base out of range")


def _decode_numbers(column: Numbers, events: int) -> list[int]:
    base, data = column
    if not data:
        return [base] * events
    width = len(data) // events
    values = array(_ARRAY_TYPES[_WIDTHS.index(width)][0], data)
    if sys.byteorder == "big":
        values.byteswap()
    return [base + value for value in values] if base else values.tolist()


def unpack(payload: bytes | bytearray | memoryview) -> list[Pairs]:
    """Return the fields of every event, in order, as a single entry would hold them.

    Raises InvalidPackError.
    """
    decoded, _, counts = decode_pack(payload)
    values: dict[str, Iterator[bytes]] = {}
    for name, column in decoded.numbers.items():
        values[name] = iter([b"%d" % number for number in _decode_numbers(column, counts[name])])
    for name, (texts, codes) in decoded.texts.items():
        values[name] = iter([texts[code].encode() for code in codes or bytes(counts[name])])
    for name, (lengths, joined) in decoded.lists.items():
        values[name] = _split(joined, _decode_numbers(lengths, counts[name]))
    events: list[Pairs] = [[] for _ in decoded.shape_of]
    for number, shape in enumerate(decoded.shapes):
        for index, event_shape in enumerate(decoded.shape_of):
            if event_shape == number:
                events[index] = [(name.encode(), next(values[name])) for name in shape]
    return events


def _split(joined: bytes, lengths: list[int]) -> Iterator[bytes]:
    start = 0
    for length in lengths:
        yield joined[start : start + length]
        start += length


def packed_payload(pairs: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the payload of a packed entry; None for a single entry."""
    return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == PACK_WIRE.encode() else None
