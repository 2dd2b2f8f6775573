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
    name = f"test_{next(_numbers)}"
    admin = await asyncpg.connect(database_url(url, "postgres"))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield database_url(url, name)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


async def create_template(url: str) -> str:
    """Create a migrated database to clone; return its name."""
    admin = await asyncpg.connect(database_url(url, "postgres"))
    await admin.execute("CREATE DATABASE penstock_template")
    await admin.close()
    async with migrations.migration_lock(database_url(url, "penstock_template")) as connection:
        await migrations.apply(connection)
    return "penstock_template"
