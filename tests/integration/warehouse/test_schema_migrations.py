"""Migrations of the ClickHouse schema: their result, and when they are refused."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pytest

from penstock.definitions import DEFINITIONS, QUEUE
from penstock.errors import MigrationError, WarehouseUnavailable
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import ResultRow, Warehouse, connect
from penstock.warehouse.schema import MIGRATIONS_TABLE, tier_tables
from penstock.warehouse.schema_migrations import (
    Migration,
    apply_migrations,
    load_migrations,
    migrate,
    render_schema,
)
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import environment_series, queue_series
from tests.integration.warehouse.landing_rows import insert_rows, landing_row, landing_schema


def insert_into_old_schema(warehouse: Warehouse, *rows: dict[str, Any]) -> None:
    """Insert rows into a landing table that may lack some of the current columns."""
    existing = warehouse.query(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'queue_landing'"
    )
    existing_names = {row["name"] for row in existing}
    content = pa.Table.from_pylist(list(rows), schema=landing_schema())
    names = [name for name in content.column_names if name in existing_names]
    warehouse.insert_once("queue_landing", content.select(names), uuid4().hex)


class SchemaDescription(NamedTuple):
    tables: dict[str, dict[str, str]]
    columns: list[ResultRow]


def describe_schema(warehouse: Warehouse) -> SchemaDescription:
    """Return the definitions of all tables and columns."""
    database = urlsplit(warehouse.url).path[1:]
    tables = warehouse.query(
        "SELECT name, engine, partition_key, sorting_key, create_table_query FROM system.tables "
        "WHERE database = currentDatabase()"
    )
    columns = warehouse.query(
        "SELECT table, name, type, compression_codec, default_expression FROM system.columns "
        "WHERE database = currentDatabase() ORDER BY table, position"
    )
    return SchemaDescription(
        tables={
            table["name"]: {key: str(value).replace(f"{database}.", "") for key, value in table.items()}
            for table in tables
            if table["name"] != MIGRATIONS_TABLE
        },
        columns=[column for column in columns if column["table"] != MIGRATIONS_TABLE],
    )


def test_migrations_produce_the_schema_of_the_definitions(
    clickhouse_url: str, empty_url: str, request: pytest.FixtureRequest
) -> None:
    connect(empty_url.rpartition("/")[0]).command(f"CREATE DATABASE {urlsplit(empty_url).path[1:]}")
    stepwise = connect(empty_url)
    for count in range(1, len(load_migrations()) + 1):
        assert len(apply_migrations(stepwise, load_migrations()[:count])) == 1
    at_once = connect(empty_url + "_at_once")
    stepwise.command(f"CREATE DATABASE {urlsplit(at_once.url).path[1:]}")
    request.addfinalizer(lambda: stepwise.command(f"DROP DATABASE {urlsplit(at_once.url).path[1:]}"))
    for statement in Migration(1, "everything", render_schema(DEFINITIONS)).statements:
        at_once.command(statement)
    assert describe_schema(stepwise) == describe_schema(at_once)
    tables = sum(len(tier_tables(definition)) for definition in DEFINITIONS)
    expected = 3 + len(DEFINITIONS) * 2 + tables * 2  # shared; landing and freshness; each tier with its view
    assert len(describe_schema(at_once).tables) == expected


def test_migrating_again_changes_nothing(empty_url: str) -> None:
    assert migrate(empty_url) == [migration.label for migration in load_migrations()]
    before = describe_schema(connect(empty_url))
    assert migrate(empty_url) == []
    assert describe_schema(connect(empty_url)) == before


def test_an_interrupted_migration_is_completed(empty_url: str) -> None:
    migrate(empty_url)
    warehouse = connect(empty_url)
    complete = describe_schema(warehouse)
    warehouse.command(f"TRUNCATE TABLE {MIGRATIONS_TABLE}")
    warehouse.command("DROP VIEW queue_1h_view")
    assert migrate(empty_url) == [migration.label for migration in load_migrations()]
    assert describe_schema(warehouse) == complete


@pytest.mark.parametrize("statement_count", [1, 8, 14])
def test_an_interrupted_first_migration_is_completed(empty_url: str, statement_count: int) -> None:
    migrate(empty_url)
    warehouse = connect(empty_url)
    complete = describe_schema(warehouse)
    warehouse.command(f"DROP DATABASE {urlsplit(empty_url).path[1:]} SYNC")
    connect(empty_url.rpartition("/")[0]).command(f"CREATE DATABASE {urlsplit(empty_url).path[1:]}")
    for statement in Migration(0, "everything", render_schema()).statements[:statement_count]:
        warehouse.command(statement)
    assert migrate(empty_url) == [migration.label for migration in load_migrations()]
    assert describe_schema(warehouse) == complete


def test_migration_numbers_are_consecutive() -> None:
    numbers = [migration.number for migration in load_migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_changed_migration_is_refused(empty_url: str) -> None:
    migrate(empty_url)
    changed = [replace(migration, text=migration.text + "\n-- more") for migration in load_migrations()]
    with pytest.raises(MigrationError, match="must never change"):
        apply_migrations(connect(empty_url), changed)


def test_no_migration_leaves_a_view_missing() -> None:
    for migration in load_migrations():
        assert not any("DROP VIEW" in statement for statement in migration.statements)


@pytest.mark.parametrize("completed_steps", [2, 3, 4, 8])
def test_metrics_survive_a_migration_interrupted_at_any_step(empty_url: str, completed_steps: int) -> None:
    old = load_migrations()[:1]
    warehouse = connect(empty_url)
    connect(empty_url.rpartition("/")[0]).command(f"CREATE DATABASE {urlsplit(empty_url).path[1:]}")
    apply_migrations(warehouse, old)
    insert_into_old_schema(
        warehouse, *(landing_row(time.time() - 60 * n, enqueued=n, depth=n) for n in range(3))
    )
    [last] = load_migrations()[2:3]
    apply_migrations(warehouse, load_migrations()[:2])
    for step in last.steps[:completed_steps]:
        if step.unless is None or not warehouse.query(step.unless):
            warehouse.command(step.statement)
    migrate(empty_url)
    insert_rows(warehouse, landing_row(time.time(), enqueued=100, env_depth=5))
    for table in tier_tables(QUEUE):
        [row] = warehouse.query(f"SELECT sum(enqueued) AS n FROM {table.name}")
        assert row["n"] == (100 if table.rollup else 103), table.name
    tables = {row["name"] for row in warehouse.query("SHOW TABLES")}
    assert not any(name.endswith("_next") for name in tables)


@pytest.mark.parametrize("completed_steps", [0, 1, 2, 3, 4, 5])
def test_a_migration_keeps_last_values_and_percentiles(empty_url: str, completed_steps: int) -> None:
    connect(empty_url.rpartition("/")[0]).command(f"CREATE DATABASE {urlsplit(empty_url).path[1:]}")
    warehouse = connect(empty_url)
    apply_migrations(warehouse, load_migrations()[:3])
    start = int(time.time()) // 3600 * 3600 - 3600
    first_row = landing_row(start + 61, depth=7, running=0, env_depth=3, wait_ms=(5, 10, 900))
    insert_into_old_schema(warehouse, first_row)
    rows = landing_row(start + 62, depth=4, wait_ms=(1,)), landing_row(start + 121, wait_ms=(8,))
    insert_into_old_schema(warehouse, *rows)
    steps_per_table = len(load_migrations()[3].steps) // len(tier_tables(QUEUE))
    for step in load_migrations()[3].steps[
        : steps_per_table + completed_steps
    ]:  # one table, and some steps of the next
        if step.unless is None or not warehouse.query(step.unless):
            warehouse.command(step.statement)
    migrate(empty_url)
    insert_rows(warehouse, landing_row(start + 63, env_running=1, wait_ms=(2,)))  # has no gauge of the queue
    points = queue_series(
        SeriesReader(warehouse), DEFAULT_SCOPE, "orders", period="24h", now_s=start + 300
    ).points
    [first, second] = [point for point in points if point["latency"]["avg_wait_ms"] is not None]
    assert first["queue_depth"] == {"max": 7, "last": 4}
    assert first["concurrency"] == {"max": 0, "limit": None, "utilization_pct": None}
    assert (first["latency"]["p50_wait_ms"], first["latency"]["p99_wait_ms"]) == (5.0, 900.0)
    assert second["latency"]["p95_wait_ms"] == 8.0
    environment = environment_series(
        SeriesReader(warehouse), DEFAULT_SCOPE, period="24h", now_s=start + 300
    ).points
    assert [p["queue_depth"]["last"] for p in environment if not p["carried"]][-1] == 3
    insert_rows(warehouse, landing_row(start + 64, depth=1))
    later = queue_series(
        SeriesReader(warehouse), DEFAULT_SCOPE, "orders", period="24h", now_s=start + 300
    ).points
    assert [p["queue_depth"]["last"] for p in later if not p["carried"]][-1] == 1


def test_the_migration_of_delayed_tasks_loses_no_rows_inserted_meanwhile(
    empty_url: str,
) -> None:
    connect(empty_url.rpartition("/")[0]).command(f"CREATE DATABASE {urlsplit(empty_url).path[1:]}")
    warehouse = connect(empty_url)
    apply_migrations(warehouse, load_migrations()[:5])
    start = int(time.time()) // 3600 * 3600 - 3600
    insert_into_old_schema(
        warehouse, landing_row(start, enqueued=1, depth=7, env_depth=7, delayed=9, env_delayed=9)
    )
    [adding] = load_migrations()[5:6]
    for number, step in enumerate(adding.steps, start=1):  # like a migration killed after each step
        warehouse.command(step.statement)
        warehouse.command(step.statement)
        row = landing_row(start + 60 * number, enqueued=1, depth=number, delayed=3, env_delayed=5)
        insert_into_old_schema(warehouse, row)
    assert adding.label in migrate(empty_url)
    now = start + 60 * (len(adding.steps) + 1)
    insert_rows(warehouse, landing_row(now - 30, enqueued=1, delayed=(6, 2), env_delayed=(8, 4)))
    for table in tier_tables(QUEUE):
        [row] = warehouse.query(f"SELECT sum(enqueued) AS n FROM {table.name}")
        assert row["n"] == 2 + len(adding.steps), table.name
    for series, last in (
        (
            queue_series(SeriesReader(warehouse), DEFAULT_SCOPE, "orders", period="24h", now_s=now),
            {"max": 6, "last": 2},
        ),
        (
            environment_series(SeriesReader(warehouse), DEFAULT_SCOPE, period="24h", now_s=now),
            {"max": 8, "last": 4},
        ),
    ):
        points = [point for point in series.points if point["throughput"]["enqueued"]]
        assert points[0]["delayed"] == {"max": None, "last": None}, "no gauge of delayed tasks existed yet"
        assert points[0]["queue_depth"] == {"max": 7, "last": 7}
        assert points[-1]["delayed"] == last


def test_a_database_with_newer_migrations_is_refused(empty_url: str) -> None:
    migrate(empty_url)
    warehouse = connect(empty_url)
    apply_migrations(warehouse, [*load_migrations(), Migration(9999, "from_the_future", "SELECT 1;")])
    with pytest.raises(MigrationError, match="a newer Penstock"):
        migrate(empty_url)


def test_an_invalid_database_name_is_refused(clickhouse_url: str) -> None:
    with pytest.raises(MigrationError, match="is not a valid name"):
        migrate(clickhouse_url + "-x;y")


def test_an_unreachable_clickhouse_is_reported_with_its_address(free_port: int) -> None:
    with pytest.raises(WarehouseUnavailable, match=f"127.0.0.1:{free_port}"):
        migrate(f"http://user:secret@127.0.0.1:{free_port}/default")


def test_every_tier_has_daily_partitions_that_expire_whole(warehouse: Warehouse) -> None:
    for table in tier_tables(QUEUE):
        [row] = warehouse.query(
            "SELECT partition_key, create_table_query AS ddl FROM system.tables "
            "WHERE database = currentDatabase() AND name = {name:String}",
            {"name": table.name},
        )
        assert row["partition_key"] == "toDate(bucket)"
        assert f"TTL bucket + toIntervalDay({table.tier.days})" in row["ddl"]
        assert "ttl_only_drop_parts = 1" in row["ddl"]
        assert "non_replicated_deduplication_window = 1000" in row["ddl"]
