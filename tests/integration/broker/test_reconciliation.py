"""Totals and positions compared with the log: nothing under traffic, everything that is really wrong."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from penstock.broker.broker import Broker
from penstock.broker.maintenance import Maintenance, Plan
from penstock.durable import log, reconciliation
from penstock.durable.maintenance_lock import Upkeep
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, ack, pop, push

NOW_AND_THEN = Plan(interval_s=60, reconcile_s=600)


async def reconciled(session: Upkeep) -> dict[str, object]:
    """One whole reconciliation."""
    while not await reconciliation.step(session):
        pass
    row = await session.fetchrow(
        "SELECT * FROM reconciliations WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 1"
    )
    assert row is not None
    return dict(row) | {"findings": json.loads(row["findings"])}


async def begin(database: Database) -> Upkeep:
    session = await Upkeep.begin(database.url)
    assert session is not None
    return session


async def test_under_traffic_nothing_is_found(brokers: Brokers, database: Database) -> None:
    first, second = await brokers.start(), await brokers.start()
    session = await begin(database)
    stop = asyncio.Event()

    async def traffic(broker: Broker, number: int) -> int:
        done = 0
        while not stop.is_set():
            await push(broker, *"abc", queue=f"q{number % 3}", partition=f"p{done % 4}")
            popped = await pop(broker, f"q{number % 3}", "g", batch=5)
            if popped.messages:
                await ack(broker, popped, "failed" if done % 7 == 0 else "completed")
            done += 1
        return done

    workers = [
        asyncio.create_task(traffic(broker, number)) for number in range(3) for broker in (first, second)
    ]
    try:
        rows = [await reconciled(session) for _ in range(20)]
    finally:
        stop.set()
        done = await asyncio.gather(*workers)
        await session.close()
    assert min(done) > 0
    assert rows[-1]["partitions"] == 12
    for row in rows:
        assert (row["drift"], row["orphans"], row["findings"]) == (0, 0, [])


async def test_what_is_wrong_is_told_and_put_right(
    broker: Broker, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await push(broker, *"abcdef", queue="a")
    await ack(broker, await pop(broker, "a", "g", batch=2))
    await push(broker, "x", queue="fine")
    session = await begin(database)
    await database.fetch("UPDATE tallies SET messages = messages + 40 WHERE group_id = 0 AND messages = 6")
    await database.fetch(
        """INSERT INTO tallies (queue_id, group_id, slot, messages)
           SELECT id, 999999, 0, 7 FROM queues WHERE name = 'a'"""
    )
    await database.fetch("UPDATE positions SET ready_at = NULL, lease_id = NULL")
    with caplog.at_level(logging.ERROR):
        row = await reconciled(session)
    assert (row["queues"], row["drift"], row["orphans"]) == (2, 40, 1)
    assert {found["what"] for found in row["findings"]} == {"total pushed", "a position was stuck"}  # type: ignore[attr-defined]
    assert {found["queue"] for found in row["findings"]} == {"a"}  # type: ignore[attr-defined]
    assert sum("reconciliation found" in r.message for r in caplog.records) == 2
    rows = await log.named_gauges(database, DEFAULT_SCOPE, 10)
    assert [r["depth"] for r in rows if (r["queue"], r["group_name"]) == ("a", "g")] == [4]
    assert len((await pop(broker, "a", "g", batch=10)).messages) == 4, "what was stuck can be popped"
    again = await reconciled(session)
    assert (again["drift"], again["orphans"], again["findings"]) == (0, 0, [])

    await database.fetch("UPDATE positions SET cursor = 99")
    await database.fetch("UPDATE partitions SET next_offset = 10 WHERE next_offset = 6")
    row = await reconciled(session)
    told = {found["what"] for found in row["findings"] if not found["corrected"]}  # type: ignore[attr-defined]
    assert told == {"a cursor is outside its partition", "its last segment is not where it ends"}
    await session.close()


async def test_it_happens_when_a_process_begins_to_lead_and_then_when_it_is_due(database: Database) -> None:
    async def ended() -> int:
        return len(await database.fetch("SELECT 1 FROM reconciliations WHERE ended_at IS NOT NULL"))

    maintenance = Maintenance(database.url, NOW_AND_THEN)
    await maintenance.round()
    await maintenance.round()
    assert await ended() == 1
    await database.fetch("UPDATE reconciliations SET ended_at = ended_at - interval '11 minutes'")
    await maintenance.round()
    assert await ended() == 2
    await maintenance.stop()
    successor = Maintenance(database.url, NOW_AND_THEN)
    await successor.round()
    assert await ended() == 3
    await successor.stop()


async def test_minutes_past_their_time_are_forgotten(database: Database) -> None:
    columns = await database.fetch(
        """SELECT column_name AS name, data_type AS type FROM information_schema.columns
           WHERE table_schema = 'penstock' AND table_name = 'worker_metrics'"""
    )
    zeros = {"text": "'x'", "jsonb": "'{}'", "bytea": "NULL", "timestamp with time zone": "now()"}
    values = {row["name"]: zeros.get(row["type"], "0") for row in columns}
    for days in (29, 31, 400):
        values["bucket_at"] = f"now() - interval '{days} days'"
        await database.fetch(
            f"INSERT INTO worker_metrics ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        )
    maintenance = Maintenance(database.url, NOW_AND_THEN)
    await maintenance.round()
    await maintenance.stop()
    assert len(await database.fetch("SELECT 1 FROM worker_metrics")) == 1
