"""A migrated database per test, cloned from a template so that it costs milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from penstock.durable import migrations

_numbers = count(1)


def named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@asynccontextmanager
async def new_database(url: str, template: str = "template1") -> AsyncIterator[str]:
    """The address of a database of its own, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    admin = await asyncpg.connect(named(url, "postgres"))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield named(url, name)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


async def make_template(url: str) -> str:
    """The name of a migrated database to clone."""
    admin = await asyncpg.connect(named(url, "postgres"))
    await admin.execute("CREATE DATABASE penstock_template")
    await admin.close()
    async with migrations.migration_lock(named(url, "penstock_template")) as connection:
        await migrations.apply(connection)
    return "penstock_template"
