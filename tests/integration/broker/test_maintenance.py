"""Maintenance: one process works at a time, and a failing step does not stop the others."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import asyncpg
import pytest

from penstock.broker.maintenance import Maintenance, MaintenancePlan
from penstock.durable import log
from penstock.durable.cluster_lock import ClusterLock
from penstock.durable.log import PartitionName, Segment
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import create_group
from tests.waiting import wait_until_async

SHORT_INTERVALS = MaintenancePlan(interval_s=0.05, chunk_bytes=1)


async def push(database: Database, *payloads: bytes, queue: str = "orders", age_s: float = 0) -> None:
    """Push messages as if it had happened `age_s` ago."""
    name = PartitionName(queue, "Default")
    ids = (await log.ensure_partitions(database, DEFAULT_SCOPE, [name]))[name]
    count = len(payloads)
    [row] = await database.fetch("SELECT clock_timestamp() AS now")
    segment = Segment(
        ids.partition_id, [str(new_id()) for _ in payloads], [None] * count, [None] * count, list(payloads)
    )
    await log.push(database, [segment], row["now"] - timedelta(seconds=age_s))


async def wait_for_rounds(*tasks: Maintenance, rounds: int = 3) -> None:
    """Wait until each has run this many more rounds."""
    targets = [task.rounds + rounds for task in tasks]

    async def reached() -> bool:
        return all(task.rounds >= target for task, target in zip(tasks, targets, strict=True))

    await wait_until_async(reached, 20, "maintenance runs its rounds")


async def test_one_process_works_and_another_takes_over_when_it_stops(database: Database) -> None:
    first, second = Maintenance(database.url, SHORT_INTERVALS), Maintenance(database.url, SHORT_INTERVALS)
    await first.start()
    await wait_for_rounds(first)
    await second.start()
    await wait_for_rounds(first)
    assert (first.is_leader, second.is_leader) == (True, False)
    await first.stop()
    await wait_for_rounds(second)
    assert (first.is_leader, second.is_leader) == (False, True)
    await second.stop()


async def test_maintenance_may_be_started_and_stopped_twice(database: Database) -> None:
    maintenance = Maintenance(database.url, SHORT_INTERVALS)
    await maintenance.stop()
    await maintenance.start()
    await maintenance.start()
    await wait_for_rounds(maintenance)
    await maintenance.stop()
    await maintenance.stop()
    rounds = maintenance.rounds
    lock = await ClusterLock.acquire(database.url)
    assert lock is not None, "the lock is free again"
    assert await ClusterLock.acquire(database.url) is None
    await lock.close()
    assert maintenance.rounds == rounds


async def test_maintenance_continues_after_its_connection_is_lost(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    maintenance = Maintenance(database.url, SHORT_INTERVALS)
    await maintenance.start()
    await wait_for_rounds(maintenance)
    with caplog.at_level(logging.WARNING):
        rows = await database.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'penstock maintenance' AND datname = current_database()"""
        )
        assert len(rows) == 1
        await wait_for_rounds(maintenance)
    await maintenance.stop()


async def test_maintenance_waits_for_an_unreachable_database(caplog: pytest.LogCaptureFixture) -> None:
    maintenance = Maintenance("postgresql://penstock@127.0.0.1:1/none", SHORT_INTERVALS)
    with caplog.at_level(logging.WARNING):
        await maintenance.start()

        async def logged_twice() -> bool:
            return sum("Maintenance waits for the database" in r.message for r in caplog.records) >= 2

        await wait_until_async(logged_twice, 10, "maintenance retries")
    await maintenance.stop()


async def test_a_round_runs_all_steps(database: Database) -> None:
    expired: list[tuple[Scope, int, str, str, int]] = []
    maintenance = Maintenance(database.url, SHORT_INTERVALS, lambda *batch: expired.append(batch))
    expiring = await create_group(database, "expiring")
    leaving = await create_group(database, "leaving")
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

    async def is_rotated() -> bool:
        await maintenance.run_round()
        return [row["chunk"] for row in await database.fetch("SELECT DISTINCT chunk FROM log")] == [2]

    await wait_until_async(is_rotated, 10, "the first chunk is emptied into the second")
    assert sorted(expired, key=lambda batch: batch[1]) == [
        (DEFAULT_SCOPE, expiring.queue_id, "expiring", "g", 2),
        (DEFAULT_SCOPE, leaving.queue_id, "leaving", "g", 50),
    ]
    [row] = await database.fetch("SELECT count(*) AS traces FROM traces")
    assert row["traces"] == 1
    assert await database.fetch("SELECT 1 FROM xid_clock")
    await maintenance.stop()


async def test_a_table_full_of_dead_rows_is_vacuumed(database: Database) -> None:
    await push(database, b"a")
    await database.fetch("ALTER TABLE tallies SET (autovacuum_enabled = off)")
    connection = await asyncpg.connect(database.url, server_settings={"search_path": "penstock"})
    await connection.execute("INSERT INTO tallies SELECT 1, n, 0, 0 FROM generate_series(1000, 9000) n")
    await connection.execute("DELETE FROM tallies WHERE group_id >= 1000")
    await connection.close()  # a session reports its dead rows when it ends; an idle one takes ten seconds
    maintenance = Maintenance(database.url, SHORT_INTERVALS)

    async def count_vacuums() -> int:
        await maintenance.run_round()
        [row] = await database.fetch("SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'tallies'")
        count: int = row["vacuum_count"]
        return count

    await wait_until_async(count_vacuums, 10, "the table is vacuumed")
    await maintenance.stop()


async def test_a_failing_step_does_not_stop_the_others(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.fetch("ALTER TABLE queues RENAME TO gone")
    maintenance = Maintenance(database.url, SHORT_INTERVALS)
    with caplog.at_level(logging.ERROR):
        await maintenance.run_round()
    failed = [r.message for r in caplog.records]
    assert failed == [
        f"Maintenance failed at {step}"
        for step in ("apply_retention", "expire_positions", "fold_dead_letter_counts", "reconcile")
    ]
    assert maintenance.is_leader
    await maintenance.stop()


async def test_a_locked_table_postpones_its_step(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await push(database, b"a")
    lock = await ClusterLock.acquire(database.url)
    assert lock is not None
    is_locked = asyncio.Event()
    may_unlock = asyncio.Event()

    async def lock_table() -> None:
        async with database.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE chunk_stages IN ACCESS EXCLUSIVE MODE")
            is_locked.set()
            await may_unlock.wait()

    locking = asyncio.create_task(lock_table())
    await is_locked.wait()
    await lock.close()
    maintenance = Maintenance(database.url, SHORT_INTERVALS)
    with caplog.at_level(logging.WARNING):
        await wait_until_async(
            lambda: _becomes_leader(maintenance), 10, "the lock of the closed session is free"
        )
    assert any("Maintenance postponed rotate_chunks" in r.message for r in caplog.records)
    may_unlock.set()
    await locking
    await maintenance.stop()


async def _becomes_leader(maintenance: Maintenance) -> bool:
    await maintenance.run_round()
    return maintenance.is_leader
