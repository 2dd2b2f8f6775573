"""The schema for a cluster: ClickHouse parses it, and creates its tables with an in-process Keeper.

The tests have no second server, so nothing is replicated, and `ON CLUSTER` is parsed but not executed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.definitions import DEFINITIONS, QUEUE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.cluster import rewrite_for_cluster
from penstock.warehouse.schema import MIGRATIONS_TABLE, REJECTED_TABLE, tier_tables
from penstock.warehouse.schema_migrations import Migration, load_migrations, render_schema

CLUSTER = "metrics"
ON_CLUSTER = f" ON CLUSTER '{CLUSTER}'"

CONFIG = """<clickhouse>
  <zookeeper><implementation>testkeeper</implementation></zookeeper>
  <macros><shard>01</shard><replica>r1</replica></macros>
</clickhouse>"""

CREATE_TABLES = """
import json, sys, chdb
connection = chdb.connect(sys.argv[1])
connection.query("CREATE DATABASE m")
connection.query("USE m")
for statement in json.load(sys.stdin):
    connection.query(statement)
tables = connection.query(
    "SELECT name, engine, create_table_query FROM system.tables WHERE database = 'm'", "JSONEachRow"
)
sys.stdout.write(str(tables))
sys.stdout.flush()
"""


def cluster_schema() -> list[str]:
    return Migration(1, "everything", render_schema(cluster=CLUSTER)).statements


def test_clickhouse_parses_every_statement(warehouse: Warehouse) -> None:
    migration_steps = [
        rewrite_for_cluster(step.statement, CLUSTER) for m in load_migrations() for step in m.steps
    ]
    for statement in [*cluster_schema(), *migration_steps]:
        [row] = warehouse.query("SELECT formatQuery({sql:String}) AS formatted", {"sql": statement})
        assert f"ON CLUSTER {CLUSTER}" in row["formatted"].replace("'", "").replace("`", ""), statement


def test_the_cluster_schema_differs_only_in_replication() -> None:
    single_server = Migration(1, "everything", render_schema()).statements
    for single, clustered in zip(single_server, cluster_schema(), strict=True):
        reverted = clustered.replace(ON_CLUSTER, "")
        reverted = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '{replica}'\)", r"\1", reverted)
        reverted = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '{replica}', (\w+)\)", r"\1(\2)", reverted)
        reverted = reverted.replace(
            "replicated_deduplication_window = 1000", "non_replicated_deduplication_window = 1000"
        )
        assert reverted.replace(", replicated_deduplication_window_seconds = 604800", "") == single


def test_every_table_with_data_is_replicated_on_its_own_path() -> None:
    tables = [statement for statement in cluster_schema() if statement.startswith("CREATE TABLE")]
    stored = [statement for statement in tables if "ENGINE = Null" not in statement]
    assert len(tables) - len(stored) == len(DEFINITIONS)
    paths = [re.search(r"Replicated\w+\('([^']+)', '{replica}'[,)]", statement) for statement in stored]
    assert all(paths)
    tiers = sum(len(tier_tables(definition)) for definition in DEFINITIONS)
    assert len({path[1] for path in paths if path}) == len(stored) == tiers + 3


def test_clickhouse_creates_the_tables(tmp_path: Path) -> None:
    (tmp_path / "config.xml").write_text(CONFIG)
    record = rewrite_for_cluster(
        f"CREATE TABLE IF NOT EXISTS {MIGRATIONS_TABLE} (n UInt32) ENGINE = ReplacingMergeTree ORDER BY n",
        "x",
    )
    statements = [statement.replace(ON_CLUSTER, "") for statement in cluster_schema()]
    statements.append(record.replace(" ON CLUSTER 'x'", ""))
    data_path = f"{tmp_path}/data?config-file={tmp_path}/config.xml"
    # Closing the connection would wait for a replica that never becomes active.
    with subprocess.Popen(
        [sys.executable, "-c", CREATE_TABLES, data_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(statements))
            process.stdin.close()
            expected = len(statements)
            lines = [process.stdout.readline() for _ in range(expected)]
        finally:
            process.kill()
    tables = {row["name"]: row for row in map(json.loads, lines)}
    for table in tier_tables(QUEUE):
        assert tables[table.name]["engine"] == "ReplicatedAggregatingMergeTree"
        assert "replicated_deduplication_window = 1000" in tables[table.name]["create_table_query"]
        assert tables[f"{table.name}_view"]["engine"] == "MaterializedView"
    assert tables["queue_landing"]["engine"] == "Null"
    assert "'{replica}', replayed)" in tables[REJECTED_TABLE]["create_table_query"]
    assert tables[MIGRATIONS_TABLE]["engine"] == "ReplicatedReplacingMergeTree"


def test_an_unsupported_statement_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot rewrite"):
        rewrite_for_cluster("RENAME TABLE a TO b", CLUSTER)
