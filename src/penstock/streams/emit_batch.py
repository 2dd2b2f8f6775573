"""A batch of events in the form of emit.lua's keys and arguments.

Where many events go to one stream they are packed, up to 256 per entry; a few stay single. The order of a
stream's events is kept: one that cannot be packed parts those before it from those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from msgspec import msgpack

from penstock.definitions import TIME_WIRE, MetricDefinition
from penstock.shards import shard_of
from penstock.streams.packing import MOST_EVENTS, Fields, pack

PACK_FROM = 8
"""Fewer events for a stream go as single entries, which any Redis tool shows in clear."""

MOST_BYTES = 16 << 10
"""Larger packs are divided: events may have hundreds of samples, and readers ask for many entries at once."""

MARK_LIFE_S = 24 * 3600

_shard_of = lru_cache(maxsize=20_000)(shard_of)


Emission = tuple[MetricDefinition, Fields, str | None, int]
"""An event on its way: what it is of, its fields, its shard key, and its time unless the fields have one."""


class ScriptCall(NamedTuple):
    keys: list[str]
    arguments: list[bytes | int]
    sizes: list[int]
    """How many events each entry holds."""


def script_call(
    mark_key: str, number: int, events: Iterable[Emission], next_shard: Callable[[], int]
) -> ScriptCall:
    """The call that adds the events. Those without a shard key take the shards that `next_shard` names."""
    streams: dict[str, tuple[MetricDefinition, list[tuple[Fields, int]]]] = {}
    for definition, fields, shard_key, at_ms in events:
        if shard_key is None:
            shard = next_shard() % definition.shards
        else:
            shard = _shard_of(shard_key, definition.shards)
        key = definition.stream_keys[shard]
        if key not in streams:
            streams[key] = (definition, [])
        streams[key][1].append((fields, at_ms))
    entries: list[list[str | int]] = []
    bounds: list[bytes | int] = []
    payloads: list[bytes | int] = []
    sizes: list[int] = []
    first_payload = 4 + 2 * len(streams)
    for place, (definition, some) in enumerate(streams.values(), 1):
        bounds += (definition.max_stream_length, definition.max_stream_bytes)
        for content, size in _entries(definition, some):
            if isinstance(content, bytes):
                entries.append([place, first_payload + len(payloads)])
                payloads.append(content)
            else:
                entries.append([place, *content])
            sizes.append(size)
    arguments: list[bytes | int] = [number, MARK_LIFE_S, _encoded(entries), *bounds, *payloads]
    return ScriptCall([mark_key, *streams], arguments, sizes)


def _entries(
    definition: MetricDefinition, events: Sequence[tuple[Fields, int]]
) -> Iterator[tuple[bytes | list[str | int], int]]:
    """The stream's entries, each with the number of its events: a payload, or names and values."""
    if len(events) < PACK_FROM:
        yield from ((_words(*event), 1) for event in events)
    elif len(events) > MOST_EVENTS:
        yield from _in_parts(definition, events, -(-len(events) // MOST_EVENTS))
    elif (payload := pack(definition, events)) is None:
        for fits, run in groupby(events, key=lambda event: pack(definition, [event]) is not None):
            together = list(run)
            if fits and len(together) < len(events):
                yield from _entries(definition, together)
            else:
                yield from ((_words(*event), 1) for event in together)
    elif len(payload) > MOST_BYTES and len(events) >= 2 * PACK_FROM:
        yield from _in_parts(definition, events, 2)
    else:
        yield payload, len(events)


def _in_parts(
    definition: MetricDefinition, events: Sequence[tuple[Fields, int]], parts: int
) -> Iterator[tuple[bytes | list[str | int], int]]:
    size = -(-len(events) // parts)
    for start in range(0, len(events), size):
        yield from _entries(definition, events[start : start + size])


def _words(fields: Fields, at_ms: int) -> list[str | int]:
    words: list[str | int] = []
    for pair in fields.items():
        words += pair
    if TIME_WIRE not in fields:
        words += (TIME_WIRE, at_ms)
    return words


def _encoded(entries: list[list[str | int]]) -> bytes:
    try:
        return msgpack.encode(entries)
    except (UnicodeEncodeError, OverflowError, TypeError):
        # A value that nobody can write must not fail the whole batch.
        return msgpack.encode([[_valid(word) for word in words] for words in entries])


def _valid(word: str | int) -> str | int:
    if isinstance(word, int) and -(1 << 53) <= word <= 1 << 53:
        return word
    return str(word).encode("utf-8", "replace").decode()
