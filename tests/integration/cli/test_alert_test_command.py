"""`penstock alerts test` against a broker on a real socket, with metrics in ClickHouse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from rich.cells import cell_len
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import ConfigError
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.api.routes.test_alert_rule_tests import insert_spikes
from tests.integration.api.routes.test_series_routes import queue, warehouse, warehouse_url
from tests.integration.cli.test_alert_channel_commands import run, run_json
from tests.integration.client.broker_server import run_broker

__all__ = ["queue", "warehouse", "warehouse_url"]

RULE = """
[[rule]]
name = "{name}"
type = "BACKLOG"
queue = "{queue}"
threshold = 100
windowMinutes = 1
statistic = "last"
"""


@pytest_asyncio.fixture
async def url(database_url: str, redis_url: str, warehouse_url: str) -> AsyncIterator[str]:
    async with run_broker(
        database_url, redis_url=redis_url, clickhouse_url=warehouse_url, metrics_enabled=False
    ) as address:
        yield address


@pytest.fixture
def file(tmp_path: Path, queue: str) -> str:
    path = tmp_path / "rules.toml"
    path.write_text(RULE.format(name="first", queue=queue) + RULE.format(name="second", queue="other"))
    return str(path)


async def test_the_output_has_sentence_plot_and_incidents_in_80_columns(
    url: str, warehouse: Warehouse, queue: str, file: str
) -> None:
    insert_spikes(warehouse, queue, {100: 500, 30: 900}, 200)
    command = [
        "alerts",
        "test",
        file,
        "--rule",
        "first",
        "--period",
        "3h",
        "--at-most",
        "8/day",
        "--url",
        url,
    ]

    result = await asyncio.to_thread(lambda: CliRunner().invoke(app, command, env={"COLUMNS": "80"}))

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("first would have fired twice in 3 h")
    assert max(cell_len(line) for line in lines) <= 80
    for text in ("100 ┤", "╌", "Suggestion: a threshold of 500 would have fired once", queue):
        assert text in result.stdout


async def test_json_has_the_whole_response(url: str, warehouse: Warehouse, queue: str, file: str) -> None:
    insert_spikes(warehouse, queue, {100: 500}, 200)
    tested = await run_json(url, "test", file, "--rule", "first", "--period", "3h")
    assert (tested["fired"], tested["suggestion"], tested["replay"]) == (1, None, None)


@pytest.mark.parametrize(
    ("options", "advice"),
    [([], "Choose one with --rule: 'first', 'second'."), (["--rule", "third"], "has no rule 'third'.")],
)
async def test_a_file_with_several_rules_needs_a_name(
    url: str, file: str, options: list[str], advice: str
) -> None:
    result = await run(url, "test", file, *options)
    assert isinstance(result.exception, ConfigError)
    assert advice in result.exception.detail
