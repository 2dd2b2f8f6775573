"""Build the calls of emit.lua for a batch of events: one call, or one per stream on a cluster.

Many events of one stream are packed, up to 256 per entry; a few stay single entries. The order of a
stream's events is kept: an event that cannot be packed separates those before it from those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby, islice
from typing import NamedTuple

from msgspec import msgpack

from penstock.definitions import LOST_WIRE, TIME_WIRE, MetricDefinition
from penstock.shards import shard_of
from penstock.streams.emitted_totals import TOTALS_KEY, stream_totals_key
from penstock.streams.packing import MAX_EVENTS_PER_PACK, Fields, pack

MIN_EVENTS_TO_PACK = 8
"""Fewer events of a stream are written as single entries, which every Redis tool can display."""

MAX_PACK_BYTES = 16 << 10
"""Larger packs are split: events may have hundreds of samples, and readers request many entries at once."""

MARK_TTL_S = 24 * 3600
EMITTER_PREFIX = "penstock:emitter"

_cached_shard_of = lru_cache(maxsize=20_000)(shard_of)


Counts = tuple[str | int, ...]
"""Fields of the emitted totals and the amounts to add to them, in turn; an amount of 0 removes the field."""

PendingEvent = tuple[MetricDefinition, Fields, str | None, int, Counts]
"""Definition, fields, shard key, the time in ms for an event whose fields hold none, and its counts."""

EntryContent = bytes | list[str | int]
"""A pack, or the names and values of a single event in turn."""


StreamEvents = tuple[MetricDefinition, list[tuple[Fields, int]], list[Counts]]
"""The events of one stream, and the counts of each."""


class ScriptCall(NamedTuple):
    keys: list[str]
    arguments: list[bytes | int]
    entries: list[tuple[MetricDefinition, int]]
    """The metric of each entry, and the number of its events; 0 for a report of lost events."""

    @property
    def event_count(self) -> int:
        return sum(events for _, events in self.entries)


def build_script_calls(
    emitter_id: str,
    number: int,
    events: Iterable[PendingEvent],
    next_shard: Callable[[], int],
    min_events_to_pack: int = MIN_EVENTS_TO_PACK,
    *,
    is_cluster: bool = False,
) -> list[ScriptCall]:
    """Return the calls that add the events. `next_shard` chooses the shard of events without a shard key.

    On a cluster, every stream has its own call with its own mark and totals, because a script cannot use the
    slots of two streams. A batch that is sent again must have the same calls.
    """
    streams = _group_by_stream(events, next_shard)
    if not is_cluster:
        mark_key = f"{EMITTER_PREFIX}:{emitter_id}"
        return [_build_call([mark_key, TOTALS_KEY], number, streams, min_events_to_pack)]
    return [
        _build_call(
            [f"{EMITTER_PREFIX}:{{{stream}}}:{emitter_id}", stream_totals_key(stream)],
            number,
            {stream: stream_events},
            min_events_to_pack,
        )
        for stream, stream_events in streams.items()
    ]


def _group_by_stream(
    events: Iterable[PendingEvent], next_shard: Callable[[], int]
) -> dict[str, StreamEvents]:
    streams: dict[str, StreamEvents] = {}
    for definition, fields, shard_key, at_ms, counts in events:
        if shard_key is None:
            shard = next_shard() % definition.shards
        else:
            shard = _cached_shard_of(shard_key, definition.shards)
        key = definition.stream_keys[shard]
        if key not in streams:
            streams[key] = (definition, [], [])
        streams[key][1].append((fields, at_ms))
        streams[key][2].append(counts)
    return streams


def _build_call(
    first_keys: list[str], number: int, streams: dict[str, StreamEvents], min_events_to_pack: int
) -> ScriptCall:
    entries: list[list[str | int]] = []
    stream_limits: list[bytes | int] = []
    payloads: list[bytes | int] = []
    counts_of_entries: list[list[str | int]] = []
    events_of_entries: list[tuple[MetricDefinition, int]] = []
    first_payload = 5 + 2 * len(streams)
    for stream_number, (definition, stream_events, stream_counts) in enumerate(streams.values(), 1):
        stream_limits += (definition.max_stream_length, definition.max_stream_bytes)
        remaining_counts = iter(stream_counts)
        for content, size in _build_entries(definition, stream_events, min_events_to_pack):
            if isinstance(content, bytes):
                entries.append([stream_number, first_payload + len(payloads)])
                payloads.append(content)
            else:
                entries.append([stream_number, *content])
            counts_of_entries.append([*chain.from_iterable(islice(remaining_counts, size))])
            is_report = not isinstance(content, bytes) and content[0] == LOST_WIRE
            events_of_entries.append((definition, 0 if is_report else size))
    arguments: list[bytes | int] = [
        number,
        MARK_TTL_S,
        _encode_entries(entries),
        _encode_entries(counts_of_entries),
        *stream_limits,
        *payloads,
    ]
    return ScriptCall([*first_keys, *streams], arguments, events_of_entries)


def _build_entries(
    definition: MetricDefinition, events: Sequence[tuple[Fields, int]], min_events_to_pack: int
) -> Iterator[tuple[EntryContent, int]]:
    """Yield the content of the stream's entries, each with the number of its events."""
    if len(events) < min_events_to_pack:
        yield from ((_names_and_values(*event), 1) for event in events)
    elif len(events) > MAX_EVENTS_PER_PACK:
        chunks = -(-len(events) // MAX_EVENTS_PER_PACK)
        yield from _build_in_chunks(definition, events, chunks, min_events_to_pack)
    elif (payload := pack(definition, events)) is None:
        for is_packable, run in groupby(events, key=lambda event: pack(definition, [event]) is not None):
            run_events = list(run)
            if is_packable and len(run_events) < len(events):
                yield from _build_entries(definition, run_events, min_events_to_pack)
            else:
                yield from ((_names_and_values(*event), 1) for event in run_events)
    elif len(payload) > MAX_PACK_BYTES and len(events) >= 2 * min_events_to_pack:
        yield from _build_in_chunks(definition, events, 2, min_events_to_pack)
    else:
        yield payload, len(events)


def _build_in_chunks(
    definition: MetricDefinition, events: Sequence[tuple[Fields, int]], chunks: int, min_events_to_pack: int
) -> Iterator[tuple[EntryContent, int]]:
    size = -(-len(events) // chunks)
    for start in range(0, len(events), size):
        yield from _build_entries(definition, events[start : start + size], min_events_to_pack)


def _names_and_values(fields: Fields, at_ms: int) -> list[str | int]:
    content: list[str | int] = []
    for name_and_value in fields.items():
        content += name_and_value
    if TIME_WIRE not in fields:
        content += (TIME_WIRE, at_ms)
    return content


def _encode_entries(entries: list[list[str | int]]) -> bytes:
    try:
        return msgpack.encode(entries)
    except (UnicodeEncodeError, OverflowError, TypeError):
        # A value that cannot be encoded must not fail the whole batch.
        return msgpack.encode([[_to_encodable(value) for value in entry] for entry in entries])


def _to_encodable(value: str | int) -> str | int:
    if isinstance(value, int) and -(1 << 53) <= value <= 1 << 53:
        return value
    return str(value).encode("utf-8", "replace").decode()
