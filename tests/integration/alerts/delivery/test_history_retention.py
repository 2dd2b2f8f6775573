"""Resolved incidents and ended silences are deleted once their retention is over."""

from __future__ import annotations

from datetime import timedelta

from penstock.alerts.incidents.silence_service import AlertSilences
from penstock.durable.alerts.incident_store import IncidentStore
from penstock.durable.alerts.silence_store import SilenceStore
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.alerts.delivery.outbox import Outbox
from tests.integration.durable.alerts.alert_rows import add_channel, add_environment, add_incident, add_notice
from tests.waiting import wait_until_async

DAYS_AGO = "UPDATE alert_incidents SET resolved_at = clock_timestamp() - $2::interval WHERE id = $1"


async def add_silence(database: Database, ends_at: str | None) -> None:
    await add_environment(database)
    await AlertSilences(database).create(DEFAULT_SCOPE, {} if ends_at is None else {"endsAt": ends_at})


async def count_rows(database: Database, table: str) -> int:
    [row] = await database.fetch(f"SELECT count(*) AS rows FROM {table}")
    rows: int = row["rows"]
    return rows


async def test_only_incidents_that_were_resolved_long_ago_are_pruned(database: Database) -> None:
    channel_id = await add_channel(database)
    for days in (None, 9, 11, 12):
        incident_id = await add_incident(database)
        await add_notice(database, incident_id, channel_id)
        if days is not None:
            await database.fetch(DAYS_AGO, incident_id, timedelta(days=days))
    store = IncidentStore(database)
    assert [await store.prune(10, 1) for _ in range(3)] == [1, 1, 0]
    assert await count_rows(database, "alert_incidents") == 2
    assert await count_rows(database, "alert_notices") == 2


async def test_only_silences_that_ended_long_ago_are_pruned(database: Database) -> None:
    for ends_at in (None, "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"):
        await add_silence(database, ends_at)
    assert await SilenceStore(database).prune(10, 100) == 1
    assert await count_rows(database, "alert_silences") == 2


async def test_the_sender_prunes_by_its_retention(outbox: Outbox, database: Database) -> None:
    await database.fetch(DAYS_AGO, await add_incident(database), timedelta(days=400))
    await add_silence(database, "2020-01-01T00:00:00Z")

    async def is_pruned() -> bool:
        rows = [await count_rows(database, table) for table in ("alert_incidents", "alert_silences")]
        return rows == [0, 0]

    async with outbox.run_sender():
        await wait_until_async(is_pruned, 10, "the old incident and the old silence are gone")
