"""The schema for a cluster, read by ClickHouse's own parser; its tables made with a Keeper in the process.

There is no second server here, so nothing is replicated and `ON CLUSTER` is parsed but not run.
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
from penstock.warehouse.schema import tier_tables
from penstock.warehouse.schema_migrations import MIGRATIONS_TABLE, Migration, load_migrations, render_schema

CLUSTER = "metrics"
ON_CLUSTER = f" ON CLUSTER '{CLUSTER}'"

CONFIG = """<clickhouse>
  <zookeeper><implementation>testkeeper</implementation></zookeeper>
  <macros><shard>01</shard><replica>r1</replica></macros>
</clickhouse>"""

MADE = """
import json, sys, chdb
connection = chdb.connect(sys.argv[1])
connection.query("CREATE DATABASE m")
connection.query("USE m")
for statement in json.load(sys.stdin):
    connection.query(statement)
found = connection.query(
    "SELECT name, engine, create_table_query FROM system.tables WHERE database = 'm'", "JSONEachRow"
)
sys.stdout.write(str(found))
sys.stdout.flush()
"""


def schema() -> list[str]:
    return Migration(1, "everything", render_schema(cluster=CLUSTER)).statements


def test_every_statement_is_one_that_clickhouse_understands(warehouse: Warehouse) -> None:
    later = [rewrite_for_cluster(step.statement, CLUSTER) for m in load_migrations() for step in m.steps]
    for statement in [*schema(), *later]:
        [row] = warehouse.query("SELECT formatQuery({sql:String}) AS formatted", {"sql": statement})
        assert f"ON CLUSTER {CLUSTER}" in row["formatted"].replace("'", "").replace("`", ""), statement


def test_it_is_the_schema_of_one_server_but_for_replication() -> None:
    alone = Migration(1, "everything", render_schema()).statements
    for ours, theirs in zip(alone, schema(), strict=True):
        back = theirs.replace(ON_CLUSTER, "")
        back = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '{replica}'\)", r"\1", back)
        back = back.replace(
            "replicated_deduplication_window = 1000", "non_replicated_deduplication_window = 1000"
        )
        assert back.replace(", replicated_deduplication_window_seconds = 604800", "") == ours


def test_every_table_that_stores_something_is_replicated_on_a_path_of_its_own() -> None:
    tables = [statement for statement in schema() if statement.startswith("CREATE TABLE")]
    stored = [statement for statement in tables if "ENGINE = Null" not in statement]
    assert len(tables) - len(stored) == len(DEFINITIONS)
    paths = [re.search(r"Replicated\w+\('([^']+)', '{replica}'\)", statement) for statement in stored]
    assert all(paths)
    tiers = sum(len(tier_tables(definition)) for definition in DEFINITIONS)
    assert len({found[1] for found in paths if found}) == len(stored) == tiers + 2


def test_clickhouse_makes_the_tables(tmp_path: Path) -> None:
    (tmp_path / "config.xml").write_text(CONFIG)
    record = rewrite_for_cluster(
        f"CREATE TABLE IF NOT EXISTS {MIGRATIONS_TABLE} (n UInt32) ENGINE = ReplacingMergeTree ORDER BY n",
        "x",
    )
    statements = [statement.replace(ON_CLUSTER, "") for statement in schema()]
    statements.append(record.replace(" ON CLUSTER 'x'", ""))
    place = f"{tmp_path}/data?config-file={tmp_path}/config.xml"
    # Closing the connection would wait for a replica that never becomes active.
    with subprocess.Popen(
        [sys.executable, "-c", MADE, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as made:
        try:
            assert made.stdin is not None
            assert made.stdout is not None
            made.stdin.write(json.dumps(statements))
            made.stdin.close()
            expected = len(statements)
            lines = [made.stdout.readline() for _ in range(expected)]
        finally:
            made.kill()
    tables = {row["name"]: row for row in map(json.loads, lines)}
    for table in tier_tables(QUEUE):
        assert tables[table.name]["engine"] == "ReplicatedAggregatingMergeTree"
        assert "replicated_deduplication_window = 1000" in tables[table.name]["create_table_query"]
        assert tables[f"{table.name}_view"]["engine"] == "MaterializedView"
    assert tables["queue_landing"]["engine"] == "Null"
    assert tables[MIGRATIONS_TABLE]["engine"] == "ReplicatedReplacingMergeTree"


def test_a_statement_nobody_thought_of_is_refused() -> None:
    with pytest.raises(ValueError, match="not known how"):
        rewrite_for_cluster("RENAME TABLE a TO b", CLUSTER)
