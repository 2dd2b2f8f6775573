"""Busy tables are rewritten while dead rows cannot be removed, and operations do not notice."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from penstock.durable import log
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import SCHEMA, Database
from penstock.durable.storage import busy_tables
from penstock.durable.storage.busy_tables import BUSY_TABLES, BusyTable
from penstock.embedded.servers.data_directory import find_postgres_programs
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.waiting import wait_until_async

POSITIONS = BUSY_TABLES[0]
PARTITIONS = [PartitionName("orders", f"p{number}") for number in range(8)]
PUSHES_PER_PRODUCER = 150
PRODUCERS = 3
CONSUMERS = 4
LEASE_MS = 600_000


@asynccontextmanager
async def session(url: str, application: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(
        url,
        statement_cache_size=0,
        server_settings={"application_name": application, "search_path": SCHEMA},
    )
    try:
        yield connection
    finally:
        await connection.close()


class Traffic:
    """Producers, consumers and readers on connections of their own, and a session that rewrites tables."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.random = random.Random(11)
        self.pushed: dict[int, list[str]] = defaultdict(list)
        self.delivered: dict[int, list[str]] = defaultdict(list)
        self.expected = PRODUCERS * PUSHES_PER_PRODUCER * len(PARTITIONS)
        self.rewrites: Counter[str] = Counter()
        self.gauge_readings = 0

    @property
    def is_finished(self) -> bool:
        return sum(map(len, self.delivered.values())) >= self.expected

    async def run(self) -> None:
        databases = [Database(self.url, 3) for _ in range(PRODUCERS + CONSUMERS + 1)]
        try:
            self.ids = await log.ensure_partitions(databases[0], DEFAULT_SCOPE, PARTITIONS)
            group = await log.ensure_group(databases[0], DEFAULT_SCOPE, "orders", "g")
            assert group is not None
            self.group = group
            producers, consumers = databases[:PRODUCERS], databases[PRODUCERS:-1]
            await asyncio.gather(
                *(self.produce(database, number) for number, database in enumerate(producers)),
                *(self.consume(database, number) for number, database in enumerate(consumers)),
                self.read_gauges(databases[-1]),
                self.rewrite_tables(),
            )
        finally:
            for database in databases:
                await database.close()

    async def produce(self, database: Database, number: int) -> None:
        for push in range(PUSHES_PER_PRODUCER):
            segments = []
            for ids in self.ids.values():
                key = f"{number}-{push}"
                segments.append(Segment(ids.partition_id, [str(new_id())], [key], [None], [b"1"]))
            receipt = await log.push(database, segments)
            assert None not in receipt.first_offsets
            for segment, offset in zip(segments, receipt.first_offsets, strict=True):
                assert offset is not None
                self.pushed[segment.partition_id].append(f"{offset:06} {segment.transaction_ids[0]}")

    async def consume(self, database: Database, number: int) -> None:
        while not self.is_finished:
            lease_id = new_id()
            group_id = self.group.group_id
            acks = []
            if number % 2:
                for row in await log.pop_single(database, group_id, [lease_id], lease_ms=LEASE_MS):
                    acks.append((row["partition_id"], row["leased_from"], row["transaction_id"]))
            else:
                request = PopRequest(lease_id, 5, 2)
                for row in await log.pop(database, group_id, [request], lease_ms=LEASE_MS):
                    for index, key in enumerate(row["transaction_ids"]):
                        acks.append((row["partition_id"], row["first_offset"] + index, key))
            for partition_id, offset, key in acks:
                self.delivered[partition_id].append(f"{offset:06} {key}")
            receipts = await log.ack(
                database,
                [Ack(partition_id, group_id, lease_id, key, "completed") for partition_id, _, key in acks],
            )
            assert all(receipt.success for receipt in receipts)

    async def read_gauges(self, database: Database) -> None:
        """Totals never go backwards: a reader that saw an empty table would see zero."""
        last_pushed = 0
        while not self.is_finished:
            [row] = await database.fetch(
                """SELECT (SELECT count(*) FROM queue_gauges_v1(ARRAY[$1::bigint])) AS groups,
                          (SELECT sum(t.pushed) FROM queue_totals_v1(ARRAY[$1::bigint]) t) AS pushed""",
                self.group.queue_id,
            )
            assert row["groups"] == 2
            assert row["pushed"] >= last_pushed
            last_pushed = row["pushed"]
            self.gauge_readings += 1

    async def rewrite_tables(self) -> None:
        async with session(self.url, "penstock busy tables") as connection:
            while not self.is_finished:
                for table in BUSY_TABLES:
                    if await busy_tables.rewrite(connection, table) is not None:
                        self.rewrites[table.name] += 1


async def test_operations_lose_nothing_while_tables_are_rewritten(database: Database) -> None:
    traffic = Traffic(database.url)
    async with (
        session(database.url, "report") as holder,
        holder.transaction(isolation="repeatable_read"),
    ):
        await holder.execute("SELECT pg_current_xact_id()")
        await traffic.run()
    assert min(traffic.rewrites[table.name] for table in BUSY_TABLES) >= 20, traffic.rewrites
    assert traffic.gauge_readings > 0
    for partition_id, pushed in traffic.pushed.items():
        assert traffic.delivered[partition_id] == sorted(pushed), "once each, in the order of the offsets"
    [row] = await database.fetch(
        """SELECT (SELECT sum(next_offset) FROM partitions) AS stored,
                  (SELECT sum(cursor) FROM positions) AS passed,
                  (SELECT sum(messages) FROM tallies WHERE group_id = 0) AS pushed,
                  (SELECT sum(messages) FROM tallies WHERE group_id > 0) AS finished,
                  (SELECT sum(completed) FROM tallies WHERE group_id > 0) AS completed"""
    )
    assert set(row.values()) == {traffic.expected}


async def describe(database: Database, table: BusyTable) -> list[tuple[object, ...]]:
    """Return columns, constraints, indexes, references and options of a table."""
    rows = await database.fetch(
        """SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
                  pg_get_expr(d.adbin, d.adrelid)
           FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
           WHERE a.attrelid = to_regclass($1) AND a.attnum > 0
           UNION ALL SELECT 'constraint', conname::text, conrelid::regclass::text, pg_get_constraintdef(oid)
           FROM pg_constraint WHERE to_regclass($1) IN (conrelid, confrelid)
           UNION ALL SELECT 'index', indexrelid::regclass::text, indisvalid::text, pg_get_indexdef(indexrelid)
           FROM pg_index WHERE indrelid = to_regclass($1)
           UNION ALL SELECT 'options', relowner::text, relacl::text, reloptions::text
           FROM pg_class WHERE oid = to_regclass($1)
           ORDER BY 1, 2, 3, 4""",
        table.name,
    )
    return [tuple(row) for row in rows]


async def fill(queue: QueueUnderTest, messages: int) -> None:
    for _ in range(messages):
        await queue.push("1")
        delivery = await queue.pop()
        await queue.ack(delivery)


@pytest.mark.parametrize("table", BUSY_TABLES, ids=lambda table: table.name)
async def test_a_rewrite_leaves_dead_rows_behind_and_changes_nothing_else(
    database: Database, queue: QueueUnderTest, table: BusyTable
) -> None:
    async with (
        session(database.url, "report") as holder,
        holder.transaction(isolation="repeatable_read"),
    ):
        await holder.execute("SELECT pg_current_xact_id()")
        await fill(queue, 60)
        await database.fetch(f"VACUUM {table.name}")
        before = await describe(database, table)
        rows = sorted(map(str, await database.fetch(f"SELECT * FROM {table.name}")))
        size = (await busy_tables.read_sizes(database)).bytes_by_name[table.name]
        async with session(database.url, "penstock busy tables") as connection:
            assert await busy_tables.rewrite(connection, table) is not None
        assert (await busy_tables.read_sizes(database)).bytes_by_name[table.name] <= size
        if table is POSITIONS:
            assert (await busy_tables.read_sizes(database)).bytes_by_name[table.name] < size
        assert await describe(database, table) == before
        assert sorted(map(str, await database.fetch(f"SELECT * FROM {table.name}"))) == rows


async def test_a_held_horizon_stays_and_a_free_one_moves(database: Database, queue: QueueUnderTest) -> None:
    async with (
        session(database.url, "report") as holder,
        holder.transaction(isolation="repeatable_read"),
    ):
        await holder.execute("SELECT 1")
        held = (await busy_tables.read_sizes(database)).horizon_xid
        await fill(queue, 3)
        assert (await busy_tables.read_sizes(database)).horizon_xid == held
    assert (await busy_tables.read_sizes(database)).horizon_xid > held


async def test_a_table_that_another_session_has_locked_is_not_waited_for(database: Database) -> None:
    """As a running pg_dump does."""
    async with session(database.url, "backup") as dump, dump.transaction(isolation="repeatable_read"):
        await dump.execute("LOCK TABLE positions IN ACCESS SHARE MODE")
        async with session(database.url, "penstock busy tables") as connection:
            assert await busy_tables.rewrite(connection, POSITIONS) is None
            assert await busy_tables.rewrite(connection, BUSY_TABLES[2]) is not None


async def test_a_lock_of_a_running_operation_is_given_up_on(database: Database) -> None:
    async with session(database.url, "penstock") as operation, operation.transaction():
        await operation.execute("LOCK TABLE positions IN ROW EXCLUSIVE MODE")
        async with session(database.url, "penstock busy tables") as connection:
            assert await busy_tables.rewrite(connection, POSITIONS) is None


async def test_nothing_is_rewritten_while_a_dump_starts(database: Database) -> None:
    async with session(database.url, "pg_dump") as dump, dump.transaction(isolation="repeatable_read"):
        await dump.execute("SELECT 1")
        async with session(database.url, "penstock busy tables") as connection:
            assert await busy_tables.rewrite(connection, POSITIONS) is None


async def test_a_dump_with_a_snapshot_older_than_a_rewrite_is_ended(database: Database) -> None:
    async with (
        session(database.url, "pg_dump") as stale_dump,
        session(database.url, "pg_dump") as late_dump,
    ):
        await stale_dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        xid = (await database.fetch("SELECT pg_current_xact_id()::text::bigint AS xid"))[0]["xid"]
        await late_dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        rows = await database.fetch("SELECT * FROM end_stale_dumps_v1($1)", xid)
        assert [tuple(row) for row in rows] == [(stale_dump.get_server_pid(), True)]

        async def is_ended() -> bool:
            [row] = await database.fetch(
                "SELECT count(*) AS sessions FROM pg_stat_activity WHERE pid = $1",
                stale_dump.get_server_pid(),
            )
            return not row["sessions"]

        await wait_until_async(is_ended, 10, "the session of the stale dump ends")
        assert await late_dump.fetchval("SELECT 1") == 1


READS_BUSY_TABLE = re.compile(
    rf"\b(?:FROM|JOIN|UPDATE|INTO|USING|,)\s+(?:{'|'.join(table.name for table in BUSY_TABLES)})\b"
)
CALL = re.compile(r"\b(\w+_v\d+)\b")


async def test_functions_that_read_busy_tables_lock_them_before_their_snapshot(database: Database) -> None:
    """A stable function uses the snapshot of its caller, unless the planner puts it into the caller's query.

    With a snapshot from before a rewrite it would see an empty table.
    """
    rows = await database.fetch(
        """SELECT p.proname::text AS name, regexp_replace(p.prosrc, '--[^\n]*', '', 'g') AS source,
                  p.provolatile <> 'v' AS stable, p.proargtypes::regtype[]::text[] AS types
           FROM pg_proc p WHERE p.pronamespace = 'penstock'::regnamespace"""
    )
    sources: dict[str, str] = {row["name"]: row["source"] for row in rows}

    def reads_busy_table(name: str, callers: tuple[str, ...] = ()) -> bool:
        calls = set(CALL.findall(sources[name])) & sources.keys() - {name, *callers}
        return bool(READS_BUSY_TABLE.search(sources[name])) or any(
            reads_busy_table(call, (*callers, name)) for call in calls
        )

    stable = {row["name"]: row["types"] for row in rows if row["stable"] and reads_busy_table(row["name"])}
    assert len(stable) > 20
    not_inlined = {}
    async with session(database.url, "penstock") as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for name, types in stable.items():
            plan = await explain_call(connection, name, types)
            scanned = set(re.findall(r"Function Scan on (\w+)", plan)) & stable.keys()
            if scanned:
                not_inlined[name] = scanned
    assert not_inlined == {}


async def explain_call(connection: asyncpg.Connection, name: str, types: list[str]) -> str:
    """Return the plan of `SELECT * FROM name($1, …)`."""
    parameters = ", ".join(f"${number + 1}" for number in range(len(types)))
    declared = f"({', '.join(types)})" if types else ""
    nulls = f"({', '.join('NULL' for _ in types)})" if types else ""
    await connection.execute(f"PREPARE call{declared} AS SELECT * FROM {name}({parameters})")
    rows = await connection.fetch(f"EXPLAIN EXECUTE call{nulls}")
    await connection.execute("DEALLOCATE call")
    return "\n".join(row[0] for row in rows)


async def test_a_dump_is_complete_or_fails_while_tables_are_rewritten(database: Database) -> None:
    """pg_dump takes its snapshot before its locks; a rewrite in between must not hide rows from it."""
    queue = QueueUnderTest(database)
    await queue.group()
    await queue.partitions(*(f"p{number}" for number in range(50)))
    dumps = 0
    async with session(database.url, "penstock busy tables") as connection:

        async def rewrite_until_dumped() -> int:
            rewrites = 0
            while dumps < 5:
                rewrites += await busy_tables.rewrite(connection, POSITIONS) is not None
            return rewrites

        rewriting = asyncio.create_task(rewrite_until_dumped())
        for _ in range(5):
            process = await asyncio.create_subprocess_exec(
                str(find_postgres_programs() / "pg_dump"),
                *("--data-only", "--table=penstock.positions", f"--dbname={database.url}"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            rows = [line for line in output.decode().splitlines() if re.match(r"\d+\t\d+\t", line)]
            assert len(rows) == 50 or process.returncode, "complete, or an error"
            dumps += 1
        await rewriting
        # The session of the last dump may hold its lock for a moment after the program has ended.
        await wait_until_async(
            lambda: busy_tables.rewrite(connection, POSITIONS), 10, "the table is rewritten after the dumps"
        )
