"""A backlog of metric events, as single entries and packed, and what must be in ClickHouse afterwards.

Each form lies in a Redis database of its own and is copied to the working one before a turn, so that every
contestant finds the same streams.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from msgspec import msgpack
from redis import Redis

from penstock.definitions import PACK_WIRE, QUEUE
from penstock.shards import shard_of
from penstock.streams.packing import pack
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_tables

SINGLE, PACKED = "single", "packed"
DATABASES = {SINGLE: 1, PACKED: 2}
WORKING = 0

PACK_EVENTS = 100
"""Events per packed entry: what a busy broker gathers for one stream, well below the most there can be."""

EVENTS_PER_S = 3_333
"""How fast the backlog came in: two million events are what an outage of ten minutes leaves behind."""

WRITE_EVENTS = 500

_ADD = """
for place, entry in ipairs(cmsgpack.unpack(ARGV[1])) do
  if #entry == 3 then
    table.insert(entry, ARGV[1 + place])
  end
  redis.call("XADD", KEYS[entry[1]], entry[2], unpack(entry, 3))
end
"""

Fields = dict[str, str | int]


@dataclass(slots=True)
class Totals:
    """What each tier has to hold: events, counters, and number and sum of every sample."""

    events: int = 0
    sums: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def events(count: int, queues: int, seed: int, begin_ms: int) -> Iterator[tuple[Fields, int]]:
    """Events in order of time: a task enqueued, started or finished, each with the gauges it changed.

    As scripts inside Redis emit them, one per operation, with the time it happened.
    """
    random = np.random.default_rng(seed)
    queue = random.integers(0, queues, count).tolist()
    kind = random.integers(0, 3, count).tolist()
    depth = random.integers(0, 5_000, count).tolist()
    running = random.integers(0, 50, count).tolist()
    took = random.gamma(2.0, 400.0, count).astype(np.int64).tolist()
    at = (begin_ms + np.arange(count) * 1000 // EVENTS_PER_S).tolist()
    names = [f"service-{number % 17}.task-{number}" for number in range(queues)]
    place = {"org": "acme", "proj": "shop", "env": "production"}
    for number in range(count):
        fields: Fields = {**place, "queue": names[queue[number]], "group": "workers" if kind[number] else ""}
        fields["t"] = at[number]
        if kind[number] == 0:
            fields |= {"eq": 1, "ql": depth[number], "age": took[number]}
        elif kind[number] == 1:
            fields |= {"dq": 1, "ql": depth[number], "cc": running[number], "wt": took[number]}
        else:
            fields |= {"ak": 1, "cc": running[number], "rt": took[number]}
        yield fields, at[number]


class Backlog:
    """Streams filled once, in one or both forms."""

    def __init__(
        self, redis_url: str, count: int, queues: int, forms: tuple[str, ...], seed: int = 1
    ) -> None:
        self.count = count
        self.queues = queues
        self.totals = Totals()
        self._url = redis_url
        self._shards: dict[str, int] = {}
        begin_ms = int((time.time() - 60) * 1000) - count * 1000 // EVENTS_PER_S
        writers = {form: _Writer(self._client(DATABASES[form])) for form in forms}
        packs: dict[int, list[tuple[Fields, int]]] = defaultdict(list)
        for fields, at_ms in events(count, queues, seed, begin_ms):
            shard = self._shard(str(fields["queue"]))
            self._count(fields)
            if SINGLE in writers:
                words = [word for pair in fields.items() for word in pair]
                writers[SINGLE].add(shard, at_ms, words)
            if PACKED in writers:
                packs[shard].append((fields, at_ms))
                if len(packs[shard]) == PACK_EVENTS:
                    writers[PACKED].add(shard, at_ms, [PACK_WIRE, _packed(packs.pop(shard))])
        for shard, left in packs.items():
            writers[PACKED].add(shard, left[-1][1], [PACK_WIRE, _packed(left)])
        for writer in writers.values():
            writer.finish()

    def put_in_place(self, form: str) -> None:
        """The streams of this form, untouched, in the working database; nothing else is there."""
        with self._client(WORKING) as working, self._client(DATABASES[form]) as kept:
            working.flushdb()
            for key in QUEUE.stream_keys:
                if kept.exists(key):
                    kept.copy(key, key, destination_db=WORKING)

    def memory_mb(self, form: str) -> float:
        with self._client(DATABASES[form]) as kept:
            return sum(kept.memory_usage(key) or 0 for key in QUEUE.stream_keys) / 2**20

    def _client(self, database: int) -> Redis:
        return Redis.from_url(urlunsplit(urlsplit(self._url)._replace(path=f"/{database}")))

    def _shard(self, queue: str) -> int:
        shard = self._shards.get(queue)
        if shard is None:
            shard = self._shards[queue] = shard_of(queue, QUEUE.shards)
        return shard

    def _count(self, fields: Fields) -> None:
        totals = self.totals
        totals.events += 1
        for counter in QUEUE.counters:
            totals.sums[counter.name] += int(fields.get(counter.wire, 0))
        for sample in QUEUE.samples:
            if sample.wire in fields:
                totals.sums[f"{sample.name}_count"] += 1
                totals.sums[f"{sample.name}_sum"] += int(fields[sample.wire])


class _Writer:
    """Adds entries with ids of their events' times, many per call."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        client.flushdb()
        self._script = client.register_script(_ADD)
        self._entries: list[list[Any]] = []
        self._last_ms, self._sequence = 0, 0

    def add(self, shard: int, at_ms: int, words: list[Any]) -> None:
        self._sequence = self._sequence + 1 if at_ms == self._last_ms else 0
        self._last_ms = at_ms
        self._entries.append([shard + 1, f"{at_ms}-{self._sequence}", *words])
        if len(self._entries) == WRITE_EVENTS:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._client.close()

    def _flush(self) -> None:
        # Redis's reader of MessagePack knows no bytes, so these stand on their own.
        payloads = [entry.pop() for entry in self._entries if isinstance(entry[-1], bytes)]
        self._script(keys=list(QUEUE.stream_keys), args=[msgpack.encode(self._entries), *payloads])
        self._entries = []


def _packed(some: list[tuple[Fields, int]]) -> bytes:
    payload = pack(QUEUE, some)
    if payload is None:
        raise RuntimeError("these events cannot be packed")
    return payload


def check(warehouse: Warehouse, wanted: Totals) -> None:
    """Raise unless every tier holds exactly what was emitted."""
    for table in tier_tables(QUEUE):
        columns = ", ".join(f"sum({name}) AS {name}_found" for name in ("events", *wanted.sums))
        [row] = warehouse.query(f"SELECT {columns} FROM {table.name}")
        for name, number in {"events": wanted.events, **wanted.sums}.items():
            if int(row[f"{name}_found"]) != number:
                raise RuntimeError(f"{table.name}: {name} is {row[f'{name}_found']} and should be {number}")
