"""`penstock queues` against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.client import Client, NewTask
from penstock.errors import InvalidRequest, PenstockError, UnknownQueue
from tests.integration.client.broker_server import FAST_RETRIES, run_broker

WIDE = {"COLUMNS": "200"}


@pytest_asyncio.fixture
async def url(database_url: str, redis_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, redis_url=redis_url) as address:
        yield address


@pytest.fixture
def prefix() -> str:
    return f"cli-{uuid4().hex[:8]}"


async def run(url: str, *arguments: str) -> Result:
    """Run `penstock queues` with these arguments against the broker."""
    command = ["queues", *arguments, "--url", url]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, env=WIDE))


async def run_json(url: str, *arguments: str) -> Any:
    result = await run(url, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_both_kinds_of_queues_are_listed_by_name(url: str, prefix: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.push(f"{prefix}-b", 1)
        await client.tasks.enqueue_many(f"{prefix}-a", [NewTask(1), NewTask(2, delay_s=60)])
    page = await run_json(url, "ls", "--search", prefix)
    assert [(row["name"], row["kind"], row["depth"]) for row in page["queues"]] == [
        (f"{prefix}-a", "run", 1),
        (f"{prefix}-b", "durable", 1),
    ]
    table = (await run(url, "ls", "--search", prefix)).stdout
    assert "1 delayed" in table
    assert "1 partition" in table
    assert (
        f"No queue has '{prefix}-none' in its name" in (await run(url, "ls", "-s", f"{prefix}-none")).stdout
    )


async def test_a_run_queue_is_paused_limited_and_resumed(url: str, prefix: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.tasks.enqueue(prefix, 1)
        assert "paused: 1 waiting" in (await run(url, "pause", prefix)).stdout
        assert (await client.tasks.queue(prefix)).paused
        assert "a limit of 3" in (await run(url, "limit", prefix, "3")).stdout
        assert (await client.tasks.queue(prefix)).concurrency == 3
        assert "paused" in (await run(url, "ls", "-s", prefix)).stdout
        assert (await run_json(url, "limit", prefix, "none"))["concurrency"] is None
        assert "active again" in (await run(url, "resume", prefix)).stdout
        assert not (await client.tasks.queue(prefix)).paused


async def test_errors_show_the_detail_of_the_broker_or_of_the_command(url: str, prefix: str) -> None:
    refused = await run(url, "limit", f"{prefix}-run", "many")
    assert isinstance(refused.exception, InvalidRequest)
    refused = await run(url, "limit", f"{prefix}-run", "0")
    assert isinstance(refused.exception, InvalidRequest)
    assert "Give a number from 1 to 1,000,000, or `none`" in refused.exception.detail


async def test_a_durable_queue_is_paused_resumed_and_deleted(url: str, prefix: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.push(prefix, 1)
        assert "paused: 1 waiting" in (await run(url, "pause", prefix)).stdout
        assert not await client.pop(prefix)
        [row] = (await run_json(url, "ls", "-s", prefix))["queues"]
        assert (row["kind"], row["paused"]) == ("durable", True)
        assert "paused" in (await run(url, "ls", "-s", prefix)).stdout
        assert (await run_json(url, "resume", prefix))["paused"] is False
        assert await client.pop(prefix)
        declined = await asyncio.to_thread(
            lambda: CliRunner().invoke(app, ["queues", "rm", prefix, "--url", url], input="n\n", env=WIDE)
        )
        assert declined.exit_code == 1
        assert "0 waiting, 1 running" in declined.output
        deleted = await run_json(url, "rm", prefix, "--yes")
        assert deleted == {"kind": "durable", "deleted": True, "existed": True, "queue": prefix}
        assert (await run_json(url, "ls", "-s", prefix))["total"] == 0


async def test_a_run_queue_is_deleted_when_it_has_no_tasks(url: str, prefix: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.tasks.enqueue(prefix, 1)
        refused = await run(url, "rm", prefix, "--yes")
        assert isinstance(refused.exception, PenstockError)
        assert "still has tasks" in refused.exception.detail
        [task] = await client.tasks.dequeue(prefix)
        await client.tasks.ack(task)
        assert f"{prefix} is deleted" in (await run(url, "rm", prefix, "--yes")).stdout


@pytest.mark.parametrize("command", [("pause",), ("resume",), ("rm",), ("limit", "3")])
async def test_an_unknown_queue_is_reported_with_the_most_similar_name(
    url: str, prefix: str, command: tuple[str, ...]
) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.push(f"{prefix}-orders", 1)
    verb, *values = command
    unknown = await run(url, verb, f"{prefix}-oders", *values)
    assert isinstance(unknown.exception, UnknownQueue)
    assert f"Did you mean '{prefix}-orders'?" in unknown.exception.detail
    assert (await run_json(url, "ls", "-s", prefix))["total"] == 1


@pytest.mark.parametrize("command", [("pause", "--kind", "run"), ("limit", "3")])
async def test_a_queue_of_the_other_kind_is_named_as_such(
    url: str, prefix: str, command: tuple[str, ...]
) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.push(prefix, 1)
    verb, *values = command
    refused = await run(url, verb, prefix, *values)
    assert isinstance(refused.exception, UnknownQueue)
    assert f"'{prefix}' is a durable queue. There is no run queue" in refused.exception.detail


async def test_a_name_of_both_kinds_needs_the_kind(url: str, prefix: str, database_url: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.tasks.enqueue(prefix, 1)
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "penstock"})
    await connection.execute("SELECT ensure_queues_v1('default', 'default', 'default', $1)", [prefix])
    await connection.close()
    refused = await run(url, "pause", prefix)
    assert isinstance(refused.exception, InvalidRequest)
    assert "--kind durable or --kind run" in refused.exception.detail
    assert "is paused" in (await run(url, "pause", prefix, "--kind", "run")).stdout
    rows = (await run_json(url, "ls", "-s", prefix))["queues"]
    assert {row["kind"]: row["paused"] for row in rows} == {"durable": False, "run": True}


async def test_scaling_shows_the_workers_that_a_queue_needs(url: str, prefix: str) -> None:
    async with Client(url, FAST_RETRIES) as client:
        await client.tasks.enqueue_many(prefix, [NewTask(number) for number in range(20)])
    document = await run_json(url, "scaling", prefix, "--wait-target", "5", "--rate", "1", "--max", "3")
    assert (document["wantedWorkers"], document["limitedBy"], document["backlog"]) == (3, "max_workers", 20)
    text = (await run(url, "scaling", prefix, "--rate", "1")).stdout
    assert "1 per second and worker, as set with --rate" in text
