"""Replay rejected events: add those that can be read now to their streams again.

An event may be readable after a fix of its definition or of the reader. It keeps its time, so it counts in
the bucket to which it belongs. An event that still cannot be read stays where it is.

Every event is added once. One transaction adds a chunk of events to the streams and writes down which they
are; afterwards ClickHouse marks them as replayed. A replay that was killed in between is completed by the
next one, and of two replays at the same time one repeats its chunk. On a cluster, a transaction has one slot,
so each stream has its own chunks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from redis import Redis
from redis.exceptions import WatchError
from redis.typing import EncodableT, FieldT

from penstock.definitions import TIME_WIRE, MetricDefinition
from penstock.redis_clients import is_cluster
from penstock.streams.packing import InvalidPackError, packed_payload, unpack
from penstock.streams.positions import parse_entry_id
from penstock.streams.wire import RejectedEvent, decode_fields, read_entry
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.rejected_events import KeptEvent, RejectedKey, mark_replayed, read_kept

CHUNK_EVENTS = 200
PENDING_PREFIX = "penstock:pipeline:replay"
FIRST_KEY = RejectedKey(0, "", "")

Pairs = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class ReplayResult:
    """The result for one metric: rejected events added to their streams, and those that cannot be read."""

    metric: str
    replayed: int = 0
    still_rejected: int = 0


class RejectedReplay:
    """Replays the rejected events of one metric."""

    def __init__(self, definition: MetricDefinition, redis: Redis, warehouse: Warehouse) -> None:
        self._definition = definition
        self._redis = redis
        self._warehouse = warehouse

    def run(self, *, dry_run: bool = False) -> ReplayResult:
        """Replay all kept events; with `dry_run`, only count them."""
        result, streams = ReplayResult(self._definition.name), self._definition.stream_keys
        if is_cluster(self._redis):
            for stream in streams:
                self._replay_streams((stream,), f"{PENDING_PREFIX}:{{{stream}}}", result, dry_run=dry_run)
        else:
            self._replay_streams(
                streams, f"{PENDING_PREFIX}:{self._definition.name}", result, dry_run=dry_run
            )
        return result

    def _replay_streams(
        self, streams: Sequence[str], pending_key: str, result: ReplayResult, *, dry_run: bool
    ) -> None:
        """Replay the events of some streams.

        `pending_key` is the Redis key of the chunk that is in the streams and not marked in ClickHouse yet.
        """
        after = FIRST_KEY
        while True:
            self._complete_pending_chunk(pending_key)
            with self._redis.pipeline(transaction=True) as transaction:
                # Another replay that adds a chunk or completes one changes the key: this one then repeats.
                transaction.watch(pending_key)  # type: ignore[no-untyped-call]
                if transaction.exists(pending_key):
                    continue
                page = read_kept(self._warehouse, self._definition.name, after, CHUNK_EVENTS)
                if not page:
                    return
                kept = [event for event in page if self._target_stream(event.key) in streams]
                entries = {event.key: self._entries_to_add(event) for event in kept}
                keys = [key for key, pairs in entries.items() if pairs]
                if keys and not dry_run:
                    transaction.multi()
                    for key in keys:
                        self._add_to_stream(transaction, self._target_stream(key), entries[key])
                    transaction.set(pending_key, json.dumps({"token": uuid4().hex, "keys": keys}))
                    try:
                        transaction.execute()
                    except WatchError:
                        continue
            result.replayed += len(keys)
            result.still_rejected += len(kept) - len(keys)
            after = page[-1].key

    def _complete_pending_chunk(self, pending_key: str) -> None:
        text = self._redis.get(pending_key)
        if text is None:
            return
        pending = json.loads(text)
        keys = [RejectedKey(*key) for key in pending["keys"]]
        mark_replayed(self._warehouse, self._definition.name, keys, f"replay:{pending['token']}")
        self._redis.delete(pending_key)

    def _entries_to_add(self, event: KeptEvent) -> list[Pairs]:
        """Return the single entries that hold the event now; none if it cannot be read."""
        if not event.fields:
            return []
        pairs = decode_fields(event.fields)
        payload = packed_payload(pairs)
        try:
            events = [pairs] if payload is None else unpack(payload)
        except InvalidPackError:
            return []
        entered_ms = parse_entry_id(event.key.entry.partition("#")[0])[0]
        timed = [_with_time(pairs, entered_ms) for pairs in events]
        now_id = b"%d-0" % (time.time() * 1000)
        readable = (read_entry(self._definition, now_id, pairs) for pairs in timed)
        return [] if any(isinstance(content, RejectedEvent) for content in readable) else timed

    def _add_to_stream(self, transaction: Redis, stream: str, entries: Sequence[Pairs]) -> None:
        for pairs in entries:
            # A name that is in the entry twice is not declared, or the event could not be read.
            fields: dict[FieldT, EncodableT] = {name: value for name, value in pairs}  # noqa: C416
            transaction.xadd(stream, fields)

    def _target_stream(self, key: RejectedKey) -> str:
        streams = self._definition.stream_keys
        return key.stream if key.stream in streams else streams[0]


def _with_time(pairs: Pairs, entered_ms: int) -> Pairs:
    name = TIME_WIRE.encode()
    return pairs if any(pair[0] == name for pair in pairs) else [*pairs, (name, b"%d" % entered_ms)]
