from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest_asyncio

from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.durable.storage import vacuum
from tests.waiting import wait_until_async

HORIZON = "/api/v1/status/horizon"


@pytest_asyncio.fixture
async def settings(database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        postgres_url=database_url,
        redis_url=redis_url,
        clickhouse_url=clickhouse_url,
        horizon_s=1,
    )


@pytest_asyncio.fixture
async def forgotten(settings: Settings) -> AsyncIterator[int]:
    """The process id of a session that leaves a transaction open."""
    connection = await asyncpg.connect(settings.postgres_url, server_settings={"application_name": "report"})
    async with connection.transaction():
        await connection.execute("SELECT pg_current_xact_id()")
        database = Database(settings.postgres_url, 1)
        await vacuum.read_clock(database)
        await database.close()
        yield connection.get_server_pid()
    await connection.close()


async def test_who_holds_the_horizon_is_told_with_what_to_do(
    client: httpx.AsyncClient, forgotten: int
) -> None:
    async def told() -> list[dict[str, Any]]:
        answer = (await client.get(HORIZON)).json()
        assert answer["longerThan"] == 1
        return [holder for holder in answer["holders"] if holder["pid"] == forgotten]

    [holder] = await wait_until_async(told, 10, "the session is named")
    assert (holder["kind"], holder["name"]) == ("idle in transaction", str(forgotten))
    assert (holder["application"], holder["user"]) == ("report", "penstock")
    assert holder["ageSeconds"] >= 1
    assert f"pg_terminate_backend({forgotten})" in holder["advice"]
    answer = await client.get(HORIZON, params={"longerThan": 3600})
    assert answer.json() == {"longerThan": 3600, "holders": []}


async def test_a_held_horizon_is_a_warning_and_not_an_outage(
    client: httpx.AsyncClient, forgotten: int
) -> None:
    async def warned() -> list[str]:
        health = (await client.get("/health")).json()
        assert health["parts"]["postgres"]["status"] == "up"
        warnings: list[str] = health["warnings"]
        return warnings

    [warning] = await wait_until_async(warned, 10, "the health tells")
    assert warning.startswith(
        f"session {forgotten} of penstock (report) has kept dead rows from being removed"
    )


async def test_a_limit_that_is_not_a_number_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get(HORIZON, params={"longerThan": "soon"})
    assert answer.status_code == 422
    assert answer.json()["field"] == "longerThan"
