"""Migrate PostgreSQL and ClickHouse to the current schema, one process at a time."""

from __future__ import annotations

import asyncio

from penstock.config import Settings
from penstock.durable import migrations as postgres_migrations
from penstock.warehouse import schema_migrations as clickhouse_migrations


async def migrate(settings: Settings) -> list[str]:
    """Apply the missing migrations of both stores and return their names.

    PostgreSQL's advisory lock guards both stores, so that two processes never migrate at the same time.
    """
    async with postgres_migrations.migration_lock(settings.postgres_url) as connection:
        applied = await postgres_migrations.apply(connection)
        if settings.clickhouse_url:
            applied += await asyncio.to_thread(
                clickhouse_migrations.migrate, settings.clickhouse_url, settings.clickhouse_cluster
            )
    return applied
