"""The PostgreSQL schema: numbered migrations, and functions replaced in place.

Safe to run from several starters at once: one works under an advisory lock, the others wait and find
nothing left to do. Each migration is one transaction and is recorded with its checksum; one that changed
after it was applied is refused. Functions carry no state, so a changed file simply replaces the old one.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from penstock.durable.faults import translated
from penstock.durable.pool import SCHEMA
from penstock.errors import MigrationError

LOCK_KEY = 0x70656E73746F636B  # "penstock"


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def scripts(kind: str) -> list[Script]:
    """Return the packaged `.sql` files of a kind (`migrations` or `functions`), by name."""
    return sorted(_sql_files(files("penstock.durable") / "sql" / kind), key=lambda script: script.name)


def _sql_files(folder: Traversable) -> Iterator[Script]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sql_files(entry)
        else:
            yield Script(entry.name.removesuffix(".sql"), entry.read_text())


@asynccontextmanager
async def migration_lock(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection that holds the lock every migrating process takes; also guards other stores."""
    with translated():
        connection = await asyncpg.connect(url, server_settings={"application_name": "penstock migrate"})
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK_KEY)
        yield connection
    finally:
        await connection.close()


async def apply(connection: asyncpg.Connection[asyncpg.Record], limit: int | None = None) -> list[str]:
    """Bring the schema up to date; the names of what was applied. `limit` stops after that number."""
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    # Functions call each other in any order, so their bodies are checked when they run.
    await connection.execute(f"SET search_path = {SCHEMA}; SET check_function_bodies = off")
    await connection.execute(
        """CREATE TABLE IF NOT EXISTS schema_migrations (
               kind text NOT NULL, name text NOT NULL, checksum text NOT NULL,
               applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (kind, name))"""
    )
    recorded = await _recorded_checksums(connection)
    known = scripts("migrations")
    _refuse_newer({name for kind, name in recorded if kind == "migration"}, known)
    applied = []
    for script in known[:limit]:
        if await _apply_once(connection, "migration", script, recorded):
            applied.append(script.name)
    recorded = await _recorded_checksums(connection)  # a migration may have dropped functions
    # Functions name the types of tables, so they come once all tables are there.
    for script in scripts("functions") if limit is None or limit >= len(known) else ():
        if recorded.get(("function", script.name)) != script.checksum:
            await _record(connection, "function", script)
            applied.append(f"function {script.name}")
    return applied


async def _recorded_checksums(connection: asyncpg.Connection[asyncpg.Record]) -> dict[tuple[str, str], str]:
    rows = await connection.fetch("SELECT kind, name, checksum FROM schema_migrations")
    return {(row["kind"], row["name"]): row["checksum"] for row in rows}


async def _apply_once(
    connection: asyncpg.Connection[asyncpg.Record],
    kind: str,
    script: Script,
    recorded: dict[tuple[str, str], str],
) -> bool:
    checksum = recorded.get((kind, script.name))
    if checksum is None:
        await _record(connection, kind, script)
        return True
    if checksum != script.checksum:
        raise MigrationError(
            f"migration {script.name} was applied with other contents than this version has; "
            "run the version of Penstock that made this database, or restore the file"
        )
    return False


async def _record(connection: asyncpg.Connection[asyncpg.Record], kind: str, script: Script) -> None:
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


def _refuse_newer(recorded: set[str], known: list[Script]) -> None:
    unknown = sorted(recorded - {script.name for script in known})
    if unknown:
        raise MigrationError(
            f"this database has migrations that this version does not know ({', '.join(unknown)}); "
            "start the newer Penstock that applied them"
        )
