"""One broker of a cluster keeps busy tables small while the horizon is held."""

from __future__ import annotations

import asyncpg

from penstock.broker.table_rewriter import LOCK_INTERVAL_S, TableRewriter
from penstock.durable.pool import Database
from penstock.durable.storage import busy_tables
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.waiting import wait_until_async

CYCLES_PER_ROUND = 50


async def run_cycles(database: Database) -> None:
    queue = QueueUnderTest(database)
    for _ in range(CYCLES_PER_ROUND):
        await queue.push("1")
        await queue.ack(await queue.pop())
        queue.later(1)


async def test_a_grown_table_is_rewritten_while_a_session_is_idle_in_a_transaction(
    database: Database,
) -> None:
    rewriter = TableRewriter(database.url)
    holder = await asyncpg.connect(database.url)
    largest = 0
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()")

        async def is_rewritten() -> bool:
            nonlocal largest
            await run_cycles(database)
            largest = max(largest, (await busy_tables.read_sizes(database)).bytes_by_name["positions"])
            await rewriter.run_round()
            return rewriter.rewrites > 0

        await wait_until_async(is_rewritten, 60, "a busy table is rewritten")
        assert (await busy_tables.read_sizes(database)).bytes_by_name["positions"] < largest
    finally:
        await rewriter.stop()
        await holder.close()


async def test_one_process_of_the_cluster_works(database: Database) -> None:
    leader, other = TableRewriter(database.url), TableRewriter(database.url)
    try:
        assert await leader.run_round() < LOCK_INTERVAL_S
        assert await other.run_round() == LOCK_INTERVAL_S
        await leader.stop()
        assert await other.run_round() < LOCK_INTERVAL_S
    finally:
        await leader.stop()
        await other.stop()
