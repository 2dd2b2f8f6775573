"""Whether push, pop and depth cost the same with millions of stored messages as on an empty database."""

from __future__ import annotations

import statistics
import time
from typing import Any

import asyncpg
from rich.table import Table

from bench import harness
from bench.contestants.penstock import Penstock
from bench.payloads import payloads
from bench.servers import RunningBroker, Servers

PARTITIONS = 10_000
PER_SEGMENT = 10
QUEUE = "deep"
CONNECTIONS = 16

LOAD = """
INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids, payloads)
SELECT (SELECT max(id) FROM chunks), p.id, s * $2::int, s * $2::int + $2::int - 1, now() - interval '1 day',
       array(SELECT gen_random_uuid() FROM generate_series(1, $2::int + 0 * s)),
       array(SELECT convert_to(
                 '{"order":"' || md5((p.id * s + m)::text) || '","customer":' || p.id || ',"note":"'
                 || md5((p.id + m)::text) || md5((s + m)::text) || '","n":' || s || '}', 'UTF8')
             FROM generate_series(1, $2::int) m)
FROM generate_series(0, $1::int - 1) s CROSS JOIN partitions p
"""


async def compare(running: Servers, rows: int, rounds: int, moved: int) -> dict[str, Any]:
    """Cost per operation on both databases, in turns, and the ratios deep ÷ empty.

    `moved` messages are pushed and popped in every round.
    """
    empty = await running.broker("penstock_empty")
    loaded = await running.broker("penstock_deep")
    started = time.perf_counter()
    stored = await _load(loaded.database_url, rows)
    load_s = time.perf_counter() - started
    sides = {"empty": await _Side.open(empty), "deep": await _Side.open(loaded)}
    costs: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for name, side in sides.items():
            for operation, cost_us in (await side.measure(number, moved)).items():
                if number:  # the first round warms up
                    costs.setdefault(operation, {}).setdefault(name, []).append(cost_us)
    for side in sides.values():
        await side.close()
    label = f"{stored // 1_000_000}m" if stored >= 1_000_000 else f"{stored // 1000}k"
    return {
        "messages": stored,
        "partitions": PARTITIONS,
        "load_s": round(load_s, 1),
        "cost_us": {
            operation: {name: round(statistics.median(values), 1) for name, values in found.items()}
            for operation, found in costs.items()
        },
        "ratios": {
            f"{operation}_{label}_vs_empty": statistics.median(
                deep / empty for deep, empty in zip(found["deep"], found["empty"], strict=True)
            )
            for operation, found in costs.items()
        },
    }


async def _load(url: str, rows: int) -> int:
    """Store `rows` messages by SQL, as pushes would have left them; a group that has consumed none."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"}, command_timeout=3600)
    segments = max(rows // PARTITIONS // PER_SEGMENT, 1)
    try:
        await connection.execute(
            "SELECT * FROM ensure_group_v1('default', 'default', 'default', $1, '__QUEUE_MODE__')", QUEUE
        )
        names = [f"p{number}" for number in range(PARTITIONS)]
        await connection.execute(
            "SELECT * FROM ensure_partitions_v1('default', 'default', 'default', $1, $2)",
            [QUEUE] * PARTITIONS,
            names,
        )
        await connection.execute(LOAD, segments, PER_SEGMENT)
        kept = segments * PER_SEGMENT
        await connection.execute("UPDATE partitions SET next_offset = $1, pushed_at = now()", kept)
        await connection.execute("UPDATE positions SET ready_at = now() - interval '1 day'")
        await connection.execute(
            "INSERT INTO tallies (queue_id, group_id, slot, messages) SELECT id, 0, 0, $1 FROM queues",
            kept * PARTITIONS,
        )
        for table in ("log", "partitions", "positions", "tallies"):
            await connection.execute(f"VACUUM (ANALYZE) {table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    return kept * PARTITIONS


class _Side:
    """One of the two databases: the same operations through its broker, and depth by its SQL."""

    def __init__(self, broker: RunningBroker) -> None:
        self._url = broker.database_url
        self._client = Penstock(QUEUE, broker, partitions=64, queue=QUEUE)
        self._connection: asyncpg.Connection | None = None

    @staticmethod
    async def open(broker: RunningBroker) -> _Side:
        side = _Side(broker)
        await side._client.open(CONNECTIONS)
        side._connection = await asyncpg.connect(side._url, server_settings={"search_path": "penstock"})
        return side

    async def close(self) -> None:
        await self._client.close()
        if self._connection is not None:
            await self._connection.close()

    async def measure(self, number: int, moved: int) -> dict[str, float]:
        """Microseconds per message pushed and per message popped and acked, and per look at the depth."""
        assert self._connection is not None
        costs = {}
        never = float("inf")
        await self._client.prepare_push(PER_SEGMENT, payloads(moved, seed=number))
        started = time.perf_counter()
        pushed = await self._client.push(CONNECTIONS, never)
        costs["push"] = (time.perf_counter() - started) / pushed * 1e6
        started = time.perf_counter()
        popped = await self._client.consume(PER_SEGMENT, CONNECTIONS, moved, never)
        costs["pop"] = (time.perf_counter() - started) / popped * 1e6
        queue_id = await self._connection.fetchval("SELECT id FROM queues WHERE name = $1", QUEUE)
        looks = []
        for _ in range(30):
            started = time.perf_counter()
            await self._connection.fetch("SELECT * FROM queue_gauges_v1($1)", [queue_id])
            looks.append(time.perf_counter() - started)
        costs["depth"] = statistics.median(looks) * 1e6
        return costs


def table(found: dict[str, Any]) -> Table:
    rows = [
        [
            operation,
            *(f"{costs[side]:,.0f}" for side in ("empty", "deep")),
            f"{costs['deep'] / costs['empty']:.2f}",
        ]
        for operation, costs in found["cost_us"].items()
    ]
    stored = f"{found['messages']:,} messages in {found['partitions']:,} partitions"
    title = f"µs on an empty database and with {stored}"
    return harness.table(title, ["", "empty", "deep", "deep ÷ empty"], rows)
