"""The tables of a metric and of its rollups count every event once."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from penstock.definitions import QUEUE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import copy_statements, landing_table, tier_tables
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

MIDNIGHT = int(time.time()) // 86_400 * 86_400
TIME_S = MIDNIGHT - 7_200


@pytest.fixture
def environment() -> str:
    return f"env-{uuid4().hex[:8]}"


def totals(warehouse: Warehouse, environment: str, suffix: str = "") -> dict[str, dict[str, Any]]:
    """Return the events, enqueued messages and number of waits per table."""
    totals_by_table = {}
    for table in tier_tables(QUEUE):
        [row] = warehouse.query(
            f"SELECT sum(events) AS events, sum(enqueued) AS enqueued, sum(wait_ms_count) AS waits "
            f"FROM {table.name}{suffix} WHERE environment = {{environment:String}}",
            {"environment": environment},
        )
        totals_by_table[table.name] = {name: int(value) for name, value in row.items()}
    return totals_by_table


def test_there_is_a_table_per_tier_and_rollup() -> None:
    assert [(table.name, table.tier.name, table.rollup) for table in tier_tables(QUEUE)] == [
        ("queue_5s", "5s", None),
        ("queue_1m", "1m", None),
        ("queue_1h", "1h", None),
        ("queue_environment_5s", "5s", "environment"),
        ("queue_environment_1m", "1m", "environment"),
        ("queue_environment_1h", "1h", "environment"),
    ]


def test_a_repeated_insert_counts_once_in_every_table(warehouse: Warehouse, environment: str) -> None:
    rows = [
        landing_row(TIME_S + 7 * n, queue=f"q{n % 3}", environment=environment, enqueued=n, wait_ms=(n, n))
        for n in range(20)
    ]
    for _ in range(3):
        insert_rows(warehouse, *rows, token=f"once-{environment}")
    expected = {"events": 20, "enqueued": sum(range(20)), "waits": 40}
    assert totals(warehouse, environment) == {table.name: expected for table in tier_tables(QUEUE)}


def test_a_rollup_has_gauges_of_its_own(warehouse: Warehouse, environment: str) -> None:
    insert_rows(
        warehouse,
        landing_row(TIME_S + 1, queue="a", environment=environment, depth=5),
        landing_row(TIME_S + 2, queue="", environment=environment, env_depth=(12, 11), env_running=3),
        landing_row(TIME_S + 3, queue="b", environment=environment, depth=7),
    )
    for table in tier_tables(QUEUE):
        gauge = "env_depth" if table.rollup else "depth"
        [row] = warehouse.query(
            f"SELECT max({gauge}_max) AS highest, toInt64(max({gauge}_last)) AS newest, "
            f"max(seen_ms) AS seen, sum(events) AS events FROM {table.name} "
            "WHERE environment = {environment:String}",
            {"environment": environment},
        )
        expected = (12, 11, (TIME_S + 2) * 1000, 3) if table.rollup else (7, 7, (TIME_S + 3) * 1000, 2)
        assert (row["highest"], row["newest"], row["seen"], row["events"]) == expected


def test_an_event_of_an_environment_is_not_counted_for_a_queue(
    warehouse: Warehouse, environment: str
) -> None:
    insert_rows(warehouse, landing_row(TIME_S, queue="", environment=environment, enqueued=4, env_depth=1))
    counted = {name: row["enqueued"] for name, row in totals(warehouse, environment).items()}
    assert counted == {table.name: 4 if table.rollup else 0 for table in tier_tables(QUEUE)}


def test_filling_copies_does_not_change_the_live_tables(warehouse: Warehouse, environment: str) -> None:
    for statement in copy_statements(QUEUE, "_again"):
        warehouse.command(statement)
    [before] = warehouse.query("SELECT max(newest_ms) AS newest FROM freshness")
    row = landing_row(MIDNIGHT, environment=environment, enqueued=2, env_depth=9)
    insert_rows(warehouse, row, table=f"{landing_table(QUEUE)}_again")
    assert set(map(tuple, (r.items() for r in totals(warehouse, environment, "_again").values()))) == {
        (("events", 1), ("enqueued", 2), ("waits", 0))
    }
    assert not any(row["events"] for row in totals(warehouse, environment).values())
    assert warehouse.query("SELECT max(newest_ms) AS newest FROM freshness") == [before]
    tables = warehouse.query(
        "SELECT create_table_query AS ddl FROM system.tables WHERE name LIKE 'queue%_again'"
    )
    assert not any("TTL" in row["ddl"] for row in tables)
    day = datetime.fromtimestamp(MIDNIGHT, UTC).strftime("%Y-%m-%d")
    for table in tier_tables(QUEUE):
        warehouse.command(f"ALTER TABLE {table.name} REPLACE PARTITION '{day}' FROM {table.name}_again")
    assert {row["enqueued"] for row in totals(warehouse, environment).values()} == {2}
