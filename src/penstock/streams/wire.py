"""The form of a metric event on a stream, and its plain reading, entry by entry.

An entry is one event, or many packed into one (see `packing`).

This reader is the specification: the pipeline has a faster one for the usual entries, hands the unusual ones
to this, and a property test holds the two together. An entry that cannot be counted is set aside under one
of the reasons below, with its text; it never holds up its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.definitions import PACK_WIRE, MetricDefinition
from penstock.streams.packing import BrokenPackError, packed_payload, unpack
from penstock.streams.positions import id_parts

MOST_DIGITS = 15
"""Larger numbers are no measurement; up to here sums of many stay exact."""

LATEST_MS = 31 * 24 * 3_600_000
AHEAD_MS = 3_600_000
"""How far an event's own time may lie behind and before the time it entered the stream."""

LAST_MS = (1 << 41) - 1
"""The year 2039. Later ones are no times, and would not fit where times are kept."""

EXAMPLE_LENGTH = 500


class Reason(StrEnum):
    """Why an entry was not counted."""

    MISSING_DIMENSION = "missing_dimension"
    NOT_TEXT = "not_text"
    NOT_A_NUMBER = "not_a_number"
    NEGATIVE_COUNT = "negative_count"
    TOO_LARGE = "too_large"
    BAD_TIME = "bad_time"
    REPEATED_FIELD = "repeated_field"
    NOTHING_MEASURED = "nothing_measured"
    BROKEN_PACK = "broken_pack"
    """Counts one, however many events the entry may have held."""
    TRIMMED = "trimmed"
    """Never read: the stream was cut before the pipeline got there."""
    STREAM_REPLACED = "stream_replaced"
    """Counts no event: Redis came back with fewer entries than it had, and how many are gone nobody knows."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event as read; gauges that were not observed are absent. `index` is its place in a packed entry."""

    id_ms: int
    id_sequence: int
    at_ms: int
    dimensions: tuple[str, ...]
    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    samples: Mapping[str, tuple[int, ...]]
    index: int = 0


@dataclass(frozen=True, slots=True)
class SetAside:
    reason: Reason
    example: str


class _UnusableError(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def read_events(
    definition: MetricDefinition, entry_id: bytes, pairs: list[tuple[bytes, bytes]]
) -> list[Event | SetAside]:
    """The events in one stream entry, single or packed, in order."""
    payload = packed_payload(pairs)
    if payload is None:
        return [read_entry(definition, entry_id, pairs)]
    try:
        events = unpack(payload)
    except BrokenPackError:
        return [broken_pack(entry_id, payload)]
    return [_read(definition, entry_id, pairs, index) for index, pairs in enumerate(events)]


def read_entry(
    definition: MetricDefinition, entry_id: bytes, pairs: list[tuple[bytes, bytes]]
) -> Event | SetAside:
    """The event in a single entry, or why it cannot be counted. Fields nobody declared are ignored."""
    return _read(definition, entry_id, pairs)


def broken_pack(entry_id: bytes, payload: bytes) -> SetAside:
    return SetAside(Reason.BROKEN_PACK, f"{entry_id.decode()} {PACK_WIRE}=0x{payload.hex()}"[:EXAMPLE_LENGTH])


def _read(
    definition: MetricDefinition,
    entry_id: bytes,
    pairs: list[tuple[bytes, bytes]],
    index: int | None = None,
) -> Event | SetAside:
    try:
        return _event(definition, entry_id, pairs, index or 0)
    except _UnusableError as unusable:
        place = entry_id.decode() if index is None else f"{entry_id.decode()}#{index}"
        text = b" ".join(b"%s=%s" % pair for pair in pairs).decode("utf-8", "replace")
        return SetAside(unusable.reason, f"{place} {text}"[:EXAMPLE_LENGTH])


def _event(
    definition: MetricDefinition, entry_id: bytes, pairs: list[tuple[bytes, bytes]], index: int
) -> Event:
    declared = definition.wire_names
    known = [pair for pair in pairs if pair[0] in declared]
    fields = dict(known)
    if len(fields) != len(known):
        raise _UnusableError(Reason.REPEATED_FIELD)
    id_ms, id_sequence = id_parts(entry_id.decode())
    dimensions = []
    for dimension in definition.dimensions:
        raw = fields.get(dimension.wire.encode(), b"")
        if not raw and not dimension.optional:
            raise _UnusableError(Reason.MISSING_DIMENSION)
        try:
            dimensions.append(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise _UnusableError(Reason.NOT_TEXT) from None
    counters, gauges, samples = {}, {}, {}
    for counter in definition.counters:
        if (text := fields.get(counter.wire.encode())) is not None:
            counters[counter.name] = _number(text)
            if counters[counter.name] < 0:
                raise _UnusableError(Reason.NEGATIVE_COUNT)
    for gauge in definition.gauges:
        if (text := fields.get(gauge.wire.encode())) is not None:
            # Clocks that differ by a little make ages of -1; that is an age of 0.
            gauges[gauge.name] = max(0, _number(text))
    for sample in definition.samples:
        if text := fields.get(sample.wire.encode()):
            samples[sample.name] = tuple(max(0, _number(part)) for part in text.split(b","))
    if not (counters or gauges or samples):
        raise _UnusableError(Reason.NOTHING_MEASURED)
    at_ms = _number(fields[b"t"]) if b"t" in fields else id_ms
    if not max(0, id_ms - LATEST_MS) <= at_ms <= min(id_ms + AHEAD_MS, LAST_MS):
        raise _UnusableError(Reason.BAD_TIME)
    return Event(id_ms, id_sequence, at_ms, tuple(dimensions), counters, gauges, samples, index)


def _number(text: bytes) -> int:
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit():
        raise _UnusableError(Reason.NOT_A_NUMBER)
    if len(digits) > MOST_DIGITS:
        raise _UnusableError(Reason.TOO_LARGE)
    return int(text)
