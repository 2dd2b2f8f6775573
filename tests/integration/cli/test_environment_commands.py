"""`penstock env` against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.durable.access.environment_store import EnvironmentStore
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest, PenstockError
from penstock.model import Scope
from tests.integration.client.broker_server import run_broker
from tests.waiting import wait_until_async

STAGING = "acme/shop/staging"


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False) as address:
        yield address


async def run(url: str, *arguments: str, answer: str = "") -> Result:
    command = ["env", *arguments, "--url", url]
    return await asyncio.to_thread(
        lambda: CliRunner().invoke(app, command, input=answer, env={"COLUMNS": "80"})
    )


async def run_json(url: str, *arguments: str) -> Any:
    result = await run(url, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_environments_are_created_listed_and_shown(url: str) -> None:
    created = await run(url, "create", STAGING)
    assert f"--environment {STAGING}" in created.output
    assert [row["name"] for row in await run_json(url, "ls")] == [STAGING, "default/default/default"]
    assert "in use" in (await run(url, "ls")).output
    assert (await run_json(url, "show", STAGING))["deletion"] is None
    assert "durable queues" in (await run(url, "show", STAGING)).output


@pytest.mark.parametrize("name", ["acme", "acme/shop", "acme/shop/", "a/b/c/d"])
async def test_a_name_with_other_than_three_parts_is_refused(url: str, name: str) -> None:
    result = await run(url, "create", name)
    assert isinstance(result.exception, InvalidRequest)
    assert "organization/project/environment" in result.exception.detail


async def test_an_environment_is_deleted_after_a_confirmation(url: str, database: Database) -> None:
    await run(url, "create", STAGING)
    assert (await run(url, "rm", STAGING, "--no-wait", answer="n\n")).exit_code == 1
    assert (await run_json(url, "show", STAGING))["deletion"] is None
    deleted = await run(url, "rm", STAGING, "--no-wait", answer="y\n")
    assert "is being deleted" in deleted.output
    assert (await run_json(url, "show", STAGING))["deletion"]["requestedAt"]
    assert "being deleted" in (await run(url, "ls")).output
    waiting = asyncio.create_task(run(url, "rm", STAGING))

    async def is_waiting() -> bool:
        """Whether the broker has answered the second request to delete it: both are in the audit log."""
        rows = await database.fetch("SELECT 1 FROM audit_entries WHERE action LIKE 'DELETE %/environments/%'")
        return len(rows) == 2

    await wait_until_async(is_waiting, 20, "the command waits for the deletion")
    assert await EnvironmentStore(database).finish_deletion(Scope(*STAGING.split("/")))
    assert f"{STAGING} is deleted" in (await waiting).output
    unknown = await run(url, "rm", STAGING)
    assert isinstance(unknown.exception, PenstockError)
    assert "does not exist" in unknown.exception.detail
