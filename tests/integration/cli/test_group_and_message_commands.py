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
    assert "pushed" in shown.splitlines()[-1]
    popped = (await commands.json("pop", queue, "--group", "billing"))["messages"][0]
    await commands.text("ack", popped["receipt"], "--failed", "--error", "no stock")
    life = await commands.text("messages", "show", *ids)
    assert "billing  no stock, attempt 1" in life
    await commands.text("messages", "rm", *ids, "--yes")
    assert (await commands.run("pop", queue)).exit_code == 1


async def test_messages_are_found_by_text_and_by_transaction_id(commands: Commands, queue: str) -> None:
    lines = "".join(f'{{"city": "{city}"}}\n' for city in ("Bern", "Basel", "Bern"))
    await commands.text("push", queue, stdin=lines)
    await commands.text("push", queue, '"Bern"', "--id", "the-one")
    answer = await commands.json("messages", "search", "bern", "-q", queue)
    assert (len(answer["messages"]), answer["examined"], answer["complete"]) == (3, 4, True)
    by_id = await commands.text("messages", "search", "--transaction-id", "the-one", "-q", queue)
    assert "the-one" in by_id
    few = await commands.text("messages", "search", "bern", "-q", queue, "-n", "1")
    assert "1 found. There may be more: use --limit." in few
    nothing = await commands.run("messages", "search", "Genf", "-q", queue)
    assert (nothing.exit_code, nothing.stdout) == (1, "4 of 4 messages looked at, 0 found.\n")
    unclear = await commands.run("messages", "search")
    assert isinstance(unclear.exception, InvalidRequest)


async def test_a_queue_is_purged_after_a_confirmation(commands: Commands, queue: str) -> None:
    await commands.text("push", queue, "1", "--count", "3")
    declined = await commands.run("queues", "purge", queue, stdin="n\n")
    assert declined.exit_code == 1
    assert "Drop the 3 that wait" in declined.output
    assert f"3 dropped of {queue}." in await commands.text("queues", "purge", queue, "--yes")
    assert (await commands.run("pop", queue)).exit_code == 1


async def test_an_annotation_is_created_listed_and_removed(commands: Commands, queue: str) -> None:
    await commands.text("push", queue, "1")
    created = await commands.json("annotations", "create", "v1.2.3", "-q", queue, "--key", f"build-{queue}")
    again = await commands.json("annotations", "create", "v1.2.3", "-q", queue, "--key", f"build-{queue}")
    assert again["id"] == created["id"]
    listed = await commands.text("annotations", "ls", "-q", queue, "--kind", "deploy")
    assert "v1.2.3" in listed
    assert max(map(len, listed.splitlines())) <= 80
    await commands.text("annotations", "rm", str(created["id"]))
    assert await commands.json("annotations", "ls", "-q", queue, "--kind", "deploy") == []


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
