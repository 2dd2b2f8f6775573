"""The schema on a ClickHouse cluster: the same statements, on every node, with replicated tables.

One shard with as many replicas as you like. Rows reach all replicas whichever one takes an insert, and so do
the tokens that keep a repeated insert from counting twice: Keeper holds them. The landing table stores
nothing and is on every node. The servers' macros `{shard}` and `{replica}` name the node.
"""

from __future__ import annotations

import re

PATH = "/clickhouse/tables/{shard}/{database}"

TOKENS_KEPT_S = 7 * 86_400
"""Keeper forgets tokens by age too; a pipeline may be away for days before it repeats its last batch."""

_OPENINGS = re.compile(
    r"^(CREATE TABLE IF NOT EXISTS|CREATE MATERIALIZED VIEW IF NOT EXISTS|CREATE DATABASE IF NOT EXISTS"
    r"|ALTER TABLE|DROP TABLE IF EXISTS) (\w+)"
)
_EXCHANGE = re.compile(r"^EXCHANGE TABLES \w+ AND \w+")
_ENGINE = re.compile(r"\bENGINE = (\w*MergeTree)\b")
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")


def for_cluster(statement: str, cluster: str) -> str:
    """The statement for all nodes of a cluster; raises ValueError for one of a kind it does not know."""
    named = f"ON CLUSTER '{cluster}'"
    if _EXCHANGE.match(statement):
        return f"{statement} {named}"
    opening = _OPENINGS.match(statement)
    if opening is None:
        raise ValueError(f"not known how to do this on a cluster: {statement[:80]}")
    table = opening[2]
    changed = _OPENINGS.sub(rf"\1 \2 {named}", statement)
    changed = _ENGINE.sub(
        lambda found: f"ENGINE = Replicated{found[1]}('{PATH}/{table}', '{{replica}}')", changed
    )
    return _WINDOW.sub(
        rf"replicated_deduplication_window = \1, replicated_deduplication_window_seconds = {TOKENS_KEPT_S}",
        changed,
    )
