"""Whose checkpoint is it: the names by which the servers are known again, whatever their address is today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redis import Redis

from penstock.definitions import MetricDefinition
from penstock.ids import new_id
from penstock.pipeline.checkpoint import check_identity, recorded_identity
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema_migrations import RECORD

STREAMS_KEY = "penstock:pipeline:streams"

METRIC, REDIS, CLICKHOUSE = "metric", "Redis", "ClickHouse database"


def check_servers(place: Path, definition: MetricDefinition, redis: Redis, warehouse: Warehouse) -> None:
    """Raise CheckpointUnusable if the checkpoint was made with another Redis or another ClickHouse database.

    Raises redis.RedisError or WarehouseUnavailable when one of them is away.
    """
    known = recorded_identity(place)
    check_identity(
        place,
        {
            METRIC: definition.name,
            REDIS: _name_of_redis(redis, known.get(REDIS)),
            CLICKHOUSE: _name_of_database(warehouse),
        },
    )


def _name_of_redis(redis: Redis, known: str | None) -> str:
    """A Redis that has no name, because it is new or came back empty, gets the one the checkpoint knows.

    So losing what Redis held does not stop the pipeline; the loss itself is noticed by the source.
    """
    redis.set(STREAMS_KEY, known or str(new_id()), nx=True)
    found: Any = redis.get(STREAMS_KEY)
    return str(found.decode() if isinstance(found, bytes) else found)


def _name_of_database(warehouse: Warehouse) -> str:
    """When its first table was made, to the millisecond: the same on every replica and after a restore."""
    [row] = warehouse.query(
        f"SELECT currentDatabase() AS name, toUnixTimestamp64Milli(min(applied_at)) AS made FROM {RECORD}"
    )
    return f"{row['name']} of {row['made']}"
