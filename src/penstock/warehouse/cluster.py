"""Rewrite the schema's statements for a ClickHouse cluster: ON CLUSTER, with replicated tables.

Keeper replicates rows to every replica of a shard, and also the deduplication tokens that keep a repeated
insert from counting twice, whichever replica takes the insert. The landing table stores nothing and exists on
every node. The servers' macros `{shard}` and `{replica}` name the node. `distributed_tables` adds what a
cluster with several shards needs.
"""

from __future__ import annotations

import re

REPLICA_PATH = "/clickhouse/tables/{shard}/{database}"

SHARED_REPLICA_PATH = "/clickhouse/tables/all_shards/{database}"
"""The path of a table that has the same rows on every node of all shards."""

TOKEN_RETENTION_S = 7 * 86_400
"""Keeper also expires tokens by age, and a pipeline may be down for days before it repeats its last batch."""

_DDL = re.compile(
    r"^(CREATE TABLE IF NOT EXISTS|CREATE MATERIALIZED VIEW IF NOT EXISTS|CREATE DATABASE IF NOT EXISTS"
    r"|ALTER TABLE|DROP TABLE IF EXISTS) (\w+)"
)
_EXCHANGE = re.compile(r"^EXCHANGE TABLES \w+ AND \w+")
_ENGINE = re.compile(r"\bENGINE = (\w*MergeTree)\b(?:\((\w+)\))?")
_DEDUPLICATION_WINDOW = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")


def rewrite_for_cluster(statement: str, cluster: str, *, shared: bool = False) -> str:
    """Return the statement for all nodes of a cluster; raise ValueError for an unsupported statement.

    A `shared` table has the same rows in all shards; other tables have rows of their own in each shard.
    """
    path, replica = (SHARED_REPLICA_PATH, "{shard}_{replica}") if shared else (REPLICA_PATH, "{replica}")
    on_cluster = f"ON CLUSTER '{cluster}'"
    if _EXCHANGE.match(statement):
        return f"{statement} {on_cluster}"
    ddl = _DDL.match(statement)
    if ddl is None:
        raise ValueError(f"cannot rewrite this statement for a cluster: {statement[:80]}")
    table = ddl[2]
    rewritten = _DDL.sub(rf"\1 \2 {on_cluster}", statement)
    rewritten = _ENGINE.sub(
        lambda engine: (
            f"ENGINE = Replicated{engine[1]}('{path}/{table}', '{replica}'"
            + (f", {engine[2]})" if engine[2] else ")")
        ),
        rewritten,
    )
    return _DEDUPLICATION_WINDOW.sub(
        r"replicated_deduplication_window = \1, "
        rf"replicated_deduplication_window_seconds = {TOKEN_RETENTION_S}",
        rewritten,
    )
