"""A simple consumer without Spark: read the streams with redis-py and hiredis, sum in dicts, insert.

It inserts the same landing rows into the same table with the same insert as Penstock, in one process. Unlike
Penstock, it stores no position, sets no entries aside and fails on a malformed entry; all of these would cost
it more time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from redis import Redis

from penstock.definitions import PACK_WIRE, QUEUE
from penstock.streams.packing import unpack
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import landing_table

READ_ENTRIES = 10_000
READ_PACKS = 100
FLUSH_EVENTS = 400_000
"""Events per insert: as many as Penstock puts into one batch."""

CHUNK_ROWS = 100_000
BUCKET_MS = QUEUE.bucket_ms

EVENTS, NEWEST, SEEN_MS, SEEN_ID, FIRST = range(5)
COUNTERS = {measure.wire.encode(): FIRST + i for i, measure in enumerate(QUEUE.counters)}
_GAUGES = FIRST + len(COUNTERS)
GAUGES = {measure.wire.encode(): _GAUGES + 2 * i for i, measure in enumerate(QUEUE.gauges)}
_SAMPLES = _GAUGES + 2 * len(GAUGES)
SAMPLES = {measure.wire.encode(): _SAMPLES + i for i, measure in enumerate(QUEUE.samples)}

Entry = tuple[bytes, dict[bytes, bytes]]


def read_entries(redis: Redis, count: int) -> Iterator[list[Entry]]:
    """Yield all entries of all streams in turn, `count` at a time."""
    next_ids = dict.fromkeys(QUEUE.stream_keys, "-")
    while next_ids:
        for key, next_id in list(next_ids.items()):
            entries: Any = redis.xrange(key, next_id, "+", count=count)
            if entries:
                yield entries
                next_ids[key] = f"({entries[-1][0].decode()}"
            if len(entries) < count:
                del next_ids[key]


def read_and_discard(redis: Redis, count: int) -> None:
    """Read all entries without processing them."""
    for _ in read_entries(redis, count):
        pass


def consume(redis: Redis, warehouse: Warehouse, packed: bool) -> None:
    """Count all entries of the streams in ClickHouse."""
    rows: dict[tuple[Any, ...], list[Any]] = {}
    pending = batch = 0
    for entries in read_entries(redis, READ_PACKS if packed else READ_ENTRIES):
        pending += fold(_unpack_entries(entries) if packed else entries, rows)
        if pending >= FLUSH_EVENTS:
            _insert(warehouse, rows, batch)
            rows, pending, batch = {}, 0, batch + 1
    if rows:
        _insert(warehouse, rows, batch)


def _unpack_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    field = PACK_WIRE.encode()
    for entry_id, fields in entries:
        for pairs in unpack(fields[field]):
            yield entry_id, dict(pairs)


def fold(entries: Iterable[Entry], rows: dict[tuple[Any, ...], list[Any]]) -> int:
    """Add the entries to their rows; returns the number of entries."""
    count = 0
    blank = [0, 0, None, None, *[0] * len(COUNTERS), *[None] * (2 * len(GAUGES))]
    counter_of, gauge_of, sample_of = COUNTERS.get, GAUGES.get, SAMPLES.get
    for entry_id, fields in entries:
        count += 1
        at_ms = int(fields[b"t"])
        key = (
            *(fields[b"org"], fields[b"proj"], fields[b"env"], fields[b"queue"], fields[b"group"]),
            at_ms - at_ms % BUCKET_MS,
        )
        row = rows.get(key)
        if row is None:
            row = rows[key] = [*blank, *([] for _ in SAMPLES)]
        row[EVENTS] += 1
        if at_ms > row[NEWEST]:
            row[NEWEST] = at_ms
        has_gauges = False
        for name, value in fields.items():
            if (index := counter_of(name)) is not None:
                row[index] += int(value)
            elif (index := gauge_of(name)) is not None:
                number = int(value)
                highest = row[index]
                if highest is None or number > highest:
                    row[index] = number
                row[index + 1] = number
                has_gauges = True
            elif (index := sample_of(name)) is not None:
                if b"," in value:
                    row[index].extend(map(int, value.split(b",")))
                else:
                    row[index].append(int(value))
        if has_gauges:
            milliseconds, _, sequence = entry_id.partition(b"-")
            row[SEEN_MS] = at_ms
            row[SEEN_ID] = (int(milliseconds) << 22) + int(sequence)
    return count


def _insert(warehouse: Warehouse, rows: dict[tuple[Any, ...], list[Any]], batch: int) -> None:
    keys, values = list(zip(*rows, strict=True)), list(zip(*rows.values(), strict=True))
    number = pa.uint64()
    columns: dict[str, pa.Array] = {}
    for dimension, texts in zip(QUEUE.dimensions, keys, strict=False):
        columns[dimension.name] = pa.array(texts, pa.binary()).cast(pa.string())
    columns["at"] = pa.array(keys[-1], pa.timestamp("ms", "UTC"))
    for name, index in (
        ("events", EVENTS),
        ("newest_ms", NEWEST),
        ("seen_ms", SEEN_MS),
        ("seen_id", SEEN_ID),
    ):
        columns[name] = pa.array(values[index], number)
    measures: list[tuple[str, int, Callable[[Any], pa.Array]]] = []
    for measure in QUEUE.counters:
        measures.append((measure.name, COUNTERS[measure.wire.encode()], lambda v: pa.array(v, number)))
    for measure in QUEUE.gauges:
        index = GAUGES[measure.wire.encode()]
        for kind, offset in (("max", 0), ("last", 1)):
            measures.append((f"{measure.name}_{kind}", index + offset, lambda v: pa.array(v, number)))
    for measure in QUEUE.samples:
        index = SAMPLES[measure.wire.encode()]
        measures.append((measure.name, index, lambda v: pa.array(v, pa.list_(number))))
    for name, index, to_array in measures:
        columns[name] = to_array(values[index])
    table = pa.table(columns)
    for chunk, start in enumerate(range(0, table.num_rows, CHUNK_ROWS)):
        chunk_rows = table.slice(start, CHUNK_ROWS).combine_chunks()
        warehouse.insert_once(landing_table(QUEUE), chunk_rows, f"plain:{batch}:{chunk}")
