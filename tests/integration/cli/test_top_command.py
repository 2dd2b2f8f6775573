"""`penstock top`: the screen with Textual's pilot and the plain table, against a broker on a real socket."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from textual.widgets import DataTable, Input, Static

from penstock.cli.broker_address import BrokerAddress
from penstock.cli.broker_client import BrokerClient
from penstock.cli.top.top_reader import TopSelection, TopSnapshot, TopSort, read_snapshot
from penstock.cli.top.top_screen import TopScreen
from tests.integration.cli import shared_broker
from tests.integration.cli.shared_broker import Commands
from tests.waiting import wait_until_async

commands = shared_broker.commands
INTERVAL_S = 0.3


@pytest.fixture
def prefix() -> str:
    return f"top-{uuid4().hex[:8]}"


async def push_three_queues(commands: Commands, prefix: str) -> None:
    await commands.text("push", f"{prefix}-done", "1")
    await commands.text("pop", f"{prefix}-done", "--ack")
    await commands.text("push", f"{prefix}-many", "1", "--count", "30")
    await commands.text("push", f"{prefix}-run", "1", "--kind", "run", "--count", "5")
    await commands.text("queues", "pause", f"{prefix}-many")

    async def are_listed() -> bool:
        page = (await commands.json("top", "-s", prefix))["page"]
        return [queue["cappedBy"] for queue in page["queues"]][:1] == ["paused"] and page["total"] == 3

    await wait_until_async(are_listed, 30, "the list has the three queues")


def shown_queues(screen: TopScreen) -> list[str]:
    table = screen.query_one("#queues", DataTable)
    return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]


async def wait_for_queues(screen: TopScreen, queues: list[str]) -> None:
    async def are_shown() -> bool:
        assert shown_queues(screen) == queues
        return True

    await wait_until_async(are_shown, 20, f"the screen shows {queues}")


async def test_the_screen_sorts_filters_and_keeps_figures_while_the_broker_fails(
    commands: Commands, prefix: str
) -> None:
    await push_three_queues(commands, prefix)
    done, many, run = (f"{prefix}-{name}" for name in ("done", "many", "run"))
    broker = BrokerClient(BrokerAddress(commands.url, ""))
    fails = False

    def read(selection: TopSelection) -> TopSnapshot:
        with BrokerClient(BrokerAddress("http://127.0.0.1:1", "")) as unreachable:
            return read_snapshot(unreachable if fails else broker, selection)

    screen = TopScreen(read, TopSelection(search=prefix), INTERVAL_S)
    async with screen.run_test(size=(110, 30)) as pilot:
        await wait_for_queues(screen, [many, run, done])
        assert "paused" in str(screen.query_one("#queues", DataTable).get_row_at(0)[-1])
        assert "queues" in str(screen.query_one("#summary", Static).render())
        await pilot.press("r")
        await wait_for_queues(screen, [done, run, many])
        await pilot.press("n")
        await wait_for_queues(screen, [done, many, run])
        await pilot.press("s")
        assert screen.selection.sort == TopSort.DEPTH
        await pilot.press("p")
        await wait_for_queues(screen, [many])
        await pilot.press("p", "slash", *"-run", "enter")
        await wait_for_queues(screen, [run])
        assert not screen.query_one("#filter", Input).has_class("shown")
        fails = True

        async def has_problem() -> bool:
            return "No broker answers" in str(screen.query_one("#problem", Static).render())

        await wait_until_async(has_problem, 20, "the screen shows the problem")
        assert shown_queues(screen) == [run]
        await pilot.press("q")
    broker._http.close()


async def test_a_plain_table_fits_80_columns_and_has_the_state_of_the_environment(
    commands: Commands, prefix: str
) -> None:
    await push_three_queues(commands, prefix)
    table = await commands.text("top", "--search", prefix)
    lines = table.splitlines()
    assert max(map(len, lines)) <= 80
    assert "queues," in lines[0]
    assert "worker " in table
    assert f"{prefix}-many" in table
    names = [
        row["name"] for row in (await commands.json("top", "-s", prefix, "--sort", "name"))["page"]["queues"]
    ]
    assert names == [f"{prefix}-done", f"{prefix}-many", f"{prefix}-run"]
    problems = await commands.json("top", "-s", prefix, "--problems", "--once")
    assert [row["name"] for row in problems["page"]["queues"]] == [f"{prefix}-many"]


async def test_json_has_the_overview_the_queues_and_the_workers(commands: Commands) -> None:
    document = json.loads(await commands.text("top", "--json"))
    assert set(document) == {"overview", "page", "workers"}
    assert len(document["workers"]) == 1
