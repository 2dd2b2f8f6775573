"""`penstock dlq` against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio
from click.testing import Result
from typer.testing import CliRunner

from penstock.cli.dlq_tables import sparkline
from penstock.cli.main import app
from penstock.errors import ComponentFailed, PenstockError
from tests.integration.client.served import serving

WIDE = {"COLUMNS": "200"}


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with serving(database_url, dlq_tokens="ops=s3cret", metrics_enabled=False) as address:
        yield address


async def run(url: str, *words: str, answer: str = "", token: str = "s3cret") -> Result:
    """The command as a person types it, beside the broker."""
    command = ["dlq", *words, "--url", url, *(["--token", token] if token else [])]
    return await asyncio.to_thread(CliRunner().invoke, app, command, input=answer, env=WIDE)


async def read(url: str, *words: str) -> Any:
    result = await run(url, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def kill(url: str, *payloads: Any, error: str) -> None:
    async with httpx.AsyncClient(base_url=url) as http:
        items = [{"queue": "orders", "payload": payload, "partition": "p"} for payload in payloads]
        (await http.post("/api/v1/push", json={"items": items})).raise_for_status()
        left = len(payloads)
        while left:
            got = await http.get(
                "/api/v1/pop/queue/orders", params={"batch": 100, "consumerGroup": "billing"}
            )
            for message in got.json()["messages"]:
                keys = ("transactionId", "partitionId", "leaseId")
                body = {key: message[key] for key in keys} | {"status": "dlq", "error": error}
                (await http.post("/api/v1/ack", json=body)).raise_for_status()
                left -= 1


async def test_letters_are_listed_shown_grouped_and_counted(url: str) -> None:
    await kill(url, {"n": 1}, {"n": 2}, error="timeout calling payments after 30 ms")
    await kill(url, {"n": 3}, error="declined")
    listed = await run(url, "ls", "-n", "2")
    assert "declined" in listed.stdout
    assert "2 of 3" in listed.stdout
    [latest, *_] = await read(url, "ls", "--queue", "orders", "--group", "billing")
    assert [found["data"]["n"] for found in await read(url, "ls", "--error", "TIMEOUT")] == [2, 1]
    assert [found["data"]["n"] for found in await read(url, "ls", "--payload", '"n":1')] == [1]
    shown = (await run(url, "show", latest["letterId"])).stdout
    assert all(words in shown for words in ("declined", '"n": 3', "orders", "billing", "once", "1 in all"))
    groups = (await run(url, "groups")).stdout
    assert "timeout calling payments after <n> ms" in groups
    assert "█" in groups
    assert [found["deadLetters"] for found in await read(url, "groups")] == [2, 1]
    assert (await read(url, "status"))["groups"][0]["deadLetters"] == 3
    assert "orders" in (await run(url, "status")).stdout
    assert "No dead letters match" in (await run(url, "ls", "--queue", "none")).stdout


async def test_a_requeue_says_what_it_would_do_asks_and_shows_that_it_is_done(url: str) -> None:
    await kill(url, 1, 2, error="timeout")
    await kill(url, 3, error="declined")
    assert "There are no jobs" in (await run(url, "jobs")).stdout
    dry = await run(url, "requeue", "--error", "timeout", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "2 dead letters would be requeued.\n")
    refused = await run(url, "requeue", "--error", "timeout", answer="n\n")
    assert refused.exit_code == 1
    assert await read(url, "jobs") == []
    done = await run(url, "requeue", "--error", "timeout", answer="y\n")
    assert done.exit_code == 0
    assert "Done: 2 dead letters requeued." in done.stdout
    [letter] = await read(url, "ls")
    purged = await run(url, "purge", letter["letterId"], "--yes")
    assert purged.stdout == "Done: 1 dead letter deleted.\n"
    assert [job["kind"] for job in await read(url, "jobs")] == ["purge", "requeue"]
    assert "done" in (await run(url, "jobs")).stdout
    nothing = await run(url, "purge", "--all")
    assert (nothing.exit_code, nothing.stdout) == (0, "0 dead letters would be deleted for good.\n")


async def test_a_job_can_be_left_alone_and_cancelled(url: str) -> None:
    await kill(url, *range(20), error="timeout")
    job = await read(url, "purge", "--queue", "orders", "--rate", "1", "--detach")
    assert job["ratePerSecond"] == 1
    cancelled = await run(url, "cancel", job["id"])
    assert cancelled.stdout.startswith("Cancelled: ")
    [now] = await read(url, "jobs")
    assert now["state"] == "cancelled"
    assert len(await read(url, "ls")) == 20 - now["changed"] > 0


async def test_refusals_are_told_in_the_brokers_words(url: str) -> None:
    for words, token, said in (
        (("ls",), "", "--token"),
        (("ls",), "wrong", "not one of those"),
        (("purge", "--yes"), "s3cret", "name what is meant"),
        (("show", "7"), "s3cret", "there is no dead letter 7"),
    ):
        result = await run(url, *words, token=token)
        assert isinstance(result.exception, PenstockError)
        assert said in result.exception.detail
    away = await run("http://127.0.0.1:1", "ls")
    assert isinstance(away.exception, ComponentFailed)
    assert "penstock up" in away.exception.detail


def test_a_trend_is_drawn_with_a_bar_per_hour() -> None:
    assert sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert sparkline([0, 0]) == ""
