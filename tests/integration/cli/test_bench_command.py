"""`penstock bench` against a broker on a real socket."""

from __future__ import annotations

import json

from penstock.cli.bench.bench_command import QUEUE_PREFIX
from penstock.cli.bench.bench_load import RequestTimes
from tests.integration.cli import shared_broker
from tests.integration.cli.shared_broker import Commands

commands = shared_broker.commands


async def test_all_messages_are_measured_and_the_queue_is_removed(commands: Commands) -> None:
    result = await commands.json("bench", "--messages", "230", "--batch", "20", "--partitions", "2")
    assert result["complete"]
    assert {name: times["messages"] for name, times in result["operations"].items()} == {
        "push": 230,
        "pop": 230,
        "ack": 230,
    }
    for times in result["operations"].values():
        assert 0 < times["p50Ms"] <= times["p95Ms"] <= times["p99Ms"] <= times["maxMs"]
    assert (await commands.json("queues", "ls", "-s", QUEUE_PREFIX))["total"] == 0
    table = await commands.text("bench", "--messages", "40")
    assert "Acked messages per second" in table
    assert max(map(len, table.splitlines())) <= 80


async def test_the_time_limit_ends_the_load_and_the_queue_is_removed(commands: Commands) -> None:
    result = await commands.run("bench", "--messages", "1000000", "--for", "1s", "--batch", "10", "--json")
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["complete"]
    assert (await commands.json("queues", "ls", "-s", QUEUE_PREFIX))["total"] == 0


async def test_an_unreachable_broker_ends_the_load_with_its_error(commands: Commands) -> None:
    unreachable = Commands("http://127.0.0.1:1")
    result = await unreachable.run("bench", "--messages", "10")
    assert "No broker answers at http://127.0.0.1:1" in str(result.exception)


def test_a_percentile_is_the_duration_that_this_share_did_not_exceed() -> None:
    times = RequestTimes([0.004, 0.001, 0.002, 0.003], 4)
    assert [times.percentile_ms(percent) for percent in (25, 50, 75, 100)] == [1, 2, 3, 4]
    assert RequestTimes().percentile_ms(50) is None
