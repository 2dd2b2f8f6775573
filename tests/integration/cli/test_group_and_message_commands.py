"""`penstock groups`, `messages` and the commands of `queues` that show and create, on a real socket."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock.cli.exit_codes import exit_code_of
from penstock.errors import InvalidRequest, WrongState
from tests.integration.cli import shared_broker
from tests.integration.cli.shared_broker import Commands

commands = shared_broker.commands


@pytest.fixture
def queue() -> str:
    return f"q-{uuid4().hex[:8]}"


async def test_a_group_is_listed_moved_and_deleted(commands: Commands, queue: str) -> None:
    group = f"billing-{queue}"
    await commands.text("push", queue, "1", "--count", "3")
    await commands.text("pop", queue, "--group", group, "--ack")
    assert f"{group}  {queue}  waiting  2" in await commands.text("groups", "ls", "-q", queue)
    assert "2 messages, 0 of them leased" in await commands.text("groups", "show", group)
    behind = await commands.json("groups", "lagging", "--longer-than", "0s")
    assert [row["offset_lag"] for row in behind["partitions"] if row["consumer_group"] == group] == [2]
    declined = await commands.run("groups", "seek", group, queue, "--to-end", stdin="n\n")
    assert declined.exit_code == 1
    skipped = await commands.text("groups", "seek", group, queue, "--to-end", "--yes")
    assert "2 messages skipped" in skipped
    replayed = await commands.json("groups", "seek", group, queue, "--to-start", "--yes")
    assert replayed["messagesReplayed"] == 3
    unclear = await commands.run("groups", "seek", group, queue, "--to-start", "--to-end")
    assert isinstance(unclear.exception, InvalidRequest)
    await commands.text("groups", "rm", group, "--yes")
    assert (await commands.json("groups", "ls", "-q", queue))["groups"] == []


async def test_messages_are_listed_shown_and_deleted(commands: Commands, queue: str) -> None:
    await commands.text("push", queue, '{"order": 7}', "--id", "order-7")
    table = await commands.text("messages", "ls", "-q", queue, columns=160)
    assert '{"order": 7}' in table
    blocks = await commands.text("messages", "ls", "-q", queue)
    assert max(map(len, blocks.splitlines())) <= 80
    [message] = (await commands.json("messages", "ls", "-q", queue, "--state", "pending"))["messages"]
    ids = (message["partitionId"], "order-7")
    shown = await commands.text("messages", "show", *ids)
    assert 'payload     {"order": 7}' in shown
    await commands.text("messages", "rm", *ids, "--yes")
    assert (await commands.run("pop", queue)).exit_code == 1


async def test_a_durable_queue_is_created_configured_and_shown(commands: Commands, queue: str) -> None:
    await commands.text("queues", "create", queue, "--set", "leaseTime=60")
    again = await commands.run("queues", "create", queue)
    assert isinstance(again.exception, WrongState)
    assert exit_code_of(again.exception) == 6
    await commands.text("queues", "configure", queue, "--set", "retryLimit=5")
    options = (await commands.json("queues", "show", queue))["options"]
    assert (options["leaseTime"], options["retryLimit"]) == (60, 5)
    shown = await commands.text("queues", "show", queue)
    assert "retryLimit 5" in shown
    assert max(map(len, shown.splitlines())) <= 80
    wrong = await commands.run("queues", "configure", queue, "--set", "leaseTme=6")
    assert "did you mean leaseTime" in str(wrong.exception)


async def test_a_run_queue_is_created_with_its_limit(commands: Commands, queue: str) -> None:
    await commands.text("queues", "create", queue, "--kind", "run", "--concurrency", "4")
    assert (await commands.json("queues", "show", queue))["concurrency"] == 4
    assert "4 at once" in await commands.text("queues", "show", queue)
    refused = await commands.run("queues", "create", f"{queue}x", "--kind", "run", "--set", "leaseTime=6")
    assert isinstance(refused.exception, InvalidRequest)
