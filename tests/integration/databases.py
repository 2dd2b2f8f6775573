"""A migrated database per test, cloned from a template so that it costs milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from penstock.durable import migrations

_numbers = count(1)


def database_url(url: str, database: str) -> str:
    """Return the URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@asynccontextmanager
async def new_database(url: str, template: str = "template1") -> AsyncIterator[str]:
    """Create a database and yield its URL; drop it afterwards."""
    async with (
        administering(url) as administrator,
        cloned_database(administrator, url, template) as cloned_url,
    ):
        yield cloned_url


@asynccontextmanager
async def administering(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a connection that can create and drop databases."""
    administrator = await asyncpg.connect(database_url(url, "postgres"))
    try:
        yield administrator
    finally:
        await administrator.close()


@asynccontextmanager
async def cloned_database(administrator: asyncpg.Connection, url: str, template: str) -> AsyncIterator[str]:
    """Like `new_database`, on an open connection, whose caches save a third of the CPU time."""
    name = f"test_{next(_numbers)}"
    await administrator.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield database_url(url, name)
    finally:
        await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def create_template(url: str) -> str:
    """Create a migrated database to clone, unless the server has it; return its name."""
    async with administering(url) as administrator:
        if not await administrator.fetchval("SELECT 1 FROM pg_database WHERE datname = 'penstock_template'"):
            await administrator.execute("CREATE DATABASE penstock_template")
    async with migrations.migration_lock(database_url(url, "penstock_template")) as connection:
        await migrations.apply(connection)
    return "penstock_template"
