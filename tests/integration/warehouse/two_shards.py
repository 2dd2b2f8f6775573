"""A cluster with two shards in the embedded engine, which has no network: each shard is a database.

The engine takes both shards of its cluster for itself, so it runs their parts of a query without a network,
but as parts: it divides inserts by the sharding key and merges aggregation states. `shardNum()` selects the
rows of a shard when a part reads. It is unknown when a part inserts, so there views divide the rows again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from clickhouse_connect.driver.client import Client

from penstock.definitions import QUEUE
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.supervision.process import Command
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.distributed_tables import (
    ANY_SHARD,
    distributed_statements,
    shard_database,
    sharding_keys,
)
from penstock.warehouse.schema import landing_table
from penstock.warehouse.schema_migrations import Migration, render_schema

if TYPE_CHECKING:
    import pyarrow as pa

CLUSTER = "two_shards"
CLUSTER_WITHOUT_SECOND = "without_second"
"""The same cluster while its second shard does not answer."""
ON_CLUSTER = re.compile(r" ON CLUSTER '\w+'")
SHARDS = ("shard_1", "shard_2")
DATABASE = "charts"
WRITES = "charts_written"
"""Distributed tables that lead to the views. A table of one shard cannot both divide and be read."""

_SHARD = """<shard><internal_replication>true</internal_replication>
  <replica><host>127.0.0.1</host><port>9000</port></replica></shard>"""
_ABSENT_SHARD = _SHARD.replace("9000", "1")
_CONFIG = f"""<clickhouse><tcp_port>9000</tcp_port><remote_servers>
  <{CLUSTER}>{_SHARD}{_SHARD}</{CLUSTER}>
  <{CLUSTER_WITHOUT_SECOND}>{_SHARD}{_ABSENT_SHARD}</{CLUSTER_WITHOUT_SECOND}>
</remote_servers></clickhouse>"""


class TwoShardClickHouse(ClickHouse):
    """The embedded ClickHouse with the cluster. Nothing listens on the port that the cluster names."""

    def command(self) -> Command:
        command = super().command()
        config = self.data_directory / "cluster.xml"
        config.write_text(_CONFIG)
        path = str(self.data_directory)
        arguments = (
            f"{path}/data?config-file={config}" if argument == path else argument for argument in command.argv
        )
        return replace(command, argv=tuple(arguments))


class TwoShardWarehouse(Warehouse):
    """Reads the distributed tables, inserts through their writable twins, and knows no `ON CLUSTER`."""

    def insert_once(self, table: str, rows: pa.Table, token: str) -> None:
        super().insert_once(f"{WRITES}.{table}", rows, token)

    def command(self, sql: str, settings: Mapping[str, int | str] | None = None) -> None:
        if ON_CLUSTER.search(sql):
            for shard in SHARDS:
                statement = ON_CLUSTER.sub("", sql).replace(shard_database(DATABASE), shard)
                super().command(statement, settings)
        else:
            super().command(re.sub(r"^INSERT INTO (\w+) ", rf"INSERT INTO {WRITES}.\1 ", sql), settings)

    def _connect(self) -> Client:
        client = super()._connect()
        filters = ", ".join(
            f"'{shard_database(DATABASE)}.{table}': '_database = concat(\\'shard_\\', toString(shardNum()))'"
            for table in sharding_keys()
        )
        client.set_client_setting("additional_table_filters", f"{{{filters}}}")
        return client


def create_two_shards(server: Warehouse, connect_to: dict[str, Warehouse]) -> None:
    """Create the schema in the database of each shard, and the distributed tables over both."""
    schema = Migration(1, "everything", render_schema()).statements
    for shard in SHARDS:
        server.command(f"CREATE DATABASE {shard}")
        for statement in schema:
            connect_to[shard].command(statement)
    read, written = shard_database(DATABASE), shard_database(WRITES)
    for database in (DATABASE, read, WRITES, written):
        server.command(f"CREATE DATABASE {database}")
    keys = {table: key for table, key in sharding_keys().items() if table != "schema_migrations"}
    for table, key in keys.items():
        server.command(
            f"CREATE TABLE {read}.{table} AS {SHARDS[0]}.{table} "
            f"ENGINE = Merge(REGEXP('^({'|'.join(SHARDS)})$'), '^{table}$')"
        )
        server.command(f"CREATE TABLE {written}.{table} AS {SHARDS[0]}.{table} ENGINE = Null")
        if table == "freshness":  # only views fill it
            continue
        slot = f"{'cityHash64(bucket)' if key == ANY_SHARD else key} % {len(SHARDS)}"
        for number, shard in enumerate(SHARDS):
            server.command(
                f"CREATE MATERIALIZED VIEW {written}.{table}_of_{shard} TO {shard}.{table} "
                f"AS SELECT * FROM {written}.{table} WHERE {slot} = {number}"
            )
    for database in (DATABASE, WRITES):
        for statement in distributed_statements(CLUSTER, database):
            if "schema_migrations" not in statement:
                server.command(ON_CLUSTER.sub("", statement))
    landing = landing_table(QUEUE)
    # Records which slots of the sharding key each part of an insert has.
    server.command(f"CREATE TABLE {written}.parts (slots Array(UInt64)) ENGINE = MergeTree ORDER BY tuple()")
    server.command(
        f"CREATE MATERIALIZED VIEW {written}.parts_view TO {written}.parts AS "
        f"SELECT groupUniqArray({keys[landing]} % {len(SHARDS)}) AS slots FROM {written}.{landing}"
    )


def connect_inserts_to(server: Warehouse, cluster: str) -> None:
    """Send further inserts of the queue metric to another cluster."""
    [statement] = [
        statement
        for statement in distributed_statements(cluster, WRITES)
        if f"{WRITES}.{landing_table(QUEUE)} " in statement
    ]
    server.command(ON_CLUSTER.sub("", statement))


def without_cluster(statement: str) -> str | None:
    """Return a statement of a cluster as one server executes it; None if it cannot."""
    if statement.startswith("SYSTEM SYNC REPLICA"):
        return None
    statement = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'\)", r"\1", ON_CLUSTER.sub("", statement))
    statement = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '[^']*', (\w+)\)", r"\1(\2)", statement)
    return re.sub(
        r"\breplicated_deduplication_window = (\d+), replicated_deduplication_window_seconds = \d+",
        r"non_replicated_deduplication_window = \1",
        statement,
    )
