"""A broker that all tests of a module share, and commands that call it.

A module takes the fixtures by assignment, `commands = shared_broker.commands`; each test uses its own queues.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from tests.integration.client.broker_server import run_broker
from tests.integration.databases import cloned_database
from tests.redis_databases import RedisDatabases


class Commands:
    """Runs `penstock` in this process against one broker. Errors of a command are in its result."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, *arguments: str, stdin: str = "", columns: int = 80) -> Result:
        command = [*arguments, "--url", self.url]
        environment = {"COLUMNS": str(columns)}
        return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, input=stdin, env=environment))

    async def text(self, *arguments: str, stdin: str = "", columns: int = 80) -> str:
        """Return the output of a command that succeeds."""
        result = await self.run(*arguments, stdin=stdin, columns=columns)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    async def json(self, *arguments: str, stdin: str = "") -> Any:
        """Return the document of a command that succeeds, with --json."""
        return json.loads(await self.text(*arguments, "--json", stdin=stdin))


@pytest_asyncio.fixture(scope="module")
async def commands(
    postgres_url: str, administrator: asyncpg.Connection, template: str, redis_databases: RedisDatabases
) -> AsyncIterator[Commands]:
    """Commands against a broker with PostgreSQL and Redis."""
    with redis_databases.reserve() as redis_url:
        async with (
            cloned_database(administrator, postgres_url, template) as database_url,
            run_broker(database_url, redis_url=redis_url) as url,
        ):
            yield Commands(url)
