"""One Redis for run queues, and into how many shards it was divided."""

from __future__ import annotations

import logging

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from penstock.model import Scope
from penstock.runqueue.faults import translated
from penstock.runqueue.keys import SHARDS_KEY, shard_of_environment

logger = logging.getLogger(__name__)


def connect(url: str) -> Redis:
    """A client that never repeats a command on its own: the first may have been carried out."""
    return Redis.from_url(
        url, protocol=2, socket_timeout=10, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
    )


class Shards:
    """How environments are spread. The first process to ask fixes the number; tasks stay where they are, so
    a process with another setting keeps to that number and says so."""

    def __init__(self, client: Redis, wanted: int) -> None:
        self._client = client
        self._wanted = wanted
        self._number: int | None = None

    async def number(self) -> int:
        if self._number is None:
            with translated():
                found = await self._client.set(SHARDS_KEY, self._wanted, nx=True, get=True)
            self._number = self._wanted if found is None else int(found)
            if self._number != self._wanted:
                logger.error(
                    "run_queue_shards is %d, but the run queues in this Redis have %d shards, which stay: "
                    "to change it, let them run empty, stop the brokers and delete the key %s",
                    self._wanted,
                    self._number,
                    SHARDS_KEY,
                )
        return self._number

    async def of(self, scope: Scope) -> int:
        return shard_of_environment(scope, await self.number())
