"""ClickHouse clusters with several shards: the tables of each shard, and distributed tables over all shards.

On every node, the database `<database>_shard` has the tables and views with the rows of its shard, and the
database of the URL has a `Distributed` table of the same name for each table. Readers and writers use only
the distributed tables, so they need no other names and no other queries than with one server.

All rows of a queue, or of a worker, are in one shard. The tables of a rollup are filled by views within each
shard, so a rollup has rows in every shard; queries merge them like several rows of one bucket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import (
    FRESHNESS_TABLE,
    MIGRATIONS_TABLE,
    REJECTED_TABLE,
    SET_ASIDE_TABLE,
    landing_table,
    tier_tables,
)

ANY_SHARD = "rand()"
"""The sharding key of tables whose rows may be in any shard. ClickHouse skips no shard when it reads them."""

_ENGINE = re.compile(r"Distributed\('([^']+)', '([^']+)', '([^']+)'")


def shard_database(database: str) -> str:
    """Return the name of the database with the tables of one shard."""
    return f"{database}_shard"


def sharding_keys(definitions: Iterable[MetricDefinition] = DEFINITIONS) -> dict[str, str]:
    """Return the expression that chooses the shard of a row, for each table.

    The key of a table that takes inserts depends on the row alone: a repeated insert reaches the same shards.
    """
    keys = {
        # All rows of one event must be in the same shard, because FINAL replaces rows within a shard.
        REJECTED_TABLE: "cityHash64(metric, stream)",
        SET_ASIDE_TABLE: "cityHash64(metric, stream)",
        FRESHNESS_TABLE: ANY_SHARD,
        MIGRATIONS_TABLE: ANY_SHARD,
    }
    for definition in definitions:
        keys[landing_table(definition)] = subject_key = _subject_key(definition)
        for table in tier_tables(definition):
            keys[table.name] = subject_key if table.rollup is None else ANY_SHARD
    return keys


def distributed_statements(
    cluster: str, database: str, definitions: Iterable[MetricDefinition] = DEFINITIONS
) -> list[str]:
    """Return the statements that create the distributed tables, or replace them after a migration."""
    tables = shard_database(database)
    return [
        f"CREATE OR REPLACE TABLE {database}.{name} ON CLUSTER '{cluster}' AS {tables}.{name}\n"
        f"ENGINE = Distributed('{cluster}', '{tables}', '{name}', {key})"
        for name, key in sharding_keys(definitions).items()
    ]


def count_shards(warehouse: Warehouse, cluster: str) -> int:
    """Return the number of shards of a cluster; 0 if the server does not know the cluster."""
    [row] = warehouse.query(
        "SELECT uniqExact(shard_num) AS shards FROM system.clusters WHERE cluster = {cluster:String}",
        {"cluster": cluster},
    )
    return int(row["shards"])


def holds_only_distributed_tables(warehouse: Warehouse, database: str) -> bool:
    """Return whether a database has no other tables than distributed ones. A missing database has none."""
    return not warehouse.query(
        "SELECT 1 FROM system.tables WHERE database = {database:String} AND engine != 'Distributed' LIMIT 1",
        {"database": database},
    )


def is_sharded(warehouse: Warehouse) -> bool:
    """Return whether the tables of the database are distributed over shards."""
    return alter_target(warehouse, FRESHNESS_TABLE) != FRESHNESS_TABLE


def alter_target(warehouse: Warehouse, table: str) -> str:
    """Return what `ALTER TABLE` must name to change the rows of a table in all shards, if it has any."""
    for row in warehouse.query(
        "SELECT engine_full FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String} AND engine = 'Distributed'",
        {"table": table},
    ):
        if engine := _ENGINE.match(str(row["engine_full"])):
            return f"{engine[2]}.{engine[3]} ON CLUSTER '{engine[1]}'"
    return table


def _subject_key(definition: MetricDefinition) -> str:
    """Return the hash of what a series is about. A queue has the same shard as its groups."""
    names = [
        f"`{dimension.name}`"
        for dimension in definition.dimensions
        if dimension.high_cardinality or not dimension.optional
    ]
    return f"cityHash64({', '.join(names)})"
