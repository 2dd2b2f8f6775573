"""Bring PostgreSQL and ClickHouse up to date, one process at a time."""

from __future__ import annotations

import asyncio

from penstock.config import Settings
from penstock.durable import migrations as durable
from penstock.warehouse import schema_migrations as warehouse


async def migrate(settings: Settings) -> list[str]:
    """Apply what is missing in both stores; the names of what was applied.

    PostgreSQL's advisory lock guards both, so that two starters never collide.
    """
    async with durable.migration_lock(settings.postgres_url) as connection:
        applied = await durable.apply(connection)
        if settings.clickhouse_url:
            applied += await asyncio.to_thread(
                warehouse.migrate, settings.clickhouse_url, settings.clickhouse_cluster
            )
    return applied
