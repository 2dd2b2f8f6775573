"""Facts about a PostgreSQL for `penstock doctor`: version, connections, time, vacuum horizon."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg

from penstock.durable.migrations import load_scripts
from penstock.durable.pool import SCHEMA
from penstock.durable.primary import connect_to_primary
from penstock.durable.storage.vacuum_horizon import find_horizon_holders
from penstock.supported_servers import PROBE_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The row of `server_facts.sql`, and a sentence per holder of the vacuum horizon."""

    version: str
    max_connections: int
    connections: int
    now: datetime
    horizon: list[str] = field(default_factory=list)


def read_server_facts(url: str) -> ServerFacts:
    """Read the facts over a connection of its own. The server must have passed the checks of a probe."""
    return asyncio.run(asyncio.wait_for(_read(url), 2 * PROBE_TIMEOUT_S))


async def _read(url: str) -> ServerFacts:
    connection = await connect_to_primary(
        url,
        timeout=PROBE_TIMEOUT_S,
        server_settings={"application_name": "penstock doctor", "search_path": SCHEMA},
    )
    try:
        (script,) = load_scripts("server_facts")
        row = await connection.fetchrow(script.text)
        assert row is not None
        try:
            holders = await find_horizon_holders(connection)
        except asyncpg.UndefinedFunctionError:
            holders = []  # the schema is migrated at the first start
        return ServerFacts(**row, horizon=[holder.summary for holder in holders])
    finally:
        await connection.close(timeout=1)
