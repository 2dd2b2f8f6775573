"""Record the plans and buffers of every statement that a call runs, including nested ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from penstock.durable import log
from penstock.durable.log import Ack, PopRequest, Segment
from penstock.durable.pool import SESSION
from penstock.durable.queue_gauges import GaugeReader
from penstock.ids import new_id

DIRECT = {"Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan"}
"""Scans that read only the rows they return."""
WATCHED = ("log_", "message_keys_", "positions", "partitions", "dead_letters")


@dataclass(frozen=True)
class Scan:
    """One executed scan of a table: its type, its index and the rows it read."""

    table: str
    scan_type: str
    index: str | None
    rows: int
    statement: str


@dataclass(frozen=True)
class Filled:
    """A database with a queue and a group in it."""

    url: str
    queue_id: int
    group_id: int


@dataclass
class Watched:
    """A connection that records every scan of the hot tables. Stands in for a `Database`."""

    connection: asyncpg.Connection[asyncpg.Record]
    scans: list[Scan] = field(default_factory=list)
    most_rows: int = 0
    """The most rows that one step of a plan handled: those it returned or dropped, in all its loops."""

    @classmethod
    async def connect(cls, url: str) -> Watched:
        watched = cls(await asyncpg.connect(url, server_settings=SESSION))
        await watched.connection.execute(
            """LOAD 'auto_explain';
               SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
               SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off;
               SET auto_explain.log_format = json; SET auto_explain.log_level = notice"""
        )
        watched.connection.add_log_listener(watched._record_scans)
        return watched

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        return await self.connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None:
        return await self.connection.fetchrow(query, *args)

    def take(self) -> list[Scan]:
        """Return the scans since the last call."""
        scans, self.scans = self.scans, []
        return scans

    def _record_scans(self, connection: object, message: asyncpg.PostgresLogMessage) -> None:
        text = str(message.message)
        if "plan:" not in text:
            return
        plan = json.loads(text[text.index("{") :])
        for node in nodes(plan["Plan"]):
            table = node.get("Relation Name", "")
            self.most_rows = max(self.most_rows, _handled_rows(node))
            if table.startswith(WATCHED) and "Scan" in node["Node Type"] and node["Actual Loops"]:
                removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
                rows = round((node["Actual Rows"] + removed) * node["Actual Loops"])
                index = node.get("Index Name")
                self.scans.append(Scan(table, node["Node Type"], index, rows, plan["Query Text"]))


def _handled_rows(node: dict[str, Any]) -> int:
    rows: float = node["Actual Rows"]
    rows += sum(count for name, count in node.items() if name.startswith("Rows Removed by "))
    loops: int = node["Actual Loops"]
    return round(rows * loops)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@dataclass
class Traffic:
    """Calls on ten partitions with ten messages each, with transaction ids."""

    database: Any
    queue_id: int
    group_id: int
    partition_ids: list[int]

    def _segment(self, partition_id: int) -> Segment:
        ids = [str(new_id()) for _ in range(10)]
        return Segment(partition_id, ids, [f"key {i}" for i in ids], [None] * 10, [b"x" * 100] * 10)

    async def push(self) -> None:
        pushed = await log.push(
            self.database, [self._segment(partition_id) for partition_id in self.partition_ids]
        )
        assert not pushed.duplicates

    async def pop(self) -> list[Ack]:
        lease_id = new_id()
        rows = await log.pop(self.database, self.group_id, [PopRequest(lease_id, 100, 10)], lease_ms=60_000)
        return [
            Ack(row["partition_id"], self.group_id, lease_id, key or str(message_id), "completed", None)
            for row in rows
            for message_id, key in zip(
                row["message_ids"], row["transaction_ids"] or [None] * len(row["message_ids"]), strict=True
            )
        ]

    async def pop_single(self) -> list[Ack]:
        """Pop with ten requests for one message each."""
        lease_ids = [new_id() for _ in range(10)]
        rows = await log.pop_single(self.database, self.group_id, lease_ids, lease_ms=60_000)
        assert len(rows) == 10
        return [
            Ack(
                row["partition_id"],
                self.group_id,
                lease_ids[row["request"] - 1],
                row["transaction_id"] or row["message_id"],
                "completed",
                None,
            )
            for row in rows
        ]

    async def ack(self, acks: list[Ack]) -> None:
        assert {a.outcome for a in await log.ack(self.database, acks)} == {"completed"}

    async def gauges(self) -> None:
        await GaugeReader(self.database).of_queues([self.queue_id])

    async def catch_up(self) -> None:
        """Finish all messages, so that the next pop gets the messages pushed next."""
        await self.database.fetch(
            "UPDATE positions p SET cursor = t.next_offset, lease_id = NULL, ready_at = NULL "
            "FROM partitions t WHERE t.id = p.partition_id AND p.ready_at IS NOT NULL"
        )

    async def costs(self) -> dict[str, int]:
        """Return the buffers of each operation; of a push without and with transaction ids."""
        plain, keyed = (
            log._push_arguments([self._segment(partition_id) for partition_id in self.partition_ids])
            for _ in range(2)
        )
        plain[3] = None
        push_keyed = await self._buffers("push_v1($1, $2, $3, $4, $5, $6)", *keyed)
        await self.catch_up()
        push = await self._buffers("push_v1($1, $2, $3, $4, $5, $6)", *plain)
        single = await self._buffers(
            "pop_single_v1($1, $2, 60000)", self.group_id, [new_id() for _ in self.partition_ids]
        )
        await self.catch_up()
        await self.push()
        lease_id = new_id()
        pop = await self._buffers(
            "pop_v1($1, $2, $3, $4, NULL, 60000, false)", self.group_id, [lease_id], [100], [10]
        )
        rows = await self.database.fetch(
            """SELECT p.partition_id, k.key, k.id FROM positions p
               CROSS JOIN LATERAL segments_v1(p.partition_id, p.lease_from, p.lease_to) s
               CROSS JOIN LATERAL unnest(s.message_ids, s.transaction_ids) AS k (id, key)
               WHERE p.lease_id = $1""",
            lease_id,
        )
        assert len(rows) == 100
        acks = [
            Ack(r["partition_id"], self.group_id, lease_id, r["key"] or str(r["id"]), "completed", None)
            for r in rows
        ]
        ack = await self._buffers("ack_v1($1, $2, $3, $4, $5, $6)", *log._ack_arguments(acks))
        gauges = await self._buffers("queue_gauges_v1($1)", [self.queue_id])
        return {
            "push": push,
            "push keyed": push_keyed,
            "pop": pop,
            "pop single": single,
            "ack": ack,
            "gauges": gauges,
        }

    async def _buffers(self, call: str, *args: Any) -> int:
        """Return how many buffers a call reads, cached or not, including nested statements."""
        [row] = await self.database.fetch(
            f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) SELECT * FROM {call}", *args
        )
        plan = json.loads(row[0])[0]["Plan"]
        buffers: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return buffers


async def fill(
    connection: asyncpg.Connection[asyncpg.Record], *, partitions: int, segments: int, chunks: int
) -> tuple[int, int]:
    """Create a queue whose partitions have segments of two messages, spread over chunks.

    One group has finished two thirds of the messages. Return the ids of queue and group.
    """
    for _ in range(chunks - 1):
        await connection.execute("SELECT prepare_chunk_v1(1, '1 hour')")
        for _ in range(2):
            await connection.execute("SELECT open_chunk_v1()")
        await connection.execute("SELECT close_chunks_v1()")
    assert await connection.fetchval("SELECT count(*) FROM chunks") == chunks
    await connection.execute(
        """INSERT INTO queues (environment_id, name) SELECT id, 'deep' FROM environments;
           INSERT INTO groups (queue_id, name) SELECT id, 'g' FROM queues"""
    )
    queue_id = await connection.fetchval("SELECT id FROM queues")
    group_id = await connection.fetchval("SELECT id FROM groups")
    await connection.execute(
        """INSERT INTO partitions (queue_id, name, next_offset, pushed_at)
           SELECT $1, 'p' || n, $3 * 2, now() FROM generate_series(1, $2) n""",
        queue_id,
        partitions,
        segments,
    )
    indexes = await connection.fetchval(
        """SELECT string_agg(replace(pg_get_indexdef(i), ' ON ONLY ', ' ON '), ';')
           FROM unnest(ARRAY['log_segments'::regclass, 'message_keys_lookup']) i"""
    )
    await connection.execute("SET synchronous_commit = off; DROP INDEX log_segments, message_keys_lookup")
    await connection.execute(
        """INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids,
                            transaction_ids, payloads)
           SELECT 1 + s * $2 / $1, p.id, s * 2, s * 2 + 1, now() - ($1 - s) * interval '1 second',
                  ARRAY[gen_random_uuid(), gen_random_uuid()],
                  ARRAY[p.id || ' ' || s || ' a', p.id || ' ' || s || ' b'],
                  ARRAY['\\x7878'::bytea, '\\x7878']
           FROM generate_series(0, $1 - 1) s CROSS JOIN partitions p""",
        segments,
        chunks,
    )
    await connection.execute(
        """INSERT INTO message_keys (chunk, partition_id, key, message_offset)
           SELECT l.chunk, l.partition_id, md5(k)::uuid, l.first_offset + n - 1
           FROM log l CROSS JOIN LATERAL unnest(l.transaction_ids) WITH ORDINALITY AS t (k, n)"""
    )
    await connection.execute(indexes)
    await connection.execute(
        """INSERT INTO positions (partition_id, group_id, cursor, ready_at)
           SELECT id, $1, next_offset * 2 / 3, now() - id * interval '1 millisecond' FROM partitions""",
        group_id,
    )
    await connection.execute(
        """INSERT INTO tallies SELECT queue_id, 0, 0, sum(next_offset) FROM partitions GROUP BY queue_id
           UNION ALL SELECT $1, $2, 0, sum(cursor) FROM positions""",
        queue_id,
        group_id,
    )
    await connection.execute("VACUUM ANALYZE")
    return queue_id, group_id


async def traffic(connection: Any, filled: Filled) -> Traffic:
    """Return calls on ten random partitions, through a connection or a `Watched` one."""
    rows = await connection.fetch("SELECT id FROM partitions ORDER BY md5(id::text) LIMIT 10")
    return Traffic(connection, filled.queue_id, filled.group_id, sorted(row["id"] for row in rows))
