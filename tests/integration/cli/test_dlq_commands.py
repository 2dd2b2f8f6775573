"""`penstock dlq` against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.cli.dlq_tables import draw_sparkline
from penstock.cli.main import app
from penstock.errors import ComponentFailed, PenstockError
from tests.integration.client.broker_server import run_broker

WIDE = {"COLUMNS": "200"}


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False) as address:
        yield address


async def run(url: str, *arguments: str, answer: str = "", token: str = "") -> Result:
    """Run `penstock dlq` with these arguments against the broker."""
    command = ["dlq", *arguments, "--url", url, *(["--token", token] if token else [])]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, input=answer, env=WIDE))


async def run_json(url: str, *arguments: str) -> Any:
    result = await run(url, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def push_dead_letters(url: str, *payloads: Any, error: str) -> None:
    async with httpx.AsyncClient(base_url=url) as http:
        items = [{"queue": "orders", "payload": payload, "partition": "p"} for payload in payloads]
        (await http.post("/api/v1/push", json={"items": items})).raise_for_status()
        remaining = len(payloads)
        while remaining:
            response = await http.get(
                "/api/v1/pop/queue/orders", params={"batch": 100, "consumerGroup": "billing"}
            )
            for message in response.json()["messages"]:
                keys = ("transactionId", "partitionId", "leaseId")
                body = {key: message[key] for key in keys} | {"status": "dlq", "error": error}
                (await http.post("/api/v1/ack", json=body)).raise_for_status()
                remaining -= 1


async def test_dead_letters_are_listed_shown_grouped_and_counted(url: str) -> None:
    await push_dead_letters(url, {"n": 1}, {"n": 2}, error="timeout calling payments after 30 ms")
    await push_dead_letters(url, {"n": 3}, error="declined")
    listed = await run(url, "ls", "-n", "2")
    assert "declined" in listed.stdout
    assert "2 of 3" in listed.stdout
    [latest, *_] = await run_json(url, "ls", "--queue", "orders", "--group", "billing")
    assert [row["data"]["n"] for row in await run_json(url, "ls", "--error", "TIMEOUT")] == [2, 1]
    assert [row["data"]["n"] for row in await run_json(url, "ls", "--payload", '"n":1')] == [1]
    shown = (await run(url, "show", latest["letterId"])).stdout
    assert all(text in shown for text in ("declined", '"n": 3', "orders", "billing", "once", "1 in all"))
    groups = (await run(url, "groups")).stdout
    assert "timeout calling payments after <n> ms" in groups
    assert "█" in groups
    assert [row["deadLetters"] for row in await run_json(url, "groups")] == [2, 1]
    assert (await run_json(url, "status"))["groups"][0]["deadLetters"] == 3
    assert "orders" in (await run(url, "status")).stdout
    assert "No dead letters match" in (await run(url, "ls", "--error", "no such error")).stdout


async def test_a_requeue_asks_for_confirmation_and_reports_its_result(url: str) -> None:
    await push_dead_letters(url, 1, 2, error="timeout")
    await push_dead_letters(url, 3, error="declined")
    assert "There are no jobs" in (await run(url, "jobs")).stdout
    dry_run = await run(url, "requeue", "--error", "timeout", "--dry-run")
    assert (dry_run.exit_code, dry_run.stdout) == (0, "2 dead letters would be requeued.\n")
    declined = await run(url, "requeue", "--error", "timeout", answer="n\n")
    assert declined.exit_code == 1
    assert await run_json(url, "jobs") == []
    done = await run(url, "requeue", "--error", "timeout", answer="y\n")
    assert done.exit_code == 0
    assert "Done: 2 dead letters requeued." in done.stdout
    [dead_letter] = await run_json(url, "ls")
    purged = await run(url, "purge", dead_letter["letterId"], "--yes")
    assert purged.stdout == "Done: 1 dead letter deleted.\n"
    assert [job["kind"] for job in await run_json(url, "jobs")] == ["purge", "requeue"]
    assert "done" in (await run(url, "jobs")).stdout
    nothing = await run(url, "purge", "--all")
    assert (nothing.exit_code, nothing.stdout) == (0, "0 dead letters would be deleted permanently.\n")


async def test_a_detached_job_can_be_cancelled(url: str) -> None:
    await push_dead_letters(url, *range(20), error="timeout")
    job = await run_json(url, "purge", "--queue", "orders", "--rate", "1", "--detach")
    assert job["ratePerSecond"] == 1
    cancelled = await run(url, "cancel", job["id"])
    assert cancelled.stdout.startswith("Cancelled: ")
    [job] = await run_json(url, "jobs")
    assert job["state"] == "cancelled"
    assert len(await run_json(url, "ls")) == 20 - job["changed"] > 0


async def test_errors_show_the_detail_of_the_broker(url: str) -> None:
    for arguments, token, detail in (
        (("ls",), "pk_wrong", "unknown, expired or revoked"),
        (("purge", "--yes"), "", "No dead letters are selected"),
        (("show", "7"), "", "Dead letter 7 does not exist"),
    ):
        result = await run(url, *arguments, token=token)
        assert isinstance(result.exception, PenstockError)
        assert detail in result.exception.detail
    unreachable = await run("http://127.0.0.1:1", "ls")
    assert isinstance(unreachable.exception, ComponentFailed)
    assert "Check the address in --url" in unreachable.exception.detail


def test_a_sparkline_has_a_bar_per_hour() -> None:
    assert draw_sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert draw_sparkline([0, 0]) == ""


async def test_an_error_group_is_resolved(url: str) -> None:
    await push_dead_letters(url, {"n": 1}, error="declined")
    [group] = await run_json(url, "groups")

    assert (await run(url, "resolve", group["errorGroup"])).stdout == "Resolved in orders.\n"
    assert (await run_json(url, "resolve", group["errorGroup"], "--queue", "orders"))["queues"] == ["orders"]

    for arguments in ((group["errorGroup"], "--queue", "other"), ("nonsense",)):
        refused = await run(url, "resolve", *arguments)
        assert isinstance(refused.exception, PenstockError)
        assert refused.exit_code == 1


async def test_an_error_group_is_ignored_assigned_and_listed_by_state(url: str) -> None:
    await push_dead_letters(url, {"n": 1}, error="declined")
    [group] = await run_json(url, "groups", "--state", "new", "--state", "back-again")
    key = group["errorGroup"]

    ignored = await run(url, "ignore", key, "--count", "2", "--rate", "20")
    assert ignored.stdout == (
        "Ignored in orders until 2 more dead letters, or until more than 20 dead letters in one hour.\n"
    )
    assert (await run(url, "assign", key, "ada", "--note", "known")).stdout == "Changed in orders.\n"
    [group] = await run_json(url, "groups", "--state", "ignored")
    assert (group["owner"], group["note"]) == ("ada", "known")
    table = (await run(url, "groups")).stdout
    assert "ignored" in table
    assert "ada" in table
    assert (await run_json(url, "assign", key, "--clear", "--note", ""))["owner"] is None
    assert (await run_json(url, "open", key))["state"] == "open"
    assert await run_json(url, "groups", "--state", "ignored") == []

    for arguments in (("assign", key), ("assign", key, "ada", "--clear"), ("ignore", "nonsense")):
        refused = await run(url, *arguments)
        assert isinstance(refused.exception, PenstockError), arguments
    for arguments in (("ignore", key, "--count", "0"), ("ignore", key, "--until", "later")):
        assert (await run(url, *arguments)).exit_code == 2, arguments


async def test_a_sample_is_requeued_first(url: str) -> None:
    await push_dead_letters(url, *({"n": n} for n in range(3)), error="declined")
    job = await run_json(url, "requeue", "--queue", "orders", "--sample", "1", "--detach")
    assert job["sample"]["size"] == 1
    cancelled = await run(url, "cancel", job["id"])
    assert "Cancelled" in cancelled.stdout
    refused = await run(url, "purge", "--queue", "orders", "--sample", "1", "--yes")
    assert isinstance(refused.exception, PenstockError)


async def test_jobs_on_messages_are_listed(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as http:
        items = [{"queue": "stock", "payload": 1}]
        (await http.post("/api/v1/push", json={"items": items})).raise_for_status()
        body = {"subject": "messages", "kind": "purge", "queue": "stock"}
        job = (await http.post("/api/v1/jobs", json=body)).json()
    listed = (await run(url, "jobs")).stdout
    assert "messages" in listed
    assert job["id"] in listed
