from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from penstock.durable import migrations
from penstock.errors import DatabaseUnavailable, MigrationError
from tests.integration.databases import new_database
from tests.waiting import wait_until_async


@pytest_asyncio.fixture
async def empty_url(postgres_url: str) -> AsyncIterator[str]:
    async with new_database(postgres_url) as url:
        yield url


async def migrate(url: str, limit: int | None = None) -> list[str]:
    async with migrations.migration_lock(url) as connection:
        return await migrations.apply(connection, limit)


async def describe_schema(url: str) -> list[tuple[str, ...]]:
    """Return columns, indexes, constraints, triggers and functions of the schema."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        """SELECT 'column' AS kind, table_name || '.' || column_name AS name,
                  concat_ws(' ', data_type, udt_name, is_nullable, column_default) AS definition
           FROM information_schema.columns WHERE table_schema = 'penstock'
           UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'penstock'
           UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
           FROM pg_constraint WHERE connamespace = 'penstock'::regnamespace
           UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid)
           FROM pg_trigger WHERE NOT tgisinternal
           UNION ALL SELECT 'function', proname, pg_get_functiondef(oid)
           FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace
           ORDER BY 1, 2, 3"""
    )
    await connection.close()
    return [tuple(row) for row in rows]


async def test_a_database_migrated_step_by_step_equals_a_fresh_one(postgres_url: str, template: str) -> None:
    async with new_database(postgres_url) as stepwise, new_database(postgres_url, template) as fresh:
        for step in range(1, len(migrations.load_scripts("migrations")) + 1):
            await migrate(stepwise, step)
        assert await describe_schema(stepwise) == await describe_schema(fresh)


async def test_a_second_run_applies_nothing(empty_url: str) -> None:
    assert "0001_log_and_positions" in await migrate(empty_url)
    assert await migrate(empty_url) == []


async def test_concurrent_migrations_wait_for_each_other(empty_url: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_url) for _ in range(4)))
    assert sum(bool(names) for names in applied) == 1


async def test_a_migration_that_changed_after_it_was_applied_is_refused(empty_url: str) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute("UPDATE penstock.schema_migrations SET checksum = 'x' WHERE kind = 'migration'")
    await connection.close()
    with pytest.raises(MigrationError, match="other contents"):
        await migrate(empty_url)


async def test_a_database_of_a_newer_version_is_refused(empty_url: str) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute(
        "INSERT INTO penstock.schema_migrations (kind, name, checksum) VALUES ('migration', '9999_x', 'x')"
    )
    await connection.close()
    with pytest.raises(MigrationError, match="9999_x"):
        await migrate(empty_url)


async def test_an_unreachable_server_is_reported() -> None:
    with pytest.raises(DatabaseUnavailable, match="did not respond"):
        await migrate("postgresql://penstock@127.0.0.1:1/none")


async def test_a_connection_that_ends_during_a_migration_is_reported_and_the_next_one_goes_on(
    empty_url: str,
) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute(
        "UPDATE penstock.schema_migrations SET checksum = 'old' WHERE name = 'tally_slot'"
    )
    waiting = """FROM pg_stat_activity WHERE application_name = 'penstock migrate'
                 AND datname = current_database() AND wait_event_type = 'Lock'"""
    observer = await asyncpg.connect(empty_url)  # a transaction sees one state of the sessions
    async with connection.transaction():
        await connection.execute("LOCK TABLE penstock.schema_migrations IN EXCLUSIVE MODE")
        migrating = asyncio.create_task(migrate(empty_url))
        await wait_until_async(
            lambda: observer.fetchval(f"SELECT count(*) {waiting}"), 20, "the migration waits for the lock"
        )
        await observer.execute(f"SELECT pg_terminate_backend(pid) {waiting}")
        with pytest.raises(MigrationError, match=r"closed the connection .* Run `penstock migrate` again"):
            await migrating
    await connection.close()
    await observer.close()
    assert await migrate(empty_url) == ["function tally_slot"]


async def test_a_changed_function_is_replaced(empty_url: str) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute(
        "UPDATE penstock.schema_migrations SET checksum = 'old' WHERE name = 'tally_slot'"
    )
    await connection.close()
    assert await migrate(empty_url) == ["function tally_slot"]
