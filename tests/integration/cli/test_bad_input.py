"""Every command with bad input against a real broker: what it prints is in the words of the command line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest_asyncio
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client import Client
from penstock.errors import PenstockError
from tests.integration.client.broker_server import FAST_RETRIES, run_broker

LONG = "x" * 300
UUID = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
COMMANDS = [
    ("queues", "ls", "--limit", "0"),
    ("queues", "ls", "--limit", "many"),
    ("queues", "ls", "--search", ""),
    ("queues", "ls", "--search", LONG),
    ("queues", "pause", "a/b"),
    ("queues", "pause", ""),
    ("queues", "pause", "nope"),
    ("queues", "resume", "nope"),
    ("queues", "rm", "nope", "--yes"),
    ("queues", "limit", "mails", "0"),
    ("queues", "limit", "mails", "9" * 30),
    ("queues", "limit", "mails", "many"),
    ("dlq", "status", "--queue", "a/b"),
    ("dlq", "status", "--group", "a/b"),
    ("dlq", "ls", "--queue", "mails", "--group", "x"),
    ("dlq", "ls", "--queue", "mails", "--partition", "x"),
    ("dlq", "ls", "--queue", "nope"),
    ("dlq", "ls", "--partition", ""),
    ("dlq", "ls", "--from", "yesterday"),
    ("dlq", "ls", "--to", "0001-01-01"),
    ("dlq", "ls", "--error-group", "7"),
    ("dlq", "ls", "--error", LONG),
    ("dlq", "ls", "--payload", ""),
    ("dlq", "ls", "-n", "1001"),
    ("dlq", "show", "abc"),
    ("dlq", "show", ""),
    ("dlq", "show", "999999"),
    ("dlq", "show", f"{UUID}-1"),
    ("dlq", "groups", "--hours", "x"),
    ("dlq", "groups", "--queue", "nope"),
    ("dlq", "requeue", "abc", "--yes"),
    ("dlq", "requeue", "1", "--queue", "mails", "--yes"),
    ("dlq", "requeue", "--all", "--queue", "mails", "--yes"),
    ("dlq", "requeue", "--queue", "nope", "--dry-run"),
    ("dlq", "requeue", "1", f"{UUID}-1", "--dry-run"),
    ("dlq", "requeue", "--group", "a/b", "--dry-run"),
    ("dlq", "purge", "--all", "--rate", "0"),
    ("dlq", "purge", f"{UUID}-1", "--dry-run"),
    ("dlq", "cancel", "x"),
    ("dlq", "cancel", UUID),
    ("dlq", "ls", "--token", "ä"),
]
FOREIGN_WORDS = re.compile(
    r"Input should|should have|should match|Value error|Expected `|\$\.|\^|/api/v1|/docs|__QUEUE_MODE__"
    r"|Traceback|\b(consumerGroup|letterIds?|errorGroup|ratePerSecond|letter_id|job_id|concurrency|didYouMean)\b"
)
"""Fields of JSON, routes, regular expressions, and texts of pydantic and msgspec."""


@pytest_asyncio.fixture
async def url(database_url: str, redis_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, redis_url=redis_url, metrics_enabled=False) as address:
        yield address


async def test_bad_input_gets_a_sentence_in_the_words_of_the_command_line(url: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.tasks.enqueue("mails", 1)
    for command in COMMANDS:
        result = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--url", url])
        assert result.exit_code != 0, f"{command} is accepted: {result.output}"
        if isinstance(result.exception, PenstockError):
            text = result.exception.detail
        else:
            assert isinstance(result.exception, SystemExit), f"{command}: {result.exception!r}"
            text = result.output.partition("Error")[2]  # after the usage
        assert text.strip(), command
        assert "nope" not in command or text.startswith("Unknown queue 'nope'. "), f"{command}: {text}"
        assert not FOREIGN_WORDS.search(text), f"{command}: {text}"
