"""`penstock alerts channels`, `send-test`, `deliveries` and `retry` against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.sender import Sender
from penstock.cli.main import app
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from tests.integration.alerts.delivery.http_receiver import OK, http_response, receive_http
from tests.integration.client.broker_server import run_broker
from tests.unit.alerts.delivery.channels import ENCRYPTION_KEYS

WIDE = {"COLUMNS": "250"}


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False, encryption_keys=ENCRYPTION_KEYS) as address:
        yield address


@pytest_asyncio.fixture
async def sender(database: Database) -> AsyncIterator[Sender]:
    running = Sender(
        database, ChannelSecrets(ENCRYPTION_KEYS), Outbound(AddressCheck("127.0.0.0/8")), poll_interval_s=0.05
    )
    await running.start()
    yield running
    await running.stop()


async def run(url: str, *arguments: str) -> Result:
    """Run `penstock alerts` with these arguments against the broker."""
    command = ["alerts", *arguments, "--url", url]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, env=WIDE))


async def run_json(url: str, *arguments: str) -> Any:
    result = await run(url, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_a_channel_is_added_tested_listed_and_removed(url: str, sender: Sender) -> None:
    async with receive_http([OK, http_response(500, b"broken")]) as receiver:
        added = await run(url, "channels", "add", "ops", "--kind", "webhook", "--to-url", receiver.url)
        assert added.exit_code == 0, added.output
        assert "shown only now: whsec_" in added.stdout
        sent = await run(url, "send-test", "ops")
        assert (sent.exit_code, sent.stdout) == (0, "Sent a test notice to ops.\n")
        failed = await run(url, "send-test", "ops")
        assert (failed.exit_code, failed.stdout) == (1, "Failed: localhost answered HTTP 500: broken\n")
    listed = await run(url, "channels", "ls")
    assert f"http://localhost:{receiver.port}" in listed.stdout
    assert "token" not in listed.stdout
    deliveries = await run_json(url, "deliveries")
    assert [notice["state"] for notice in deliveries] == ["failed", "sent"]
    assert "broken" in (await run(url, "deliveries", "--state", "failed")).stdout
    retried = await run(url, "retry", deliveries[0]["id"])
    assert "is sent again" in retried.stdout
    removed = await run(url, "channels", "rm", "ops", "--yes")
    assert removed.exit_code == 0, removed.output
    assert "There are no channels." in (await run(url, "channels", "ls")).stdout


async def test_a_channel_that_lacks_a_field_is_refused(url: str) -> None:
    result = await run(url, "channels", "add", "ops", "--kind", "pagerduty")
    assert isinstance(result.exception, PenstockError)
    assert "routingKey" in result.exception.detail


async def test_an_email_channel_asks_for_its_password(url: str) -> None:
    command = ["alerts", "channels", "add", "mail", "--kind", "email", "--host", "mail.example", "--url", url]
    command += ["--from", "penstock@shop.example", "--to", "ops@shop.example", "--username", "penstock"]
    result = await asyncio.to_thread(lambda: CliRunner().invoke(app, command, input="pass-token\n", env=WIDE))
    assert result.exit_code == 0, result.output
    assert "pass-token" not in result.output
    [channel] = await run_json(url, "channels", "ls")
    assert channel["secretFields"] == ["password"]
    assert channel["target"] == "ops@shop.example"
