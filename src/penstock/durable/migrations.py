"""Migrate the PostgreSQL schema: numbered migrations, and functions replaced in place.

Safe to run from several processes at once: one works under an advisory lock, the others wait and find nothing
left to do. Each migration is one transaction and is recorded with its checksum; a migration that changed
after it was applied is refused. Functions carry no state, so a changed file replaces the old function.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeAlias

import asyncpg

from penstock.durable.faults import UNAVAILABLE, translate_errors
from penstock.durable.pool import SCHEMA
from penstock.durable.primary import connect_to_primary
from penstock.errors import MigrationError

CONNECT_TIMEOUT_S = 60.0
LOCK_KEY = 0x70656E73746F636B  # "penstock"

MigrationConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(frozen=True, slots=True)
class SqlScript:
    """A packaged SQL file."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def load_scripts(kind: str) -> list[SqlScript]:
    """Return the packaged `.sql` files of a kind (`migrations` or `functions`), by name."""
    folder = files("penstock.durable") / "sql" / kind
    return sorted(_load_folder(folder), key=lambda script: script.name)


def _load_folder(folder: Traversable) -> Iterator[SqlScript]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _load_folder(entry)
        elif entry.name.endswith(".sql"):
            yield SqlScript(entry.name.removesuffix(".sql"), entry.read_text())


@asynccontextmanager
async def migration_lock(url: str) -> AsyncIterator[MigrationConnection]:
    """Yield a connection that holds the lock of all migrating processes; it guards other stores as well."""
    with translate_errors():
        connection = await connect_to_primary(
            url, timeout=CONNECT_TIMEOUT_S, server_settings={"application_name": "penstock migrate"}
        )
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK_KEY)
        yield connection
    finally:
        await connection.close()


async def apply(connection: MigrationConnection, limit: int | None = None) -> list[str]:
    """Migrate the schema and return the names of the applied scripts. `limit` stops after that many
    migrations."""
    try:
        return await _apply(connection, limit)
    except UNAVAILABLE as error:
        raise MigrationError(
            f"PostgreSQL closed the connection during a migration ({error}). What was completed is stored. "
            "Run `penstock migrate` again."
        ) from error


async def _apply(connection: MigrationConnection, limit: int | None) -> list[str]:
    # Creating a schema takes a right on the database, even if the schema exists.
    if await connection.fetchval("SELECT to_regnamespace($1)", SCHEMA) is None:
        await connection.execute(f"CREATE SCHEMA {SCHEMA}")
    # Functions call each other in any order, so PostgreSQL checks their bodies when they run.
    await connection.execute(f"SET search_path = {SCHEMA}; SET check_function_bodies = off")
    await connection.execute(
        """CREATE TABLE IF NOT EXISTS schema_migrations (
               kind text NOT NULL, name text NOT NULL, checksum text NOT NULL,
               applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (kind, name))"""
    )
    checksums = await _read_checksums(connection)
    migrations = load_scripts("migrations")
    _refuse_newer_schema({name for kind, name in checksums if kind == "migration"}, migrations)
    applied = []
    for script in migrations[:limit]:
        if await _apply_once(connection, script, checksums.get(("migration", script.name))):
            applied.append(script.name)
    checksums = await _read_checksums(connection)  # a migration may have dropped functions
    # Functions use the row types of tables, so they follow the last migration.
    for script in load_scripts("functions") if limit is None or limit >= len(migrations) else ():
        if checksums.get(("function", script.name)) != script.checksum:
            await _execute(connection, "function", script)
            applied.append(f"function {script.name}")
    return applied


async def _read_checksums(connection: MigrationConnection) -> dict[tuple[str, str], str]:
    rows = await connection.fetch("SELECT kind, name, checksum FROM schema_migrations")
    return {(row["kind"], row["name"]): row["checksum"] for row in rows}


async def _apply_once(connection: MigrationConnection, script: SqlScript, checksum: str | None) -> bool:
    """Apply a migration unless it was applied before; whether it was applied now."""
    if checksum is None:
        await _execute(connection, "migration", script)
        return True
    if checksum != script.checksum:
        raise MigrationError(
            f"Migration {script.name} was applied with other contents than this version has. "
            "Run the version of Penstock that created this database, or restore the file."
        )
    return False


async def _execute(connection: MigrationConnection, kind: str, script: SqlScript) -> None:
    """Execute a script and record its checksum in one transaction."""
    try:
        async with connection.transaction():
            await connection.execute(script.text)
            await connection.execute(
                """INSERT INTO schema_migrations (kind, name, checksum) VALUES ($1, $2, $3)
                   ON CONFLICT (kind, name) DO UPDATE SET checksum = excluded.checksum, applied_at = now()""",
                kind,
                script.name,
                script.checksum,
            )
    except asyncpg.PostgresError as error:
        raise MigrationError(f"{kind} {script.name} failed: {error}") from error


def _refuse_newer_schema(applied: set[str], migrations: list[SqlScript]) -> None:
    unknown = sorted(applied - {script.name for script in migrations})
    if unknown:
        raise MigrationError(
            f"The database has migrations that this version does not know: {', '.join(unknown)}. "
            "Start the newer version of Penstock that applied them."
        )
