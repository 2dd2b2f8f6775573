"""Connect to the Redis of run queues, and map environments to its shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from penstock.model import Scope
from penstock.redis_address import parse_redis_url
from penstock.redis_clients import connect_redis_async, read_configs_async
from penstock.runqueue.keys import SHARDS_KEY, shard_of_environment
from penstock.runqueue.script_errors import translate_redis_errors

logger = logging.getLogger(__name__)


MAX_CONNECTIONS = 50
"""Per process. A call that finds all of them busy waits for one."""


def connect(url: str) -> Redis:
    """Return a client that never repeats a command by itself: Redis may have executed the first one."""
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": 10,
        "socket_connect_timeout": 2,
        "retry": Retry(NoBackoff(), 0),
    }
    if parse_redis_url(url).nodes:
        return connect_redis_async(url, **options)
    pool = BlockingConnectionPool.from_url(url, max_connections=MAX_CONNECTIONS, timeout=10, **options)
    return Redis.from_pool(pool)


DURABILITY_SETTINGS = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")


async def warn_about_durability(client: Redis) -> None:
    """Log the settings under which this Redis may lose tasks. Without access to CONFIG, log only that."""
    try:
        configs = await read_configs_async(client, *DURABILITY_SETTINGS)
    except ResponseError as error:
        logger.info("Cannot read the durability settings of Redis: %s", error)
        return
    nodes = [{_text(name): _text(value) for name, value in config.items()} for config in configs]
    for warning in {risk: None for settings in nodes for risk in find_durability_risks(settings)}:
        logger.warning("%s", warning)
    if any(node.get("appendonly") != "no" and node.get("appendfsync") != "always" for node in nodes):
        logger.info("Redis replies before it syncs its log: a power failure may lose seconds of tasks.")


def find_durability_risks(settings: Mapping[str, str]) -> list[str]:
    """Return what may lose tasks with these settings of a Redis, and what to set instead."""
    risks: list[str] = []
    if settings.get("appendonly") == "no":
        risks.append(
            "Redis keeps no append-only file (appendonly no): a restart loses the tasks of run queues. "
            "Set appendonly yes and appendfsync always."
        )
    policy = settings.get("maxmemory-policy")
    if settings.get("maxmemory", "0") != "0" and policy != "noeviction":
        risks.append(
            f"Redis may evict tasks of run queues when its memory is full (maxmemory-policy {policy}). "
            "Set maxmemory-policy noeviction."
        )
    return risks


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


class ShardMap:
    """Maps environments to shards.

    The first process stores the number of shards in Redis. Tasks stay in their shards, so a process with
    another setting uses the stored number and logs an error.
    """

    def __init__(self, client: Redis, configured_count: int) -> None:
        self._client = client
        self._configured_count = configured_count
        self._count: int | None = None
        self._lock = asyncio.Lock()

    async def count(self) -> int:
        if self._count is None:
            async with self._lock:  # the first requests of a process arrive concurrently
                if self._count is None:
                    self._count = await self._read_or_store_count()
        return self._count

    @property
    def known_count(self) -> int | None:
        """The number of shards; None before the first `count`."""
        return self._count

    async def shard_of(self, scope: Scope) -> int:
        return shard_of_environment(scope, await self.count())

    async def _read_or_store_count(self) -> int:
        with translate_redis_errors():
            stored = await self._client.set(SHARDS_KEY, self._configured_count, nx=True, get=True)
        count = self._configured_count if stored is None else int(stored)
        if count != self._configured_count:
            logger.error(
                "run_queue_shards is %d, but the run queues in this Redis have %d shards; %d is used. "
                "To change it, let the run queues drain, stop the brokers and delete the key %s.",
                self._configured_count,
                count,
                count,
                SHARDS_KEY,
            )
        return count
