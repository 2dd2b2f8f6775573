"""Compare the cost of push, pop and depth with millions of stored messages and on an empty database."""

from __future__ import annotations

import statistics
import time
from typing import TypedDict

import asyncpg
from rich.table import Table

from bench import harness
from bench.contestants.penstock import Penstock
from bench.payloads import generate_payloads
from bench.servers import RunningBroker, Servers

PARTITIONS = 10_000
MESSAGES_PER_SEGMENT = 10
QUEUE = "deep"
CONNECTIONS = 16
DEPTH_READS = 30

INSERT_SEGMENTS = """
INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids, payloads)
SELECT (SELECT max(id) FROM chunks), p.id, s * $2::int, s * $2::int + $2::int - 1, now() - interval '1 day',
       array(SELECT gen_random_uuid() FROM generate_series(1, $2::int + 0 * s)),
       array(SELECT convert_to(
                 '{"order":"' || md5((p.id * s + m)::text) || '","customer":' || p.id || ',"note":"'
                 || md5((p.id + m)::text) || md5((s + m)::text) || '","n":' || s || '}', 'UTF8')
             FROM generate_series(1, $2::int) m)
FROM generate_series(0, $1::int - 1) s CROSS JOIN partitions p
"""


class LargeLogResult(TypedDict):
    """The section `deep` of the JSON file."""

    messages: int
    partitions: int
    load_s: float
    cost_us: dict[str, dict[str, float]]
    """By operation and database (`empty`, `deep`)."""
    ratios: dict[str, float]


async def compare(servers: Servers, messages: int, rounds: int, messages_per_round: int) -> LargeLogResult:
    """Measure the cost per operation on both databases, in turns, and the ratios large ÷ empty.

    Every round pushes and pops `messages_per_round` messages.
    """
    empty = await servers.start_broker("penstock_empty")
    large = await servers.start_broker("penstock_deep")
    started = time.perf_counter()
    stored = await _store_messages(large.database_url, messages)
    load_s = time.perf_counter() - started
    databases = {"empty": await _Database.open(empty), "deep": await _Database.open(large)}
    costs: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for name, database in databases.items():
            for operation, cost_us in (await database.measure(number, messages_per_round)).items():
                if number:  # the first round warms up
                    costs.setdefault(operation, {}).setdefault(name, []).append(cost_us)
    for database in databases.values():
        await database.close()
    label = f"{stored // 1_000_000}m" if stored >= 1_000_000 else f"{stored // 1000}k"
    return {
        "messages": stored,
        "partitions": PARTITIONS,
        "load_s": round(load_s, 1),
        "cost_us": {
            operation: {name: round(statistics.median(values), 1) for name, values in by_database.items()}
            for operation, by_database in costs.items()
        },
        "ratios": {
            f"{operation}_{label}_vs_empty": statistics.median(
                large_us / empty_us
                for large_us, empty_us in zip(by_database["deep"], by_database["empty"], strict=True)
            )
            for operation, by_database in costs.items()
        },
    }


async def _store_messages(url: str, messages: int) -> int:
    """Store messages by SQL in the same form as pushes do, for a group that has consumed none of them.

    Returns the number stored, which is a multiple of the number of partitions.
    """
    connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"}, command_timeout=3600)
    segments = max(messages // PARTITIONS // MESSAGES_PER_SEGMENT, 1)
    try:
        names = [f"p{number}" for number in range(PARTITIONS)]
        await connection.execute(
            "SELECT * FROM ensure_partitions_v1('default', 'default', 'default', $1, $2)",
            [QUEUE] * PARTITIONS,
            names,
        )
        await connection.execute(
            "SELECT * FROM ensure_group_v1('default', 'default', 'default', $1, '__QUEUE_MODE__')", QUEUE
        )
        await connection.execute(INSERT_SEGMENTS, segments, MESSAGES_PER_SEGMENT)
        messages_per_partition = segments * MESSAGES_PER_SEGMENT
        await connection.execute(
            "UPDATE partitions SET next_offset = $1, pushed_at = now()", messages_per_partition
        )
        await connection.execute("UPDATE positions SET ready_at = now() - interval '1 day'")
        await connection.execute(
            "INSERT INTO tallies (queue_id, group_id, slot, messages) SELECT id, 0, 0, $1 FROM queues",
            messages_per_partition * PARTITIONS,
        )
        for table in ("log", "partitions", "positions", "tallies"):
            await connection.execute(f"VACUUM (ANALYZE) {table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    return messages_per_partition * PARTITIONS


class _Database:
    """One of the two databases. Its broker executes push and pop, and its SQL returns the depth."""

    def __init__(self, broker: RunningBroker) -> None:
        self._url = broker.database_url
        self._client = Penstock(QUEUE, broker, partitions=64, queue=QUEUE)
        self._connection: asyncpg.Connection | None = None

    @staticmethod
    async def open(broker: RunningBroker) -> _Database:
        database = _Database(broker)
        await database._client.open(CONNECTIONS)
        database._connection = await asyncpg.connect(
            database._url, server_settings={"search_path": "penstock"}
        )
        return database

    async def close(self) -> None:
        await self._client.close()
        if self._connection is not None:
            await self._connection.close()

    async def measure(self, number: int, messages: int) -> dict[str, float]:
        """Return microseconds per pushed message, per popped and acked message, and per read of the depth."""
        assert self._connection is not None
        costs = {}
        no_deadline = float("inf")
        await self._client.prepare_push(MESSAGES_PER_SEGMENT, generate_payloads(messages, seed=number))
        started = time.perf_counter()
        pushed = await self._client.push(CONNECTIONS, no_deadline)
        costs["push"] = (time.perf_counter() - started) / pushed * 1e6
        started = time.perf_counter()
        popped = await self._client.consume(MESSAGES_PER_SEGMENT, CONNECTIONS, messages, no_deadline)
        costs["pop"] = (time.perf_counter() - started) / popped * 1e6
        queue_id = await self._connection.fetchval("SELECT id FROM queues WHERE name = $1", QUEUE)
        depth_s = []
        for _ in range(DEPTH_READS):
            started = time.perf_counter()
            await self._connection.fetch("SELECT * FROM queue_gauges_v1($1)", [queue_id])
            depth_s.append(time.perf_counter() - started)
        costs["depth"] = statistics.median(depth_s) * 1e6
        return costs


def build_table(result: LargeLogResult) -> Table:
    rows = [
        [
            operation,
            *(f"{costs[database]:,.0f}" for database in ("empty", "deep")),
            f"{costs['deep'] / costs['empty']:.2f}",
        ]
        for operation, costs in result["cost_us"].items()
    ]
    stored = f"{result['messages']:,} messages in {result['partitions']:,} partitions"
    title = f"µs per operation on an empty database and with {stored}"
    return harness.build_table(title, ["", "empty", "large", "large ÷ empty"], rows)
