"""`penstock push`, `pop` and `ack` against a broker on a real socket."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from penstock.cli.exit_codes import BrokerRefusal, exit_code_of
from penstock.errors import InvalidRequest, UnknownQueue
from tests.integration.cli import shared_broker
from tests.integration.cli.shared_broker import Commands

commands = shared_broker.commands


@pytest.fixture
def queue() -> str:
    return f"q-{uuid4().hex[:8]}"


async def test_a_message_is_pushed_popped_and_acked_by_its_receipt(commands: Commands, queue: str) -> None:
    pushed = await commands.text("push", queue, '{"id": 7}', "--partition", "eu", "--id", "order-7")
    assert pushed == f"1 message pushed to {queue}.\n  order-7\n"
    duplicate = await commands.json("push", queue, '{"id": 7}', "--partition", "eu", "--id", "order-7")
    assert [result["status"] for result in duplicate["results"]] == ["duplicate"]
    popped = await commands.json("pop", queue, "--group", "billing")
    [message] = popped["messages"]
    assert (message["data"], message["partition"]) == ({"id": 7}, "eu")
    assert "1 acked as completed." in await commands.text("ack", message["receipt"])
    again = await commands.run("ack", message["receipt"])
    assert again.exit_code == 1
    assert "0 acked as completed." in again.stdout


async def test_json_lines_are_pushed_in_order_and_popped_with_ack(commands: Commands, queue: str) -> None:
    lines = "".join(f"{number}\n" for number in range(600))
    pushed = await commands.json("push", queue, "--kind", "durable", stdin=lines)
    assert len(pushed["results"]) == 600
    popped = await commands.json("pop", queue, "--batch", "600", "--ack")
    assert [message["data"] for message in popped["messages"]] == list(range(600))
    empty = await commands.run("pop", queue)
    assert empty.exit_code == 1
    assert f"{queue} has no message that can be taken now." in empty.stdout


async def test_a_failed_message_comes_back_with_its_attempt_and_is_given_up(
    commands: Commands, queue: str
) -> None:
    await commands.text("push", queue, "plain text", "--count", "2")
    first = (await commands.json("pop", queue))["messages"][0]
    assert first["data"] == "plain text"
    assert "1 reported as failed." in await commands.text(
        "ack", first["receipt"], "--failed", "--error", "no"
    )
    second = (await commands.json("pop", queue))["messages"][0]
    assert (second["transactionId"], second["retryCount"]) == (first["transactionId"], 1)
    [result] = (await commands.json("ack", "-", "--dead", stdin=second["receipt"]))["results"]
    assert result["isDead"]
    shown = await commands.text("pop", queue)
    assert f"receipt    message:{second['partitionId']}:" in shown


async def test_tasks_of_a_run_queue_are_pushed_popped_and_acked(commands: Commands, queue: str) -> None:
    pushed = await commands.text("push", queue, "1", "--kind", "run", "--priority", "3")
    assert pushed.startswith(f"1 task pushed to {queue}.")
    await commands.text("push", queue, "2", "--delay", "1h")  # the kind is that of the existing queue
    [task] = (await commands.json("pop", queue, "--batch", "5"))["messages"]
    assert (task["payload"], task["priority"]) == (1, 3)
    await commands.text("ack", task["receipt"], "--release")
    [task] = (await commands.json("pop", queue, "--wait", "5s"))["messages"]
    assert task["attempt"] == 1
    await commands.text("ack", task["receipt"])
    assert (await commands.json("queues", "show", queue))["delayed"] == 1
    refused = await commands.run("pop", queue, "--group", "billing")
    assert "no groups" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        (("push", "QUEUE", "{broken"), "", "The payload is not JSON"),
        (("push", "QUEUE", "-"), '{"a": 1}\n{"a":', "Line 2 of the standard input is not JSON"),
        (("push", "QUEUE", "1", "--id", "x", "--count", "2"), "", "--id is for one message"),
        (("push", "QUEUE", "1", "--delay", "5m"), "", "--delay and --priority are for tasks of run queues"),
        (("push", "QUEUE", "1", "--kind", "run", "--partition", "p"), "", "it has no partitions"),
        (("ack", "order-7"), "", "is not a receipt"),
        (("ack", "task:1:2", "--error", "x"), "", "--error needs --failed or --dead"),
        (("ack", "task:1:2", "--failed", "--dead"), "", "Use one of --failed, --dead and --release"),
    ],
)
async def test_wrong_input_is_refused_and_changes_nothing(
    commands: Commands, queue: str, arguments: tuple[str, ...], stdin: str, text: str
) -> None:
    result = await commands.run(*(queue if word == "QUEUE" else word for word in arguments), stdin=stdin)
    assert isinstance(result.exception, InvalidRequest)
    assert text in result.exception.detail
    assert (await commands.json("queues", "ls", "-s", queue))["total"] == 0


async def test_a_pop_of_an_unknown_queue_names_a_similar_one(commands: Commands, queue: str) -> None:
    await commands.text("push", queue, "1")
    result = await commands.run("pop", f"{queue}x")
    assert isinstance(result.exception, UnknownQueue)
    assert f"Did you mean '{queue}'?" in result.exception.detail
    assert exit_code_of(result.exception) == 5


async def test_a_token_that_is_unknown_ends_with_the_exit_code_for_access(commands: Commands) -> None:
    result = await commands.run("push", "any", "1", "--token", "pk_unknown")
    assert isinstance(result.exception, BrokerRefusal), result.output
    assert exit_code_of(result.exception) == 4


async def test_a_refused_line_says_how_many_messages_precede_it(commands: Commands, queue: str) -> None:
    result = await commands.run("push", queue, stdin="1\n" * 500 + "no JSON\n")
    assert "500 messages were pushed before this error" in result.stderr
    assert json.loads(await commands.text("queues", "show", queue, "--json"))["depth"] == 500


async def test_a_server_of_the_broker_that_is_away_ends_with_the_exit_code_for_later(
    commands: Commands,
) -> None:
    result = await commands.run("pipeline", "losses")  # this broker has no ClickHouse
    assert isinstance(result.exception, BrokerRefusal), result.output
    assert exit_code_of(result.exception) == 7
