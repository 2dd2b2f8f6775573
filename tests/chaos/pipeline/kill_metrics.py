"""Metrics for the kill tests: the real one, and two with faulty insert tokens. All get the same events."""

from __future__ import annotations

from dataclasses import replace

from redis import Redis
from redis.typing import EncodableT, FieldT

from penstock.definitions import QUEUE, MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import SET_ASIDE_TABLE, tier_tables

FRESH_TOKEN = replace(QUEUE, name="fresh_token")
"""Every attempt at an insert has a new token."""

NO_TOKEN = replace(QUEUE, name="no_token")
"""Inserts have no token, so ClickHouse deduplicates by content."""

MUTANTS = (FRESH_TOKEN, NO_TOKEN)

Totals = tuple[int, int, int, int]


def emit(redis: Redis, definition: MetricDefinition, count: int, at_ms: int) -> Totals:
    """Add `count` events to both shards in one transaction; returns the totals that they add to every tier.

    Equal arguments give equal events, without gauges and so without stream ids: two batches can have the same
    content, and both must count.
    """
    with redis.pipeline(transaction=True) as pipe:
        for number in range(count):
            fields: dict[FieldT, EncodableT] = {
                "org": "o",
                "proj": "p",
                "env": "e",
                "queue": f"q{number % 7}",
            }
            fields |= {"t": at_ms, "eq": number, "wt": f"{number % 3},{number % 11}"}
            pipe.xadd(definition.stream_keys[number % definition.shards], fields)
        pipe.execute()
    numbers = range(count)
    return count, sum(numbers), 2 * count, sum(number % 3 + number % 11 for number in numbers)


def totals(warehouse: Warehouse, definition: MetricDefinition) -> dict[str, Totals]:
    """Return events, enqueued, and number and sum of the waits, by table."""
    totals_by_table = {}
    for table in tier_tables(definition):
        [row] = warehouse.query(
            "SELECT sum(events) AS a, sum(enqueued) AS b, sum(wait_ms_count) AS c, sum(wait_ms_sum) AS d "
            f"FROM {table.name}"
        )
        totals_by_table[table.name] = (int(row["a"]), int(row["b"]), int(row["c"]), int(row["d"]))
    return totals_by_table


def set_aside(warehouse: Warehouse) -> list[tuple[str, str, int]]:
    rows = warehouse.query(f"SELECT metric, reason, events FROM {SET_ASIDE_TABLE}")
    return [(row["metric"], row["reason"], int(row["events"])) for row in rows]
