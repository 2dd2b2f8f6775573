"""Many events in one stream entry, column by column.

A packed entry has one field, `p`. It means what the single entries would mean that `unpack` makes of it; how
they would be read is said in `wire` alone.

Events with the same field names in the same order have a *shape*. The payload is MessagePack: the format's
version, the shapes, one byte per event with its shape's number, and a column per field name. Columns are
ordered by shape, then by event, and hold values of those events alone whose shape has the name:

- numbers: a base and the little-endian differences to it, 0 (all equal), 1, 2, 4 or 8 bytes each;
- texts: the distinct ones, and one byte per event with its text's number (none if there is one text);
- lists, as the text they are in single entries: the length of each, as numbers, and all of them joined.
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

MOST_EVENTS = 256
"""Per entry, so that one byte can number them."""

Fields = Mapping[str, str | int]
Pairs = list[tuple[bytes, bytes]]
Numbers = tuple[int, bytes]
Texts = tuple[tuple[str, ...], bytes]
ListTexts = tuple[Numbers, bytes]

_TYPES = (("b", 7), ("h", 15), ("i", 31), ("q", 63))
_WIDTHS = (1, 2, 4, 8)
_WIDE = 1 << 31
_LARGEST_BASE = 1 << 53
_CODES = bytes(range(MOST_EVENTS))


class BrokenPackError(Exception):
    """A payload that is not a pack."""


class Pack(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """A payload as it is written."""

    version: int
    shapes: tuple[tuple[str, ...], ...]
    shape_of: bytes
    numbers: dict[str, Numbers]
    texts: dict[str, Texts]
    lists: dict[str, ListTexts]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Pack)


def pack(definition: MetricDefinition, events: Sequence[tuple[Fields, int]]) -> bytes | None:
    """The payload for up to 256 events, each with the time it gets if its fields have none.

    None if some event does not fit: it has fields nobody declared, or values of another kind. Such an event
    has to go as an entry of its own.
    """
    try:
        return _packed(definition, events)
    except (KeyError, TypeError, OverflowError, UnicodeEncodeError):
        return None


def _packed(definition: MetricDefinition, events: Sequence[tuple[Fields, int]]) -> bytes:
    shape_names = [tuple(fields) for fields, _ in events]
    numbered = {shape: number for number, shape in enumerate(dict.fromkeys(shape_names))}
    shape_of = bytes(map(numbered.__getitem__, shape_names))
    members: list[list[tuple[Fields, int]]] = [[] for _ in numbered]
    for event, shape in zip(events, shape_of, strict=True):
        members[shape].append(event)
    columns: dict[str, list[str | int]] = {}
    shapes = []
    for names, some in zip(numbered, members, strict=True):
        rows = [fields.values() for fields, _ in some]
        for name, column in zip(names, zip(*rows, strict=True), strict=False):
            columns.setdefault(name, []).extend(column)
        if TIME_WIRE in names:
            shapes.append(names)
        else:
            shapes.append((*names, TIME_WIRE))
            columns.setdefault(TIME_WIRE, []).extend([at_ms for _, at_ms in some])
    into: dict[str, dict[str, object]] = {"numbers": {}, "texts": {}, "lists": {}}
    kinds = column_kinds(definition)
    for name, values in columns.items():
        into[kinds[name]][name] = _ENCODE[kinds[name]](values)
    return _encoder.encode((VERSION, shapes, shape_of, *into.values()))


@lru_cache(maxsize=64)
def column_kinds(definition: MetricDefinition) -> dict[str, str]:
    """Which of a pack's three kinds of columns a field is in."""
    return {
        TIME_WIRE: "numbers",
        **{measure.wire: "numbers" for measure in (*definition.counters, *definition.gauges)},
        **{dimension.wire: "texts" for dimension in definition.dimensions},
        **{sample.wire: "lists" for sample in definition.samples},
    }


def _number_column(values: Sequence[int]) -> Numbers:
    low, high = min(values), max(values)
    if type(low) is not int or type(high) is not int:
        raise TypeError
    if low == high:
        if abs(low) > _LARGEST_BASE:
            raise OverflowError
        return low, b""
    base = 0
    if _WIDE <= low <= _LARGEST_BASE and high - low < _WIDE:
        base, low, high = low, 0, high - low
        values = [value - base for value in values]
    for code, bits in _TYPES:
        if -(1 << bits) <= low and high < 1 << bits:
            column = array(code, values)
            if sys.byteorder == "big":
                column.byteswap()
            return base, column.tobytes()
    raise OverflowError


def _text_column(values: Sequence[str]) -> tuple[list[str], bytes]:
    distinct = list(dict.fromkeys(values))
    if not all(type(text) is str for text in distinct):
        raise TypeError
    if len(distinct) == 1:
        return distinct, b""
    numbered = {text: number for number, text in enumerate(distinct)}
    return distinct, bytes(map(numbered.__getitem__, values))


def _list_column(values: Sequence[str | int]) -> tuple[Numbers, bytes]:
    texts = [value if type(value) is str else _number_text(value) for value in values]
    return _number_column(list(map(len, texts))), "".join(texts).encode("ascii")


def _number_text(value: str | int) -> str:
    if type(value) is not int:
        raise TypeError
    return str(value)


_ENCODE: dict[str, Callable[[list[Any]], object]] = {
    "numbers": _number_column,
    "texts": _text_column,
    "lists": _list_column,
}


class Opened(NamedTuple):
    """A payload whose columns are all as long as they have to be."""

    pack: Pack
    shape_counts: list[int]
    """How many events have each shape."""
    counts: dict[str, int]
    """How many events have each field."""


def opened(payload: bytes | bytearray | memoryview) -> Opened:
    """The payload taken apart. Raises BrokenPackError."""
    try:
        found = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenPackError(str(error)) from None
    if found.version != VERSION:
        raise BrokenPackError(f"version {found.version}")
    if len(found.shapes) > MOST_EVENTS:
        raise BrokenPackError("more shapes than events")
    of_shapes = [found.shape_of.count(shape) for shape in range(len(found.shapes))]
    if not 0 < sum(of_shapes) == len(found.shape_of) <= MOST_EVENTS:
        raise BrokenPackError("events without a shape")
    everywhere, elsewhere = _shape_places(found.shapes)
    counts = dict.fromkeys(everywhere, len(found.shape_of))
    for name, shapes in elsewhere:
        counts[name] = sum([of_shapes[shape] for shape in shapes])
    names = {*found.numbers, *found.texts, *found.lists}
    columns = len(found.numbers) + len(found.texts) + len(found.lists)
    if names != counts.keys() or len(names) != columns:
        raise BrokenPackError("columns and shapes differ")
    for name, column in found.numbers.items():
        _check_numbers(column, counts[name])
    for name, (texts, codes) in found.texts.items():
        events = counts[name] if len(texts) != 1 else 0
        if len(codes) != events or codes.translate(None, _CODES[: len(texts)]):
            raise BrokenPackError("texts that are not there")
    for name, (lengths, joined) in found.lists.items():
        _check_numbers(lengths, counts[name])
        numbers = _number_list(lengths, counts[name])
        if min(numbers, default=0) < 0 or sum(numbers) != len(joined):
            raise BrokenPackError("lists of other lengths")
    return Opened(found, of_shapes, counts)


@lru_cache(maxsize=1024)
def _shape_places(
    shapes: tuple[tuple[str, ...], ...],
) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """The names that all shapes have, and the others with the numbers of the shapes that have them.

    Raises BrokenPackError if one has a name twice.
    """
    if any(len(set(shape)) != len(shape) for shape in shapes):
        raise BrokenPackError("a name twice in a shape")
    names = dict.fromkeys(name for shape in shapes for name in shape)
    places = [(name, [i for i, shape in enumerate(shapes) if name in shape]) for name in names]
    return (
        [name for name, found in places if len(found) == len(shapes)],
        [(name, found) for name, found in places if len(found) < len(shapes)],
    )


def _check_numbers(column: Numbers, events: int) -> None:
    base, data = column
    width, rest = divmod(len(data), events) if events else (0, len(data))
    if rest or (data and width not in _WIDTHS):
        raise BrokenPackError("numbers of no known width")
    if base and not (abs(base) <= _LARGEST_BASE and width < _WIDTHS[-1]):
        raise BrokenPackError("a base that is too large")


def _number_list(column: Numbers, events: int) -> list[int]:
    base, data = column
    if not data:
        return [base] * events
    width = len(data) // events
    values = array(_TYPES[_WIDTHS.index(width)][0], data)
    if sys.byteorder == "big":
        values.byteswap()
    return [base + value for value in values] if base else values.tolist()


def unpack(payload: bytes | bytearray | memoryview) -> list[Pairs]:
    """The fields of every event, in order, as the event's own entry would hold them.

    Raises BrokenPackError.
    """
    found, _, counts = opened(payload)
    values: dict[str, Iterator[bytes]] = {}
    for name, column in found.numbers.items():
        values[name] = iter([b"%d" % number for number in _number_list(column, counts[name])])
    for name, (texts, codes) in found.texts.items():
        values[name] = iter([texts[code].encode() for code in codes or bytes(counts[name])])
    for name, (lengths, joined) in found.lists.items():
        values[name] = _cut(joined, _number_list(lengths, counts[name]))
    events: list[Pairs] = [[] for _ in found.shape_of]
    for number, shape in enumerate(found.shapes):
        for place, other in enumerate(found.shape_of):
            if other == number:
                events[place] = [(name.encode(), next(values[name])) for name in shape]
    return events


def _cut(joined: bytes, lengths: list[int]) -> Iterator[bytes]:
    start = 0
    for length in lengths:
        yield joined[start : start + length]
        start += length


def packed_payload(pairs: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """What a packed entry holds; None for a single one."""
    return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == PACK_WIRE.encode() else None
