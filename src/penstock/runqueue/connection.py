"""One Redis for run queues, and into how many shards it was divided."""

from __future__ import annotations

import asyncio
import logging

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from penstock.model import Scope
from penstock.runqueue.keys import SHARDS_KEY, shard_of_environment
from penstock.runqueue.script_errors import translated

logger = logging.getLogger(__name__)


MOST_CONNECTIONS = 50
"""Of one process. Who finds all of them busy waits for one."""


def connect(url: str) -> Redis:
    """A client that never repeats a command on its own: the first may have been carried out."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=MOST_CONNECTIONS,
        timeout=10,
        protocol=2,
        socket_timeout=10,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


async def warn_of_forgetting(client: Redis) -> None:
    """Say what this Redis may lose that run queues promise to keep. Where one may not ask, it is silent."""
    try:
        found = await client.config_get("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")
    except ResponseError as error:
        logger.info("cannot see how durable Redis is: %s", error)
        return
    settings = {_text(name): _text(value) for name, value in found.items()}
    if settings.get("appendonly") == "no":
        logger.warning(
            "Redis writes no log (appendonly no): when it restarts, tasks of run queues are lost; "
            "set appendonly yes and appendfsync always"
        )
    elif settings.get("appendfsync") != "always":
        logger.info(
            "Redis does not sync its log before it answers: a power failure may lose seconds of tasks"
        )
    if settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy") != "noeviction":
        logger.warning(
            "Redis may drop tasks of run queues when it is full (maxmemory-policy %s); set noeviction",
            settings["maxmemory-policy"],
        )


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


class Shards:
    """How environments are spread. The first process to ask fixes the number; tasks stay where they are, so
    a process with another setting keeps to that number and says so."""

    def __init__(self, client: Redis, wanted: int) -> None:
        self._client = client
        self._wanted = wanted
        self._number: int | None = None
        self._asking = asyncio.Lock()

    async def number(self) -> int:
        if self._number is None:
            async with self._asking:  # the first requests of a process come in crowds
                if self._number is None:
                    self._number = await self._ask()
        return self._number

    async def _ask(self) -> int:
        with translated():
            found = await self._client.set(SHARDS_KEY, self._wanted, nx=True, get=True)
        number = self._wanted if found is None else int(found)
        if number != self._wanted:
            logger.error(
                "run_queue_shards is %d, but the run queues in this Redis have %d shards, which stay: "
                "to change it, let them run empty, stop the brokers and delete the key %s",
                self._wanted,
                number,
                SHARDS_KEY,
            )
        return number

    async def of(self, scope: Scope) -> int:
        return shard_of_environment(scope, await self.number())
