"""Metrics for the kill tests: the real one, and two whose inserts are spoiled. All get the same events."""

from __future__ import annotations

from dataclasses import replace

from redis import Redis

from penstock.definitions import QUEUE, MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import SET_ASIDE_TABLE, tier_tables

FRESH_TOKEN = replace(QUEUE, name="fresh_token")
"""Every attempt at an insert has a token of its own."""

NO_TOKEN = replace(QUEUE, name="no_token")
"""Inserts have no token, so that their content decides."""

MUTANTS = (FRESH_TOKEN, NO_TOKEN)

Totals = tuple[int, int, int, int]


def emit(redis: Redis, definition: MetricDefinition, count: int, at_ms: int) -> Totals:
    """`count` events over both shards, all at once; what they add to every tier.

    Equal arguments make equal events, and no gauge remembers where in the stream it was seen: so two batches
    can have the same content and must both count.
    """
    with redis.pipeline(transaction=True) as pipe:
        for number in range(count):
            place = {"org": "o", "proj": "p", "env": "e", "queue": f"q{number % 7}"}
            measured = {"t": at_ms, "eq": number, "wt": f"{number % 3},{number % 11}"}
            pipe.xadd(definition.stream_keys[number % definition.shards], {**place, **measured})
        pipe.execute()
    numbers = range(count)
    return count, sum(numbers), 2 * count, sum(number % 3 + number % 11 for number in numbers)


def totals(warehouse: Warehouse, definition: MetricDefinition) -> dict[str, Totals]:
    """Events, enqueued, and number and sum of the waits, by table."""
    found = {}
    for table in tier_tables(definition):
        [row] = warehouse.query(
            "SELECT sum(events) AS a, sum(enqueued) AS b, sum(wait_ms_count) AS c, sum(wait_ms_sum) AS d "
            f"FROM {table.name}"
        )
        found[table.name] = (int(row["a"]), int(row["b"]), int(row["c"]), int(row["d"]))
    return found


def set_aside(warehouse: Warehouse) -> list[tuple[str, str, int]]:
    rows = warehouse.query(f"SELECT metric, reason, events FROM {SET_ASIDE_TABLE}")
    return [(row["metric"], row["reason"], int(row["events"])) for row in rows]
