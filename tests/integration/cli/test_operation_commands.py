"""`penstock ops` against a broker that defers pushes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio

from penstock.cli.exit_codes import exit_code_of
from penstock.errors import PenstockError
from tests.integration.cli.shared_broker import Commands
from tests.integration.client.broker_server import run_broker
from tests.integration.client.test_client_operations import MIN_THRESHOLD
from tests.integration.databases import cloned_database
from tests.waiting import wait_until_async

QUEUE = "orders"


@pytest_asyncio.fixture(scope="module")
async def commands(
    postgres_url: str, administrator: asyncpg.Connection, template: str
) -> AsyncIterator[Commands]:
    async with (
        cloned_database(administrator, postgres_url, template) as database_url,
        run_broker(database_url, load_push=MIN_THRESHOLD) as url,
    ):
        yield Commands(url)


async def push_until_deferred(commands: Commands) -> Any:
    results: list[Any] = []

    async def is_deferred() -> bool:
        results[:] = (await commands.json("push", QUEUE, "1"))["results"]
        return "operationId" in results[0]

    await wait_until_async(is_deferred, 60, "a push is deferred")
    return results[0]


async def test_a_deferred_push_is_listed_and_shown_with_its_state(commands: Commands) -> None:
    operation_id = (await push_until_deferred(commands))["operationId"]
    assert operation_id in [row["operationId"] for row in await commands.json("ops", "ls", "-q", QUEUE)]

    async def is_completed() -> bool:
        return bool((await commands.json("ops", "show", operation_id))["status"] == "completed")

    await wait_until_async(is_completed, 60, "the operation is completed")
    listed = await commands.text("ops", "ls", "--state", "completed")
    assert operation_id in listed
    shown = await commands.text("ops", "show", operation_id)
    assert shown.startswith(f"push {operation_id}\n")
    refused = await commands.run("ops", "retry", operation_id)
    assert isinstance(refused.exception, PenstockError)
    assert exit_code_of(refused.exception) == 6
    dropped = await commands.json("ops", "cancel", operation_id, "--yes")
    assert dropped["dropped"]


async def test_load_journal_and_horizon_are_shown_within_80_columns(commands: Commands) -> None:
    lanes = await commands.text("ops", "lanes", "-q", "no-such-lane")
    assert lanes == "No lane has waiting operations.\n"
    load = await commands.text("ops", "load")
    assert "Load of the process that responded" in load
    assert "push" in load
    journal = await commands.text("ops", "journal")
    assert "The journal is empty" in journal
    horizon = await commands.text("ops", "horizon", "--longer-than", "1h")
    assert "Nothing has held the vacuum horizon for 1 h 0 min or longer." in horizon
    assert max(len(line) for text in (load, journal, horizon) for line in text.splitlines()) <= 80
