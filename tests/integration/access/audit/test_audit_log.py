"""The audit log in PostgreSQL: append-only, searchable, and pruned by its retention alone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from penstock.access.audit import audit_log as audit_log_module
from penstock.access.audit.audit_log import AuditCursor, AuditEntry, AuditFilter, AuditLog, UnknownAuditEntry
from penstock.access.audit.unknown_callers import MAX_ENTRIES_PER_ADDRESS
from penstock.broker.maintenance import Maintenance, MaintenancePlan
from penstock.durable.access.audit_store import ENTRIES_PER_PRUNE
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE, Scope
from tests.waiting import wait_until_async

OTHER = Scope("acme", "shop", "staging")


def entry(**fields: Any) -> AuditEntry:
    values: dict[str, Any] = {
        "environment": DEFAULT_SCOPE,
        "subject": "token:deploy",
        "address": "192.0.2.1",
        "action": "PUT /api/v1/run-queues/{queue}/limits",
        "object": '{"queue": "Orders"}',
        "status": 200,
        "denied": False,
        "before": '{"concurrency": 1}',
        "after": '{"concurrency": 2}',
        "request_id": "r1",
    }
    return AuditEntry(**values | fields)


@pytest_asyncio.fixture
async def audit_log(database: Database) -> AsyncIterator[AuditLog]:
    log = AuditLog(database, summary_interval_s=0.05)
    yield log
    await log.stop()


async def insert_entries(database: Database, entries: int, recorded_at: str) -> None:
    """Insert entries with the request ids 1, 2, …; `recorded_at` is SQL, with the number as `i`."""
    await database.fetch(
        f"""INSERT INTO audit_entries (recorded_at, environment_id, environment, subject, address, action,
                                       status, denied, request_id)
            SELECT {recorded_at}, 1, '', 'local', '', 'a', 200, false, i
            FROM generate_series(1, $1) i""",
        entries,
    )


async def search(log: AuditLog, environment: Scope | None = DEFAULT_SCOPE, **filters: Any) -> list[str]:
    """The request ids of the matching entries."""
    audit_filter = AuditFilter(environment=environment, **filters)
    rows = await log.list_entries(audit_filter, AuditCursor(), limit=100)
    return [row.request_id for row in rows]


async def test_an_entry_is_stored_as_it_was_recorded(audit_log: AuditLog) -> None:
    await audit_log.record(entry())
    [row] = await audit_log.list_entries(AuditFilter(environment=DEFAULT_SCOPE), AuditCursor(), limit=10)
    assert (row.environment, row.subject, row.address) == (
        "default/default/default",
        "token:deploy",
        "192.0.2.1",
    )
    assert (json.loads(row.object), row.status, row.denied) == ({"queue": "Orders"}, 200, False)
    assert (json.loads(row.before or ""), json.loads(row.after or "")) == (
        {"concurrency": 1},
        {"concurrency": 2},
    )
    assert await audit_log.get(DEFAULT_SCOPE, row.id) == await audit_log.get(None, row.id) == row
    assert (audit_log.written, audit_log.failed) == (1, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE penstock.audit_entries SET subject = 'token:other'",
        "DELETE FROM penstock.audit_entries",
        "TRUNCATE penstock.audit_entries",
        "WITH gone AS (DELETE FROM penstock.audit_entries RETURNING 1) SELECT count(*) FROM gone",
        "INSERT INTO penstock.audit_entries OVERRIDING SYSTEM VALUE SELECT * FROM penstock.audit_entries "
        "ON CONFLICT (id) DO UPDATE SET status = 500",
        "MERGE INTO penstock.audit_entries a USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
    ],
)
async def test_the_owner_of_the_table_cannot_change_entries(
    audit_log: AuditLog, database_url: str, statement: str
) -> None:
    await audit_log.record(entry())
    connection = await asyncpg.connect(database_url)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await connection.execute(statement)
    finally:
        await connection.close()
    assert await search(audit_log, status=200, subject="token:deploy") == ["r1"]


async def test_entries_stay_when_their_environment_is_deleted(
    audit_log: AuditLog, database: Database
) -> None:
    environment = "INSERT INTO environments (organization, project, name) VALUES ('acme', 'shop', 'staging')"
    await database.fetch(environment)
    await audit_log.record(entry(environment=OTHER))
    await database.fetch("DELETE FROM environments WHERE organization = 'acme'")
    assert await search(audit_log, OTHER) == []
    assert await search(audit_log, None, environment_name="acme/shop/staging") == ["r1"]
    await database.fetch(environment)
    assert await search(audit_log, OTHER) == [], (
        "a new environment of the same name has none of the old entries"
    )


async def test_filters_select_entries(audit_log: AuditLog, database: Database) -> None:
    await database.fetch(
        "INSERT INTO environments (organization, project, name) VALUES ('acme', 'shop', 'staging')"
    )
    await audit_log.record(entry())
    await audit_log.record(entry(request_id="r2", subject="user:ann", status=403, denied=True))
    await audit_log.record(
        entry(request_id="r3", action="POST /api/v1/configure", object='{"queue": "mail"}')
    )
    await audit_log.record(entry(request_id="r4", environment=OTHER))
    await audit_log.record(entry(request_id="r5", environment=None, subject="", status=401, denied=True))
    for filters, request_ids in (
        ({}, ["r3", "r2", "r1"]),
        ({"subject": "user:ann"}, ["r2"]),
        ({"subject": "ann"}, ["r2"]),
        ({"subject": "an"}, []),
        ({"action": "put /API"}, ["r2", "r1"]),
        ({"object_text": "orders"}, ["r2", "r1"]),
        ({"object_text": "%"}, []),
        ({"status": 403}, ["r2"]),
        ({"denied": False}, ["r3", "r1"]),
        ({"request_id": "r1"}, ["r1"]),
        ({"request_id": "r4"}, []),
        ({"start": datetime.now(UTC) + timedelta(hours=1)}, []),
    ):
        assert await search(audit_log, **filters) == request_ids, filters
    assert await search(audit_log, OTHER) == ["r4"]
    assert await search(audit_log, None) == ["r5", "r4", "r3", "r2", "r1"]
    assert await search(audit_log, None, environment_name="acme/shop/staging") == ["r4"]
    assert await search(audit_log, None, request_id="r4") == ["r4"]


async def test_an_entry_of_another_environment_is_unknown(audit_log: AuditLog) -> None:
    await audit_log.record(entry())
    [row] = await audit_log.list_entries(AuditFilter(environment=None), AuditCursor(), limit=10)
    with pytest.raises(UnknownAuditEntry):
        await audit_log.get(OTHER, row.id)


async def test_pages_have_every_entry_once(audit_log: AuditLog, database: Database) -> None:
    await insert_entries(database, 1_000, "'2026-01-01'::timestamptz + i / 3 * interval '1 ms'")
    pages = [
        [row.request_id for row in rows]
        async for rows in audit_log.read_pages(AuditFilter(environment=None), AuditCursor())
    ]
    assert [len(page) for page in pages] == [audit_log_module.ENTRIES_PER_PAGE] * 5
    assert [number for page in pages for number in page] == [str(number) for number in range(1000, 0, -1)]


async def test_retention_deletes_the_oldest_entries_in_steps(
    audit_log: AuditLog, database: Database, database_url: str
) -> None:
    await insert_entries(database, ENTRIES_PER_PRUNE + 1, "now() - interval '8 days'")
    await audit_log.record(entry())
    maintenance = Maintenance(database_url, MaintenancePlan(audit_age=timedelta(days=9)))
    try:
        await maintenance.run_round()
        assert len(await search(audit_log, None)) == 100
    finally:
        await maintenance.stop()
    maintenance = Maintenance(database_url, MaintenancePlan(audit_age=timedelta(days=7)))
    try:
        await maintenance.run_round()
    finally:
        await maintenance.stop()
    assert await search(audit_log, None) == ["r1"]


async def test_calls_of_unknown_callers_are_counted_in_one_entry(audit_log: AuditLog) -> None:
    for number in range(MAX_ENTRIES_PER_ADDRESS + 7):
        await audit_log.record(
            entry(environment=None, subject="", status=401, denied=True, request_id=str(number))
        )
    assert len(await search(audit_log, None)) == MAX_ENTRIES_PER_ADDRESS
    await audit_log.start()

    async def has_summary() -> bool:
        return len(await search(audit_log, None)) == MAX_ENTRIES_PER_ADDRESS + 1

    await wait_until_async(has_summary, 10, "the counted calls are recorded")
    [row] = await audit_log.list_entries(
        AuditFilter(environment=None, action="further calls"), AuditCursor(), limit=10
    )
    assert (json.loads(row.object), row.address, row.denied) == ({"calls": 7}, "192.0.2.1", True)
    assert audit_log.unrecorded == 7


async def test_an_entry_that_cannot_be_stored_is_in_the_brokers_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(database)
    await database.close()
    with caplog.at_level(logging.ERROR):
        await log.record(entry())
    [record] = caplog.records
    for text in ("token:deploy", "192.0.2.1", "run-queues/{queue}/limits", "Orders", "concurrency", "r1"):
        assert text in record.getMessage()
    assert (log.written, log.failed) == (0, 1)


@asynccontextmanager
async def locked_table(database_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Keep the table locked, so that an entry waits."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE penstock.audit_entries")
            yield connection
    finally:
        await connection.close()


async def test_an_entry_that_takes_too_long_is_in_the_brokers_log(
    database: Database, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(database, write_timeout_s=0.1)
    async with locked_table(database_url):
        await log.record(entry())
    assert "token:deploy" in caplog.text
    assert (log.written, log.failed) == (0, 1)


async def test_an_entry_that_is_interrupted_is_in_the_brokers_log(
    database: Database, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(database)
    async with locked_table(database_url) as connection:
        writing = asyncio.create_task(log.record(entry()))

        async def waits() -> bool:
            waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = $1::regclass)"
            return bool(await connection.fetchval(waiting, "penstock.audit_entries"))

        await wait_until_async(waits, 10, "the entry waits for the table")
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    assert "the broker stops" in caplog.text
    assert "token:deploy" in caplog.text
