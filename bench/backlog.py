"""A backlog of metric events, as single entries and as packed entries, and the totals expected in ClickHouse.

Each form is kept in its own Redis database and copied to the working database before each run, so that every
contestant reads the same streams.
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
WORKING_DATABASE = 0

PACK_EVENTS = 100
"""Events per packed entry: typical for a busy broker, and well below the maximum."""

EVENTS_PER_S = 3_333
"""Rate at which the backlog arrived: an outage of ten minutes leaves two million events."""

WRITE_EVENTS = 500

_ADD_SCRIPT = """
for index, entry in ipairs(cmsgpack.unpack(ARGV[1])) do
  if #entry == 3 then
    table.insert(entry, ARGV[1 + index])
  end
  redis.call("XADD", KEYS[entry[1]], entry[2], unpack(entry, 3))
end
"""

Fields = dict[str, str | int]


@dataclass(slots=True)
class Totals:
    """The totals that each tier must have: events, counters, and count and sum of every sample."""

    events: int = 0
    sums: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def generate_events(count: int, queues: int, seed: int, start_ms: int) -> Iterator[tuple[Fields, int]]:
    """Yield events in order of time: a task enqueued, started or finished, with the gauges that it changed.

    The Lua scripts of the run queues emit such events, one per operation, with its time.
    """
    random = np.random.default_rng(seed)
    queue = random.integers(0, queues, count).tolist()
    kind = random.integers(0, 3, count).tolist()
    depth = random.integers(0, 5_000, count).tolist()
    running = random.integers(0, 50, count).tolist()
    duration_ms = random.gamma(2.0, 400.0, count).astype(np.int64).tolist()
    at = (start_ms + np.arange(count) * 1000 // EVENTS_PER_S).tolist()
    names = [f"service-{number % 17}.task-{number}" for number in range(queues)]
    environment = {"org": "acme", "proj": "shop", "env": "production"}
    for number in range(count):
        fields: Fields = {
            **environment,
            "queue": names[queue[number]],
            "group": "workers" if kind[number] else "",
        }
        fields["t"] = at[number]
        if kind[number] == 0:
            fields |= {"eq": 1, "ql": depth[number], "age": duration_ms[number]}
        elif kind[number] == 1:
            fields |= {"dq": 1, "ql": depth[number], "cc": running[number], "wt": duration_ms[number]}
        else:
            fields |= {"ak": 1, "cc": running[number], "rt": duration_ms[number]}
        yield fields, at[number]


class Backlog:
    """Streams that are filled once, in one or both forms."""

    def __init__(
        self, redis_url: str, count: int, queues: int, forms: tuple[str, ...], seed: int = 1
    ) -> None:
        self.count = count
        self.queues = queues
        self.totals = Totals()
        self._url = redis_url
        self._shards: dict[str, int] = {}
        start_ms = int((time.time() - 60) * 1000) - count * 1000 // EVENTS_PER_S
        writers = {form: _Writer(self._client(DATABASES[form])) for form in forms}
        packs: dict[int, list[tuple[Fields, int]]] = defaultdict(list)
        for fields, at_ms in generate_events(count, queues, seed, start_ms):
            shard = self._shard(str(fields["queue"]))
            self._add_to_totals(fields)
            if SINGLE in writers:
                writers[SINGLE].add(shard, at_ms, [item for pair in fields.items() for item in pair])
            if PACKED in writers:
                packs[shard].append((fields, at_ms))
                if len(packs[shard]) == PACK_EVENTS:
                    writers[PACKED].add(shard, at_ms, [PACK_WIRE, _pack(packs.pop(shard))])
        for shard, remaining in packs.items():
            writers[PACKED].add(shard, remaining[-1][1], [PACK_WIRE, _pack(remaining)])
        for writer in writers.values():
            writer.finish()

    def load(self, form: str) -> None:
        """Replace the working database with a fresh copy of the streams in this form."""
        with self._client(WORKING_DATABASE) as working, self._client(DATABASES[form]) as source:
            working.flushdb()
            for key in QUEUE.stream_keys:
                if source.exists(key):
                    source.copy(key, key, destination_db=WORKING_DATABASE)

    def memory_mb(self, form: str) -> float:
        """Return the memory of the streams in this form."""
        with self._client(DATABASES[form]) as source:
            return sum(source.memory_usage(key) or 0 for key in QUEUE.stream_keys) / 2**20

    def _client(self, database: int) -> Redis:
        return Redis.from_url(urlunsplit(urlsplit(self._url)._replace(path=f"/{database}")))

    def _shard(self, queue: str) -> int:
        shard = self._shards.get(queue)
        if shard is None:
            shard = self._shards[queue] = shard_of(queue, QUEUE.shards)
        return shard

    def _add_to_totals(self, fields: Fields) -> None:
        totals = self.totals
        totals.events += 1
        for counter in QUEUE.counters:
            totals.sums[counter.name] += int(fields.get(counter.wire, 0))
        for sample in QUEUE.samples:
            if sample.wire in fields:
                totals.sums[f"{sample.name}_count"] += 1
                totals.sums[f"{sample.name}_sum"] += int(fields[sample.wire])


class _Writer:
    """Adds entries whose ids are the times of their events, many per call."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        client.flushdb()
        self._script = client.register_script(_ADD_SCRIPT)
        self._entries: list[list[Any]] = []
        self._last_ms, self._sequence = 0, 0

    def add(self, shard: int, at_ms: int, items: list[Any]) -> None:
        self._sequence = self._sequence + 1 if at_ms == self._last_ms else 0
        self._last_ms = at_ms
        self._entries.append([shard + 1, f"{at_ms}-{self._sequence}", *items])
        if len(self._entries) == WRITE_EVENTS:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._client.close()

    def _flush(self) -> None:
        # cmsgpack in Redis cannot decode binary values, so payloads are separate arguments.
        payloads = [entry.pop() for entry in self._entries if isinstance(entry[-1], bytes)]
        self._script(keys=list(QUEUE.stream_keys), args=[msgpack.encode(self._entries), *payloads])
        self._entries = []


def _pack(events: list[tuple[Fields, int]]) -> bytes:
    payload = pack(QUEUE, events)
    if payload is None:
        raise RuntimeError("These events cannot be packed")
    return payload


def check_totals(warehouse: Warehouse, expected: Totals) -> None:
    """Raise an error unless every tier has exactly the expected totals."""
    for table in tier_tables(QUEUE):
        columns = ", ".join(f"sum({name}) AS {name}_total" for name in ("events", *expected.sums))
        [row] = warehouse.query(f"SELECT {columns} FROM {table.name}")
        for name, total in {"events": expected.events, **expected.sums}.items():
            if int(row[f"{name}_total"]) != total:
                raise RuntimeError(f"{table.name}: {name} is {row[f'{name}_total']}, expected {total}")
