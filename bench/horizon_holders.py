"""What holds the vacuum horizon in the horizon benchmark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

POSTGRES_SETTINGS = ("max_prepared_transactions=10", "wal_level=logical", "max_replication_slots=10")
"""Settings of the server without which there are no prepared transactions and no logical slots."""
HOLDERS = ("snapshot", "dump", "prepared", "logical-slot")
_NAME = "forgotten"


@asynccontextmanager
async def hold_horizon(url: str, holder: str) -> AsyncIterator[None]:
    """Hold the horizon of a database.

    - `snapshot`: an idle transaction with a snapshot and an id.
    - `dump`: the same, which has also locked all tables, as pg_dump does.
    - `prepared`: a prepared transaction.
    - `logical-slot`: a logical slot without a consumer. It holds the horizon of system tables alone.
    """
    connection = await asyncpg.connect(url, server_settings={"application_name": _NAME})
    name = f"{_NAME}_{await connection.fetchval('SELECT current_database()')}"
    try:
        if holder == "logical-slot":
            await connection.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
            yield
            await connection.execute(f"SELECT pg_drop_replication_slot('{name}')")
            return
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT pg_current_xact_id()")
        if holder == "prepared":
            await connection.execute(f"PREPARE TRANSACTION '{name}'")
            yield
            await connection.execute(f"ROLLBACK PREPARED '{name}'")
            return
        if holder == "dump":
            await _lock_all_tables(connection)
        yield
    finally:
        await connection.close()


async def _lock_all_tables(connection: asyncpg.Connection) -> None:
    tables = await connection.fetch(
        """SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
           WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"""
    )
    await connection.execute(f"LOCK TABLE {', '.join(row['name'] for row in tables)} IN ACCESS SHARE MODE")
