"""Connect to the Redis of run queues, and warn if its settings may lose tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from penstock.redis_address import parse_redis_url
from penstock.redis_clients import connect_redis_async, read_configs_async

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
