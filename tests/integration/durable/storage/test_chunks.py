"""Chunks of the log are opened and closed while clients push and pop."""

from __future__ import annotations

import asyncio

from penstock.durable import log
from penstock.durable.log import Segment
from penstock.durable.storage import chunks
from penstock.ids import new_id
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.integration.durable.storage.chunk_steps import (
    HOUR,
    connected,
    incompressible_payloads,
    rotate,
    stages,
    upkeep,
)
from tests.waiting import wait_until_async


async def test_a_chunk_is_closed_when_it_is_large_or_old(queue: QueueUnderTest) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session:
        [first] = await chunks.list_chunks(session)
        assert first.opened_at is not None
        soon, late = first.opened_at + HOUR / 2, first.opened_at + HOUR
        size = first.size_bytes
        assert await chunks.rotate(session, size + 1, HOUR, soon) is None
        assert await chunks.rotate(session, size * 17, HOUR, late) is None, (
            "too small to be closed for its age"
        )
        assert await chunks.rotate(session, size, HOUR, soon) == 2
        assert await chunks.rotate(session, size + 1, HOUR, late) is None, "the new one is not"
        assert await chunks.rotate(session, size + 1, HOUR, late + HOUR) == 3
        assert await stages(session) == {1: "closed", 2: "closed", 3: "open"}


async def test_a_chunk_is_not_closed_before_it_holds_its_share_of_the_log(queue: QueueUnderTest) -> None:
    await queue.push(*incompressible_payloads(500))
    async with upkeep(queue.database) as session:
        assert await rotate(session) == 2
        await queue.push(*incompressible_payloads(200))
        assert await chunks.rotate(session, 1, HOUR) is None
        await queue.push(*incompressible_payloads(100))
        assert await chunks.rotate(session, 1, HOUR) == 3


async def test_a_new_chunk_has_the_storage_parameters_of_the_first(queue: QueueUnderTest) -> None:
    async with upkeep(queue.database) as session:
        await queue.push("a")
        await rotate(session)
    rows = await queue.database.fetch(
        """SELECT c.relname::text AS name,
                  array(SELECT unnest(c.reloptions || t.reloptions) ORDER BY 1) AS options,
                  array(SELECT (a.attname::text, a.attstorage, a.attcompression, a.attstattarget)::text
                        FROM pg_attribute a
                        WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum) AS columns,
                  array(SELECT regexp_replace(pg_get_indexdef(i.indexrelid), '_[12]', '', 'g')
                        FROM pg_index i WHERE i.indrelid = c.oid ORDER BY 1) AS indexes
           FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
           WHERE c.relname ~ '^(log|message_keys|message_values)_[12]$'"""
    )
    found = {row["name"]: (row["options"], row["columns"], row["indexes"]) for row in rows}
    assert found["log_2"] == found["log_1"]
    assert found["message_keys_2"] == found["message_keys_1"]
    assert found["message_values_2"] == found["message_values_1"]


async def test_messages_are_found_in_every_chunk(queue: QueueUnderTest) -> None:
    async with upkeep(queue.database) as session:
        await queue.push("a", "b", keys=["k1", "k2"])
        await rotate(session)
        await queue.push("c", keys=["k3"])
        await rotate(session)
        await queue.push("d")
    again = await queue.push("x", "y", keys=["k2", "k3"])
    assert sorted(again.duplicates) == [0, 1]
    assert (await queue.pop(5)).payloads == ["a", "b", "c", "d"]


async def test_a_chunk_is_opened_after_transactions_that_cannot_see_it_have_ended(
    queue: QueueUnderTest,
) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        open_transaction = connection.transaction()
        await open_transaction.start()
        await connection.execute("SELECT * FROM partitions FOR NO KEY UPDATE")
        for _ in range(3):
            assert await chunks.rotate(session, 1, HOUR) is None
        assert await stages(session) == {1: "open", 2: "spare"}
        await open_transaction.commit()
        await rotate(session)
        assert await stages(session) == {1: "closed", 2: "open"}


async def test_a_plan_made_while_a_chunk_was_attached_does_not_hide_the_chunk(
    queue: QueueUnderTest,
) -> None:
    """PostgreSQL keeps such a plan although it lacks the table, if it reads the log through a function."""
    await queue.partition()
    await queue.database.fetch(
        """CREATE FUNCTION slow_to_plan() RETURNS int LANGUAGE plpgsql STABLE AS
           'BEGIN PERFORM pg_advisory_lock_shared(1); PERFORM pg_advisory_unlock_shared(1); RETURN 0; END'"""
    )
    await queue.database.fetch(
        """CREATE FUNCTION stored() RETURNS SETOF log LANGUAGE sql STABLE AS
           'SELECT * FROM log WHERE partition_id <> slow_to_plan()'"""
    )
    await queue.database.fetch(
        """CREATE FUNCTION count_stored() RETURNS bigint LANGUAGE plpgsql AS
           'BEGIN RETURN (SELECT count(*) FROM stored()); END'"""
    )
    async with (
        upkeep(queue.database) as session,
        connected(queue.database) as planner,
        connected(queue.database) as blocker,
    ):
        await blocker.execute("SELECT pg_advisory_lock(1)")
        planning = asyncio.create_task(planner.fetchval("SELECT count_stored()"))

        async def is_planning() -> bool:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            return bool(await session.fetch(waiting))

        await wait_until_async(is_planning, 10, "the plan is being made")
        assert await chunks.rotate(session, 1, HOUR) is None
        await blocker.execute("SELECT pg_advisory_unlock(1)")
        assert await planning == 0
        assert await rotate(session) == 2
        await queue.push("a")
        assert await planner.fetchval("SELECT count_stored()") == 1


async def test_a_closed_chunk_is_not_counted_while_a_push_to_it_runs(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        pushing = connection.transaction()
        await pushing.start()
        segment = Segment(ids.partition_id, [str(new_id())], [None], [None], [b"late"])
        await log.push(connection, [segment], queue.now)  # type: ignore[arg-type]
        await session.fetch("SELECT prepare_chunk_v1(1, '1 hour')")
        for _ in range(2):
            await session.fetch(
                "UPDATE chunk_stages SET blocking_transactions = '{}' WHERE stage IN ('spare', 'announced')"
            )
            await session.fetch("SELECT open_chunk_v1()")
        await session.fetch("SELECT close_chunks_v1()")
        await chunks.reclaim(session, chunks.time_budget(5))
        assert await stages(session) == {1: "closed", 2: "open"}
        await pushing.commit()
        await chunks.reclaim(session, chunks.time_budget(5))
        assert await stages(session) == {1: "counted", 2: "open"}
    assert (await queue.pop(5)).payloads == ["late"]
