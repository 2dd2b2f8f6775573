"""Reconciliation of totals and positions with the log: no false findings, and every real error."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import NamedTuple

import pytest

from penstock.broker.broker import Broker
from penstock.broker.maintenance import Maintenance, MaintenancePlan
from penstock.durable.cluster_lock import ClusterLock
from penstock.durable.pool import Database
from penstock.durable.queue_gauges import GaugeReader
from penstock.durable.reconciliation import Reconciliation
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, ack, pop, push

PLAN = MaintenancePlan(interval_s=60, reconcile_interval_s=600)


class ReconciliationRow(NamedTuple):
    queues: int
    partitions: int
    drift: int
    orphans: int
    findings: list[dict[str, object]]


async def reconcile(session: ClusterLock) -> ReconciliationRow:
    """Run one whole reconciliation and return its row."""
    while not await Reconciliation(session).run_step():
        pass
    row = await session.fetchrow(
        "SELECT * FROM reconciliations WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 1"
    )
    assert row is not None
    return ReconciliationRow(
        row["queues"], row["partitions"], row["drift"], row["orphans"], json.loads(row["findings"])
    )


async def acquire_lock(database: Database) -> ClusterLock:
    lock = await ClusterLock.acquire(database.url)
    assert lock is not None
    return lock


async def test_traffic_causes_no_findings(brokers: Brokers, database: Database) -> None:
    first, second = await brokers.start(), await brokers.start()
    session = await acquire_lock(database)
    stop = asyncio.Event()
    partitions_per_queue = 4

    async def generate_traffic(broker: Broker, number: int) -> None:
        rounds = 0
        while not stop.is_set() or rounds < partitions_per_queue:
            partition = f"p{rounds % partitions_per_queue}"
            await push(broker, *"abc", queue=f"q{number}", partition=partition)
            popped = await pop(broker, f"q{number}", "g", batch=5)
            if popped.messages:
                await ack(broker, popped, "failed" if rounds % 7 == 0 else "completed")
            rounds += 1

    workers = [
        asyncio.create_task(generate_traffic(broker, number))
        for number in range(3)
        for broker in (first, second)
    ]
    try:
        rows = [await reconcile(session) for _ in range(20)]
    finally:
        stop.set()
        await asyncio.gather(*workers)
    rows.append(await reconcile(session))
    await session.close()
    assert rows[-1].partitions == 3 * partitions_per_queue
    for row in rows:
        assert (row.drift, row.orphans, row.findings) == (0, 0, [])


async def test_errors_are_reported_and_corrected(
    broker: Broker, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await push(broker, *"abcdef", queue="a")
    await ack(broker, await pop(broker, "a", "g", batch=2))
    await push(broker, "x", queue="fine")
    session = await acquire_lock(database)
    await database.fetch("UPDATE tallies SET messages = messages + 40 WHERE group_id = 0 AND messages = 6")
    await database.fetch(
        """INSERT INTO tallies (queue_id, group_id, slot, messages)
           SELECT id, 999999, 0, 7 FROM queues WHERE name = 'a'"""
    )
    await database.fetch("UPDATE positions SET ready_at = NULL, lease_id = NULL")
    with caplog.at_level(logging.ERROR):
        row = await reconcile(session)
    assert (row.queues, row.drift, row.orphans) == (2, 40, 1)
    assert {finding["what"] for finding in row.findings} == {"total pushed", "a position was stuck"}
    assert {finding["queue"] for finding in row.findings} == {"a"}
    assert sum("reconciliation found" in r.message for r in caplog.records) == 2
    rows = await GaugeReader(database).of_environment_queues(DEFAULT_SCOPE, 10)
    assert [r.depth for r in rows if (r.queue, r.group_name) == ("a", "g")] == [4]
    assert len((await pop(broker, "a", "g", batch=10)).messages) == 4, (
        "messages of the stuck position can be popped"
    )
    again = await reconcile(session)
    assert (again.drift, again.orphans, again.findings) == (0, 0, [])

    await database.fetch("UPDATE positions SET cursor = 99")
    await database.fetch("UPDATE partitions SET next_offset = 10 WHERE next_offset = 6")
    row = await reconcile(session)
    uncorrected = {finding["what"] for finding in row.findings if not finding["corrected"]}
    assert uncorrected == {"a cursor is outside its partition", "its last segment is not where it ends"}
    await session.close()


async def test_a_new_leader_reconciles_at_once_and_then_at_intervals(database: Database) -> None:
    async def count_reconciliations() -> int:
        return len(await database.fetch("SELECT 1 FROM reconciliations WHERE ended_at IS NOT NULL"))

    maintenance = Maintenance(database.url, PLAN)
    await maintenance.run_round()
    await maintenance.run_round()
    assert await count_reconciliations() == 1
    await database.fetch("UPDATE reconciliations SET ended_at = ended_at - interval '11 minutes'")
    await maintenance.run_round()
    assert await count_reconciliations() == 2
    await maintenance.stop()
    successor = Maintenance(database.url, PLAN)
    await successor.run_round()
    assert await count_reconciliations() == 3
    await successor.stop()


async def test_old_minute_rows_are_deleted(database: Database) -> None:
    columns = await database.fetch(
        """SELECT column_name AS name, data_type AS type FROM information_schema.columns
           WHERE table_schema = 'penstock' AND table_name = 'worker_metrics'"""
    )
    default_values = {"text": "'x'", "jsonb": "'{}'", "bytea": "NULL", "timestamp with time zone": "now()"}
    values = {row["name"]: default_values.get(row["type"], "0") for row in columns}
    for days in (29, 31, 400):
        values["bucket_at"] = f"now() - interval '{days} days'"
        await database.fetch(
            f"INSERT INTO worker_metrics ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        )
    maintenance = Maintenance(database.url, PLAN)
    await maintenance.run_round()
    await maintenance.stop()
    assert len(await database.fetch("SELECT 1 FROM worker_metrics")) == 1
