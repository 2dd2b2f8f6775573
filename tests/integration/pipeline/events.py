"""Helpers that add events to the streams and read the totals from ClickHouse."""

from __future__ import annotations

from collections.abc import Mapping

from redis import Redis
from redis.typing import EncodableT, FieldT

from penstock.definitions import QUEUE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.tiers import TIERS

NOW_MS = 1_790_000_000_000
ENVIRONMENT: dict[str, str | int] = {"org": "o", "proj": "p", "env": "e"}


def event(queue: str = "orders", **fields: str | int) -> dict[str, str | int]:
    """Return the fields of an event of one queue."""
    return {**ENVIRONMENT, "queue": queue, **fields}


def entry_fields(fields: Mapping[str, EncodableT]) -> dict[FieldT, EncodableT]:
    """Return the fields in the type that XADD takes."""
    return {name: value for name, value in fields.items()}  # noqa: C416 - dict() keeps the narrower type


def add(redis: Redis, shard: int, fields: Mapping[str, EncodableT], entry_id: str = "*") -> str:
    """Add an entry to a shard of the queue metric; returns its id."""
    added = redis.xadd(QUEUE.stream_keys[shard], entry_fields(fields), id=entry_id)
    assert isinstance(added, bytes)
    return added.decode()


def fill(redis: Redis, count: int, *, start: int = 0) -> int:
    """Add `count` events to both shards; returns the sum of their `enqueued` counters."""
    with redis.pipeline(transaction=False) as pipe:
        for number in range(start, start + count):
            fields = event(f"q{number % 7}", eq=number, ql=number % 5, wt=f"{number % 3},{number % 11}")
            pipe.xadd(QUEUE.stream_keys[number % 2], entry_fields(fields))
        pipe.execute()
    return sum(range(start, start + count))


def totals(warehouse: Warehouse) -> list[tuple[int, int, int, int]]:
    """Return events, enqueued, and number and sum of the waits, per tier."""
    tier_totals = []
    for tier in TIERS:
        [row] = warehouse.query(
            "SELECT sum(events) AS a, sum(enqueued) AS b, sum(wait_ms_count) AS c, sum(wait_ms_sum) AS d "
            f"FROM {tier_table(QUEUE, tier)}"
        )
        tier_totals.append((int(row["a"]), int(row["b"]), int(row["c"]), int(row["d"])))
    return tier_totals
