"""Quotas in the command line, against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.cli.broker_address import BrokerAddress
from penstock.cli.main import app
from penstock.cli.platform_info import read_quota_warnings
from penstock.cli.quota_tables import format_quota_warnings
from penstock.client import Client
from penstock.errors import PenstockError
from tests.integration.client.broker_server import run_broker
from tests.waiting import wait_until_async

ENVIRONMENT = "default/default/default"


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False) as address:
        yield address


async def run(*arguments: str) -> Result:
    command = ("environments", "quotas", *arguments)
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, env={"COLUMNS": "80"}))


async def run_json(*arguments: str) -> Any:
    result = await run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_quotas_are_set_shown_and_removed(url: str) -> None:
    assert "has no quotas" in (await run(ENVIRONMENT, "--url", url)).stdout
    await run(ENVIRONMENT, "--set", "queues=5", "--set", "storedMessages=1000000", "--url", url)
    await run(ENVIRONMENT, "--set", "storedMessages=none", "--set", "partitions=10", "--url", url)
    document = await run_json(ENVIRONMENT, "--url", url)
    assert document["environment"]["name"] == ENVIRONMENT
    limits = {quota["quota"]: quota["limit"] for quota in document["environment"]["quotas"]}
    assert limits == {"queues": 5, "partitions": 10}


async def test_the_use_of_a_quota_has_a_bar_and_a_warning_in_the_status(url: str) -> None:
    await run(ENVIRONMENT, "--set", "queues=5", "--url", url)
    async with Client(url) as client:
        for number in range(4):
            await client.push(f"q{number}", number)
    address = BrokerAddress(url, "")

    async def is_warning() -> bool:
        return bool(await asyncio.to_thread(read_quota_warnings, address))

    await wait_until_async(is_warning, 20, "the quota is a warning")
    output = (await run(ENVIRONMENT, "--url", url)).stdout
    assert "queues  4     5      ████████████████░░░░  80%" in output
    [line] = format_quota_warnings(await asyncio.to_thread(read_quota_warnings, address))
    assert line.plain == f"Environment {ENVIRONMENT} uses 4 of 5 queues."


async def test_a_quota_that_is_not_valid_changes_nothing(url: str) -> None:
    for text in ("queues", "queues=-1", "queue=1"):
        result = await run(ENVIRONMENT, "--set", text, "--url", url)
        assert isinstance(result.exception, PenstockError), result.output
    assert "has no quotas" in (await run(ENVIRONMENT, "--url", url)).stdout


async def test_status_has_no_warnings_of_a_broker_that_does_not_answer() -> None:
    assert await asyncio.to_thread(read_quota_warnings, BrokerAddress("http://127.0.0.1:1", "")) == []
