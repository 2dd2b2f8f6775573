"""Events on streams, and what ClickHouse made of them."""

from __future__ import annotations

from typing import Any

from redis import Redis

from penstock.definitions import QUEUE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.tiers import TIERS

NOW_MS = 1_790_000_000_000
PLACE: dict[str, str | int] = {"org": "o", "proj": "p", "env": "e"}


def event(queue: str = "orders", **fields: str | int) -> dict[str, str | int]:
    return {**PLACE, "queue": queue, **fields}


def add(redis: Redis, shard: int, fields: dict[str, Any], entry_id: str = "*") -> str:
    return redis.xadd(QUEUE.stream_keys[shard], fields, id=entry_id).decode()


def fill(redis: Redis, count: int, *, start: int = 0) -> int:
    """`count` events over both shards; returns the sum of what they enqueue."""
    with redis.pipeline(transaction=False) as pipe:
        for number in range(start, start + count):
            fields = event(f"q{number % 7}", eq=number, ql=number % 5, wt=f"{number % 3},{number % 11}")
            pipe.xadd(QUEUE.stream_keys[number % 2], fields)
        pipe.execute()
    return sum(range(start, start + count))


def totals(warehouse: Warehouse) -> list[tuple[int, int, int, int]]:
    """Events, enqueued, and number and sum of the waits, per tier."""
    found = []
    for tier in TIERS:
        [row] = warehouse.query(
            "SELECT sum(events) AS a, sum(enqueued) AS b, sum(wait_ms_count) AS c, sum(wait_ms_sum) AS d "
            f"FROM {tier_table(QUEUE, tier)}"
        )
        found.append((int(row["a"]), int(row["b"]), int(row["c"]), int(row["d"])))
    return found
