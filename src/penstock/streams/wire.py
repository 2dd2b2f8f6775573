"""The format of metric events on a stream, and the reference reader, entry by entry.

An entry holds one event, many packed events (see `packing`), or the report of an emitter that it lost events.

This reader is the specification. The pipeline has a faster reader for the usual entries and passes the
unusual ones to this one; a property test compares the two. An entry that cannot be counted is rejected with
one of the reasons below and its text, and never affects other entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.definitions import LOST_SINCE_WIRE, LOST_WIRE, PACK_WIRE, TIME_WIRE, MetricDefinition
from penstock.streams.packing import InvalidPackError, packed_payload, unpack
from penstock.streams.positions import parse_entry_id

MAX_DIGITS = 15
"""Larger numbers are not measurements; sums of numbers up to this size stay exact."""

MAX_LATENESS_MS = 31 * 24 * 3_600_000
MAX_AHEAD_MS = 3_600_000
"""How far an event's own time may lie before and after the time at which it entered the stream."""

MAX_TIME_MS = (1 << 41) - 1
"""The year 2039. Later times are invalid, and do not fit into the stored columns."""

EXAMPLE_LENGTH = 500

MAX_FIELDS_LENGTH = 128 << 10
"""A rejected event with more text than this is kept without its fields, so it cannot be replayed."""

_LOST_NAME = LOST_WIRE.encode()


class RejectionReason(StrEnum):
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
    """Counts as one rejected event, however many events the entry held."""
    DROPPED = "dropped"
    """Never written to a stream: the buffer of the emitter was full, or Redis refused the event."""
    TRIMMED = "trimmed"
    """Never read: the stream was trimmed before the pipeline read the entry."""
    STREAM_REPLACED = "stream_replaced"
    """Counts as no event: Redis restarted with fewer entries, and the number lost is unknown."""


@dataclass(frozen=True, slots=True)
class Event:
    """A decoded event; gauges that were not observed are absent. `index` is its index in a packed entry."""

    id_ms: int
    id_sequence: int
    at_ms: int
    dimensions: tuple[str, ...]
    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    samples: Mapping[str, tuple[int, ...]]
    index: int = 0


@dataclass(frozen=True, slots=True)
class LostEvents:
    """An emitter's report that it dropped events whose times lie between the two, inclusively."""

    events: int
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that is not counted. `fields` holds all of it (see `encode_fields`), `text` its beginning.

    `entry` is the id of its entry, followed by `#` and its index if the entry is packed.
    """

    reason: RejectionReason
    entry: str
    text: str
    fields: str

    @property
    def example(self) -> str:
        return f"{self.entry} {self.text}"[:EXAMPLE_LENGTH]


class _RejectedError(Exception):
    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason)
        self.reason = reason


def read_events(
    definition: MetricDefinition, entry_id: bytes, pairs: list[tuple[bytes, bytes]]
) -> list[Event | LostEvents | RejectedEvent]:
    """Return the events of one stream entry, single or packed, in order."""
    payload = packed_payload(pairs)
    if payload is None:
        return [read_entry(definition, entry_id, pairs)]
    try:
        events = unpack(payload)
    except InvalidPackError:
        return [reject_pack(entry_id, payload)]
    return [_read_event(definition, entry_id, pairs, index) for index, pairs in enumerate(events)]


def read_entry(
    definition: MetricDefinition, entry_id: bytes, pairs: list[tuple[bytes, bytes]]
) -> Event | LostEvents | RejectedEvent:
    """Return the content of a single entry, or why it is rejected. Undeclared fields are ignored."""
    return _read_event(definition, entry_id, pairs)


def reject_pack(entry_id: bytes, payload: bytes) -> RejectedEvent:
    text = f"{PACK_WIRE}=0x{payload[:EXAMPLE_LENGTH].hex()}"
    return _reject(RejectionReason.BROKEN_PACK, entry_id.decode(), text, [(PACK_WIRE.encode(), payload)])


def _read_event(
    definition: MetricDefinition,
    entry_id: bytes,
    pairs: list[tuple[bytes, bytes]],
    index: int | None = None,
) -> Event | LostEvents | RejectedEvent:
    try:
        if any(name == _LOST_NAME for name, _ in pairs):
            return _decode_lost_events(entry_id, dict(pairs))
        return _decode_event(definition, entry_id, pairs, index or 0)
    except _RejectedError as rejection:
        location = entry_id.decode() if index is None else f"{entry_id.decode()}#{index}"
        text = b" ".join(b"%s=%s" % pair for pair in pairs).decode("utf-8", "replace")
        return _reject(rejection.reason, location, text, pairs)


def _reject(
    reason: RejectionReason, entry: str, text: str, pairs: Sequence[tuple[bytes, bytes]]
) -> RejectedEvent:
    fields = encode_fields(pairs)
    return RejectedEvent(
        reason, entry, text[:EXAMPLE_LENGTH], fields if len(fields) <= MAX_FIELDS_LENGTH else ""
    )


def encode_fields(pairs: Sequence[tuple[bytes, bytes]]) -> str:
    """Return the names and values of an entry, in turn, as a JSON array in ASCII.

    A byte that is not UTF-8 becomes a lone surrogate, so the array holds every entry exactly.
    """
    return json.dumps([part.decode("utf-8", "surrogateescape") for pair in pairs for part in pair])


def decode_fields(text: str) -> list[tuple[bytes, bytes]]:
    """Return the pairs that `encode_fields` encoded."""
    parts = iter([part.encode("utf-8", "surrogateescape") for part in json.loads(text)])
    return list(zip(parts, parts, strict=True))


def _decode_event(
    definition: MetricDefinition, entry_id: bytes, pairs: list[tuple[bytes, bytes]], index: int
) -> Event:
    declared = definition.wire_names
    known = [pair for pair in pairs if pair[0] in declared]
    fields = dict(known)
    if len(fields) != len(known):
        raise _RejectedError(RejectionReason.REPEATED_FIELD)
    id_ms, id_sequence = parse_entry_id(entry_id.decode())
    dimensions = []
    for dimension in definition.dimensions:
        raw = fields.get(dimension.wire.encode(), b"")
        if not raw and not dimension.optional:
            raise _RejectedError(RejectionReason.MISSING_DIMENSION)
        try:
            dimensions.append(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise _RejectedError(RejectionReason.NOT_TEXT) from None
    counters, gauges, samples = {}, {}, {}
    for counter in definition.counters:
        if (text := fields.get(counter.wire.encode())) is not None:
            counters[counter.name] = _parse_number(text)
            if counters[counter.name] < 0:
                raise _RejectedError(RejectionReason.NEGATIVE_COUNT)
    for gauge in definition.gauges:
        if (text := fields.get(gauge.wire.encode())) is not None:
            # Small clock differences produce negative ages; those are ages of 0.
            gauges[gauge.name] = max(0, _parse_number(text))
    for sample in definition.samples:
        if text := fields.get(sample.wire.encode()):
            samples[sample.name] = tuple(max(0, _parse_number(number)) for number in text.split(b","))
    if not (counters or gauges or samples):
        raise _RejectedError(RejectionReason.NOTHING_MEASURED)
    at_ms = _parse_number(fields[b"t"]) if b"t" in fields else id_ms
    if not max(0, id_ms - MAX_LATENESS_MS) <= at_ms <= min(id_ms + MAX_AHEAD_MS, MAX_TIME_MS):
        raise _RejectedError(RejectionReason.BAD_TIME)
    return Event(id_ms, id_sequence, at_ms, tuple(dimensions), counters, gauges, samples, index)


def _decode_lost_events(entry_id: bytes, fields: Mapping[bytes, bytes]) -> LostEvents:
    id_ms = parse_entry_id(entry_id.decode())[0]
    events = _parse_number(fields[_LOST_NAME])
    until_ms = _parse_number(fields[TIME_WIRE.encode()]) if TIME_WIRE.encode() in fields else id_ms
    since_ms = _parse_number(fields.get(LOST_SINCE_WIRE.encode(), b"%d" % until_ms))
    if events < 0:
        raise _RejectedError(RejectionReason.NEGATIVE_COUNT)
    if not 0 <= since_ms <= until_ms <= min(id_ms + MAX_AHEAD_MS, MAX_TIME_MS):
        raise _RejectedError(RejectionReason.BAD_TIME)
    return LostEvents(events, since_ms, until_ms)


def _parse_number(text: bytes) -> int:
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit():
        raise _RejectedError(RejectionReason.NOT_A_NUMBER)
    if len(digits) > MAX_DIGITS:
        raise _RejectedError(RejectionReason.TOO_LARGE)
    return int(text)
