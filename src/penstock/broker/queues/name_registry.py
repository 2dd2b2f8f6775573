"""Keep queue names unique: within an environment a name is a durable queue or a run queue, never both.

The two kinds live in different servers but share series, charts and alerts, which identify a queue by its
name. The check runs when a queue is created. It asks the other server, caches the result for a while, and
allows the name if the other server does not answer: messages never wait for Redis, and tasks never wait for
PostgreSQL. So two queues created at the same time, or while the other server is down, may get the same name.
They lose nothing but the separation of their charts.
"""

from __future__ import annotations

import asyncio
import time

from penstock.durable.catalog import QueueCatalog
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable, RedisUnavailable, WrongState
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues

CACHE_S = 60.0
"""How long a result is cached."""

LOOKUP_TIMEOUT_S = 0.5
RETRY_LOOKUP_AFTER_S = 5.0
"""How long lookups are skipped after one failed or timed out."""

MAX_ENTRIES = 50_000
"""Names per cache. A full cache is cleared, so that it cannot grow without bound."""

RUN_QUEUE_ERROR = "This name belongs to a run queue. Use another name, or POST tasks to /api/v1/run-queues."


class QueueNameRegistry:
    """Check the name of a new queue against the queues of the other kind."""

    def __init__(self, database: Database, run_queues: RunQueues) -> None:
        self._catalog = QueueCatalog(database)
        self._run_queues = run_queues
        self._is_run_queue: dict[tuple[Scope, str], tuple[bool, float]] = {}
        """Whether a name belongs to a run queue, and until when that is cached."""
        self._not_durable_until: dict[tuple[Scope, str], float] = {}
        self._skip_redis_until = 0.0
        self._skip_postgres_until = 0.0

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        """Return True if a durable queue must not be created with this name."""
        now = time.monotonic()
        cached = self._is_run_queue.get((scope, queue))
        if cached is not None and now < cached[1]:
            return cached[0]
        if now < self._skip_redis_until:
            return False
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                is_run_queue = await self._run_queues.has_queue(scope, queue)
        except (RedisUnavailable, TimeoutError):
            self._skip_redis_until = time.monotonic() + RETRY_LOOKUP_AFTER_S
            return False
        if is_run_queue and await self._is_durable_queue(scope, queue):
            is_run_queue = False  # the durable queue already exists, so none is created
        if len(self._is_run_queue) >= MAX_ENTRIES:
            self._is_run_queue.clear()
        self._is_run_queue[scope, queue] = (is_run_queue, now + CACHE_S)
        return is_run_queue

    def invalidate_run_queue(self, scope: Scope, queue: str) -> None:
        """Drop the entry of a deleted run queue. Other brokers notice when their own entry expires."""
        self._is_run_queue.pop((scope, queue), None)

    async def ensure_not_run_queue(self, scope: Scope, queue: str) -> None:
        """Raise WrongState if the name belongs to a run queue.

        That it does not is not cached: the caller creates no queue, so a run queue may take the name next.
        """
        if await self.is_run_queue(scope, queue):
            raise WrongState(RUN_QUEUE_ERROR, queue=queue)
        self.invalidate_run_queue(scope, queue)

    def is_known_not_durable(self, scope: Scope, queue: str) -> bool:
        """Return True if the cache says that the name belongs to no durable queue."""
        return time.monotonic() < self._not_durable_until.get((scope, queue), 0.0)

    async def ensure_not_durable_queue(self, scope: Scope, queue: str) -> None:
        """Raise WrongState if the name belongs to a durable queue."""
        if self.is_known_not_durable(scope, queue):
            return
        if await self._is_durable_queue(scope, queue):
            raise WrongState(
                f"{queue!r} is a durable queue. Push messages to it at /api/v1/push, or use another name.",
                queue=queue,
            )
        if len(self._not_durable_until) >= MAX_ENTRIES:
            self._not_durable_until.clear()
        self._not_durable_until[scope, queue] = time.monotonic() + CACHE_S

    async def _is_durable_queue(self, scope: Scope, queue: str) -> bool:
        if time.monotonic() < self._skip_postgres_until:
            return False
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await self._catalog.has_queue(scope, queue)
        except (DatabaseUnavailable, TimeoutError):
            self._skip_postgres_until = time.monotonic() + RETRY_LOOKUP_AFTER_S
            return False
