"""Everything that an environment has in PostgreSQL, Redis, ClickHouse and the memory of a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import msgpack
from redis.asyncio import Redis

from penstock.api.services import Services
from penstock.definitions import QUEUE
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.runqueue.keys import environment_name
from penstock.streams.emitted_totals import TOTALS_KEY
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_tables
from tests.integration.api.calls import write_minutes
from tests.waiting import wait_until_async

Dump = dict[str, Any]

IGNORED_TABLES = ("worker_metrics", "dead_tallies", "dead_counts", "dead_error_counts", "dead_hours")
"""Rows of no environment, and counts of dead letters, which maintenance moves from table to table."""
CHANGING_COLUMNS = ("last_used_at",)
"""Columns that the broker writes in the background."""
OWNERS = {
    "environment_id": "SELECT environment_id_v1($1, $2, $3) AS id",
    "queue_id": "SELECT id FROM queues WHERE environment_id = environment_id_v1($1, $2, $3)",
    "partition_id": "SELECT t.id FROM partitions t JOIN queues q ON q.id = t.queue_id "
    "WHERE q.environment_id = environment_id_v1($1, $2, $3)",
    "group_id": "SELECT g.id FROM groups g JOIN queues q ON q.id = g.queue_id "
    "WHERE q.environment_id = environment_id_v1($1, $2, $3)",
    "rule_id": "SELECT id FROM alert_rules WHERE environment_id = environment_id_v1($1, $2, $3)",
    "incident_id": "SELECT id FROM alert_incidents WHERE environment_id = environment_id_v1($1, $2, $3)",
    "token_id": "SELECT id FROM access_tokens WHERE environment_id = environment_id_v1($1, $2, $3)",
}
"""Columns that say which environment a row belongs to, and their values for one."""


async def dump_environment(
    services: Services, database: Database, redis: Redis, warehouse: Warehouse, scope: Scope
) -> Dump:
    """Return all that belongs to an environment, after the broker has emitted what it counted."""
    services.queue_metrics.environments_due_s = 0.0
    await services.queue_metrics.flush()
    await write_minutes(services.worker_metrics)

    async def all_are_emitted() -> bool:
        return services.emitter.pending == 0

    await wait_until_async(all_are_emitted, 20, "all metric events are in Redis")
    return {
        "postgres": await _dump_postgres(database, scope),
        "redis": await _dump_redis(redis, scope, await _queue_ids(database, scope)),
        "clickhouse": _dump_clickhouse(warehouse, scope),
        "memory": _dump_memory(services, scope),
    }


async def _dump_postgres(database: Database, scope: Scope) -> Dump:
    owned = {
        column: {str(row["id"]) for row in await database.fetch(query, *scope)}
        for column, query in OWNERS.items()
    }
    tables = await database.fetch(
        "SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = 'penstock' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    dump: Dump = {}
    for table in tables:
        name = table["name"]
        if name not in IGNORED_TABLES:
            rows = await database.fetch(f"SELECT to_jsonb(t) AS row FROM {name} t")
            records = [json.loads(row["row"]) for row in rows]
            dump[name] = sorted(
                json.dumps({c: v for c, v in record.items() if c not in CHANGING_COLUMNS}, sort_keys=True)
                for record in records
                if _is_owned(record, owned, scope)
            )
    return dump


def _is_owned(record: Mapping[str, Any], owned: Mapping[str, set[str]], scope: Scope) -> bool:
    if any(str(record[column]) in ids for column, ids in owned.items() if column in record):
        return True
    environment = record.get("environment", record.get("name"))
    return (record.get("organization"), record.get("project"), environment) == scope


async def _queue_ids(database: Database, scope: Scope) -> set[bytes]:
    return {str(row["id"]).encode() for row in await database.fetch(OWNERS["queue_id"], *scope)}


async def _dump_redis(redis: Redis, scope: Scope, queue_ids: set[bytes]) -> Dump:
    """The keys that name the environment, its tasks, and its metric events."""
    name, dump = environment_name(scope).encode(), Dump()
    async for key in redis.scan_iter("penstock:*", count=1000):
        match await redis.type(key):
            case b"hash":
                values: Any = sorted((await redis.hgetall(key)).items())
            case b"set":
                values = sorted(await redis.smembers(key))
            case b"zset":
                values = await redis.zrange(key, 0, -1, withscores=True)
            case b"stream":
                entries = await redis.xrange(key) or []
                values = [entry for entry in entries if f"b'{scope.environment}'" in str(entry)]
            case _:
                values = await redis.get(key)
        if key == TOTALS_KEY.encode():
            values = [value for value in values if value[0].split(b":")[0] in queue_ids]
        elif name not in key and b":metrics:queue:" not in key[:25]:
            values = [value for value in values or () if _names(value, name)]
        dump[key.decode()] = values
    return {key: values for key, values in dump.items() if values}


def _names(value: object, name: bytes) -> bool:
    members = value if isinstance(value, tuple) else (value,)
    return name in members or name + b"/" in msgpack.encode(value)


def _dump_clickhouse(warehouse: Warehouse, scope: Scope) -> Dump:
    parameters = scope._asdict()
    condition = " AND ".join(f"{name} = {{{name}:String}}" for name in parameters)
    return {
        table.name: warehouse.query(
            f"SELECT queue, bucket, sum(enqueued) AS enqueued FROM {table.name} WHERE {condition} "
            "GROUP BY ALL ORDER BY ALL"
            if table.rollup is None
            else f"SELECT bucket, sum(enqueued) AS enqueued FROM {table.name} WHERE {condition} "
            "GROUP BY ALL ORDER BY ALL",
            parameters,
        )
        for table in tier_tables(QUEUE)
    }


def _dump_memory(services: Services, scope: Scope) -> Dump:
    return {
        "counters": {
            key: (dict(totals.counts), totals.waits)
            for key, totals in services.worker_metrics.queues.totals.items()
            if key[0] == scope
        },
        "parked pops": services.broker.parked_pops.count,
    }
