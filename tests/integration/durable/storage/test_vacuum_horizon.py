"""Holders of the vacuum horizon are found and reported with advice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from penstock.durable import migrations
from penstock.durable.pool import Database
from penstock.durable.storage import vacuum
from penstock.durable.storage.vacuum_horizon import HorizonHolder, find_horizon_holders
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.supervision.component import running
from tests.integration.databases import database_url, new_database

MINUTE = timedelta(minutes=1)


@asynccontextmanager
async def session(
    url: str, application: str = "idle_session"
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url, server_settings={"application_name": application})
    try:
        yield connection
    finally:
        await connection.close()


async def in_an_hour(database: Database, longer_than: timedelta = MINUTE) -> list[HorizonHolder]:
    """Return the holders an hour from now; the xid clock is read after all running transactions started."""
    await vacuum.record_xid_clock(database)
    return await find_horizon_holders(database, longer_than, datetime.now(UTC) + timedelta(hours=1))


async def test_idle_sessions_are_not_reported(database: Database) -> None:
    async with session(database.url) as idle:
        await idle.execute("SELECT 1")
        assert await in_an_hour(database) == []


async def test_a_session_idle_in_a_transaction_is_reported_with_advice(database: Database) -> None:
    async with session(database.url) as idle_session, idle_session.transaction():
        await idle_session.execute("SELECT pg_current_xact_id()")
        pid = idle_session.get_server_pid()
        assert await find_horizon_holders(database) == [], "not for long enough yet"
        [holder] = await in_an_hour(database)
    assert (holder.kind, holder.name, holder.pid) == ("idle in transaction", str(pid), pid)
    assert (holder.user, holder.application, holder.client) == ("penstock", "idle_session", "127.0.0.1")
    assert holder.age_s == pytest.approx(3600, abs=60)
    assert holder.xmin_age >= 1
    assert f"pg_terminate_backend({pid})" in holder.advice
    assert holder.summary.startswith(f"session {pid} of penstock (idle_session) has kept dead rows from")
    assert "60 minutes" in holder.summary


async def test_an_open_snapshot_is_reported(database: Database) -> None:
    async with session(database.url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.execute("SELECT 1")
        [holder] = await in_an_hour(database)
    assert holder.kind == "idle in transaction"


async def test_a_transaction_without_a_snapshot_is_not_reported(database: Database) -> None:
    """Between statements a READ COMMITTED transaction has no snapshot."""
    async with session(database.url) as reader, reader.transaction():
        await reader.execute("SELECT 1")
        assert await in_an_hour(database) == []


async def test_time_without_writes_does_not_count(database: Database) -> None:
    await vacuum.record_xid_clock(database)
    async with session(database.url) as idle_session, idle_session.transaction(isolation="repeatable_read"):
        await idle_session.execute("SELECT 1")
        later = datetime.now(UTC) + timedelta(hours=1)
        await database.fetch("UPDATE xid_clock SET read_at = $1", later - MINUTE)
        assert await find_horizon_holders(database, MINUTE, later) == []


async def test_without_an_xid_clock_the_start_of_the_transaction_counts(database: Database) -> None:
    async with session(database.url) as idle_session, idle_session.transaction():
        await idle_session.execute("SELECT pg_current_xact_id()")
        [holder] = await find_horizon_holders(database, MINUTE, datetime.now(UTC) + timedelta(hours=1))
    assert holder.age_s == pytest.approx(3600, abs=60)


async def test_sessions_of_other_databases_are_not_reported(postgres_url: str, database: Database) -> None:
    async with (
        new_database(postgres_url) as other,
        session(other) as idle_session,
        idle_session.transaction(),
    ):
        await idle_session.execute("SELECT pg_current_xact_id()")
        assert await in_an_hour(database) == []


async def test_a_user_without_privileges_gets_the_same_report(database: Database) -> None:
    await database.fetch("CREATE ROLE penstock_plain LOGIN PASSWORD 'plain'")
    try:
        await database.fetch("GRANT USAGE ON SCHEMA penstock TO penstock_plain")
        await database.fetch("GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO penstock_plain")
        parts = urlsplit(database.url)
        netloc = f"penstock_plain:plain@{parts.hostname}:{parts.port}"
        plain = Database(urlunsplit(parts._replace(netloc=netloc)), 1)
        async with session(database.url) as idle_session, idle_session.transaction():
            await idle_session.execute("SELECT pg_current_xact_id()")
            await vacuum.record_xid_clock(database)
            [holder] = await find_horizon_holders(plain, MINUTE, datetime.now(UTC) + timedelta(hours=1))
            assert holder.pid == idle_session.get_server_pid()
            assert (holder.kind, holder.application) == ("transaction", "idle_session")
        await plain.close()
    finally:
        await database.fetch("DROP OWNED BY penstock_plain")
        await database.fetch("DROP ROLE penstock_plain")


async def test_unused_slots_and_prepared_transactions_are_reported(open_tmp_path: Path) -> None:
    """They need server settings that the embedded server does not have by default."""
    server = Postgres(open_tmp_path, any_free_port())
    with running(server):
        async with session(server.url) as admin:
            await admin.execute("ALTER SYSTEM SET wal_level = logical")
            await admin.execute("ALTER SYSTEM SET max_prepared_transactions = 2")
    with running(server):
        async with migrations.migration_lock(database_url(server.url, "penstock")) as connection:
            await migrations.apply(connection)
        database = Database(server.url, 1)
        async with session(server.url) as admin:
            await admin.execute("SELECT pg_create_logical_replication_slot('copy', 'pgoutput')")
            await admin.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'unfinished'")
            found = {holder.kind: holder for holder in await in_an_hour(database)}
            assert set(found) == {"replication slot", "prepared transaction"}
            slot, prepared = found["replication slot"], found["prepared transaction"]
            assert (slot.name, prepared.name) == ("copy", "unfinished")
            assert "pg_drop_replication_slot('copy')" in slot.advice
            assert "ROLLBACK PREPARED 'unfinished'" in prepared.advice
            assert slot.age_s == pytest.approx(3600, abs=60)
            await admin.execute("ROLLBACK PREPARED 'unfinished'")
        await database.close()
