"""What happens by itself: one process works at a time, and nothing that fails is the end of it."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from penstock.broker.maintenance import Maintenance, Plan
from penstock.durable import log
from penstock.durable.log import PartitionName, Segment
from penstock.durable.maintenance_lock import Upkeep
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.waiting import wait_until_async

OFTEN = Plan(interval_s=0.05, chunk_bytes=1)


async def push(database: Database, *payloads: bytes, queue: str = "orders", age_s: float = 0) -> None:
    """Messages that were pushed so long ago."""
    name = PartitionName(queue, "Default")
    ids = (await log.ensure_partitions(database, DEFAULT_SCOPE, [name]))[name]
    count = len(payloads)
    [row] = await database.fetch("SELECT clock_timestamp() AS now")
    segment = Segment(
        ids.partition_id, [new_id() for _ in payloads], [None] * count, [None] * count, list(payloads)
    )
    await log.push(database, [segment], row["now"] - timedelta(seconds=age_s))


async def settled(*tasks: Maintenance, rounds: int = 3) -> None:
    """Wait until these have gone round so often from now on."""
    goals = [task.rounds + rounds for task in tasks]

    async def reached() -> bool:
        return all(task.rounds >= goal for task, goal in zip(tasks, goals, strict=True))

    await wait_until_async(reached, 20, "maintenance goes round")


async def test_one_process_works_and_another_takes_over_when_it_stops(database: Database) -> None:
    first, second = Maintenance(database.url, OFTEN), Maintenance(database.url, OFTEN)
    await first.start()
    await settled(first)
    await second.start()
    await settled(first)
    assert (first.leads, second.leads) == (True, False)
    await first.stop()
    await settled(second)
    assert (first.leads, second.leads) == (False, True)
    await second.stop()


async def test_it_may_be_started_and_stopped_twice(database: Database) -> None:
    maintenance = Maintenance(database.url, OFTEN)
    await maintenance.stop()
    await maintenance.start()
    await maintenance.start()
    await settled(maintenance)
    await maintenance.stop()
    await maintenance.stop()
    rounds = maintenance.rounds
    session = await Upkeep.begin(database.url)
    assert session is not None, "the lock is free again"
    assert await Upkeep.begin(database.url) is None
    await session.close()
    assert maintenance.rounds == rounds


async def test_it_goes_on_after_its_connection_is_lost(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    maintenance = Maintenance(database.url, OFTEN)
    await maintenance.start()
    await settled(maintenance)
    with caplog.at_level(logging.WARNING):
        rows = await database.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'penstock maintenance' AND datname = current_database()"""
        )
        assert len(rows) == 1
        await settled(maintenance)
    await maintenance.stop()


async def test_a_database_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    maintenance = Maintenance("postgresql://penstock@127.0.0.1:1/none", OFTEN)
    with caplog.at_level(logging.WARNING):
        await maintenance.start()

        async def told() -> bool:
            return sum("maintenance waits for the database" in r.message for r in caplog.records) >= 2

        await wait_until_async(told, 10, "it tries again")
    await maintenance.stop()


async def test_a_round_does_all_that_is_due(database: Database) -> None:
    told: list[tuple[Scope, int, str, str, int]] = []
    maintenance = Maintenance(database.url, OFTEN, lambda *gone: told.append(gone))
    expiring = await log.ensure_group(database, DEFAULT_SCOPE, "expiring", "g")
    leaving = await log.ensure_group(database, DEFAULT_SCOPE, "leaving", "g")
    await database.fetch("UPDATE queues SET ttl_ms = 60000 WHERE name = 'expiring'")
    await database.fetch(
        "UPDATE queues SET retention_enabled = true, retention_ms = 60000 WHERE name = 'leaving'"
    )
    await push(database, b"a", b"b", queue="expiring", age_s=120)
    await push(database, *([b"c" * 100] * 50), queue="leaving", age_s=120)
    await push(database, b"d", queue="leaving")
    await database.fetch(
        """INSERT INTO traces (environment_id, partition_id, transaction_id, group_name, event, names, data,
                               created_at)
           SELECT 1, 1, 't', 'g', 'e', '{}', '{}', now() - d * interval '1 day'
           FROM generate_series(6, 9) d"""
    )

    async def rotated() -> bool:
        await maintenance.round()
        return [row["chunk"] for row in await database.fetch("SELECT DISTINCT chunk FROM log")] == [2]

    await wait_until_async(rotated, 10, "the first chunk is emptied into the second")
    assert sorted(told, key=lambda gone: gone[1]) == [
        (DEFAULT_SCOPE, expiring.queue_id, "expiring", "g", 2),
        (DEFAULT_SCOPE, leaving.queue_id, "leaving", "g", 50),
    ]
    [row] = await database.fetch("SELECT count(*) AS traces FROM traces")
    assert row["traces"] == 1
    assert await database.fetch("SELECT 1 FROM xid_clock")
    await maintenance.stop()


async def test_a_table_full_of_dead_rows_is_cleaned(database: Database) -> None:
    await push(database, b"a")
    await database.fetch("INSERT INTO tallies SELECT 1, n, 0, 0 FROM generate_series(1000, 9000) n")
    await database.fetch("DELETE FROM tallies WHERE group_id >= 1000")
    maintenance = Maintenance(database.url, OFTEN)

    async def cleaned() -> int:
        await database.fetch("SELECT pg_stat_force_next_flush()")
        await maintenance.round()
        [row] = await database.fetch("SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'tallies'")
        count: int = row["vacuum_count"]
        return count

    await wait_until_async(cleaned, 10, "the table is vacuumed")
    await maintenance.stop()


async def test_work_that_fails_is_not_the_end_of_the_rest(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.fetch("ALTER TABLE queues RENAME TO gone")
    maintenance = Maintenance(database.url, OFTEN)
    with caplog.at_level(logging.ERROR):
        await maintenance.round()
    failed = [r.message for r in caplog.records]
    assert failed == [
        f"maintenance failed at {step}" for step in ("retain", "expire", "fold_dead", "reconcile")
    ]
    assert maintenance.leads
    await maintenance.stop()


async def test_a_lock_that_is_not_to_be_had_puts_the_work_off(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await push(database, b"a")
    session = await Upkeep.begin(database.url)
    assert session is not None
    held = asyncio.Event()
    done = asyncio.Event()

    async def hold() -> None:
        async with database.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE chunk_stages IN ACCESS EXCLUSIVE MODE")
            held.set()
            await done.wait()

    holding = asyncio.create_task(hold())
    await held.wait()
    await session.close()
    maintenance = Maintenance(database.url, OFTEN)
    with caplog.at_level(logging.WARNING):
        await wait_until_async(lambda: _led(maintenance), 10, "the lock of the closed session is free")
    assert any("maintenance put off rotate" in r.message for r in caplog.records)
    done.set()
    await holding
    await maintenance.stop()


async def _led(maintenance: Maintenance) -> bool:
    await maintenance.round()
    return maintenance.leads
