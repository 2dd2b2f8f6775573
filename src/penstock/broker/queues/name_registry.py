"""One space of names: within an environment a name is a durable queue's or a run queue's, never both.

The two keep their queues in different servers but share series, charts and alerts, which know a queue by its
name. The check is made where a queue comes into being. It asks the other server, remembers the answer for a
while, and lets pass what it cannot find out: messages never wait for Redis, nor tasks for PostgreSQL. So two
that are made at the same moment, or while the other server is away, may end up with one name; neither loses
anything but the separation of their charts.
"""

from __future__ import annotations

import asyncio
import time

from penstock.durable import catalog
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable, RedisUnavailable, WrongState
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues

KEPT_S = 60.0
"""How long an answer is believed."""

PATIENCE_S = 0.5
AWAY_S = 5.0
"""After no answer in time, nobody asks for this long."""

LIMIT = 50_000
"""Names remembered of each kind; past that, start over rather than grow."""

RUN_QUEUE = "the name belongs to a run queue: use another one, or enqueue tasks at /api/v1/run-queues"


class QueueNameRegistry:
    def __init__(self, database: Database, run_queues: RunQueues) -> None:
        self._database = database
        self._run_queues = run_queues
        self._of_tasks: dict[tuple[Scope, str], tuple[bool, float]] = {}
        self._free_of_messages: dict[tuple[Scope, str], float] = {}
        self._redis_away_until = 0.0
        self._postgres_away_until = 0.0

    async def is_run_queue(self, scope: Scope, queue: str) -> bool:
        """Whether a durable queue must not be made with this name."""
        now = time.monotonic()
        known = self._of_tasks.get((scope, queue))
        if known is not None and now < known[1]:
            return known[0]
        if now < self._redis_away_until:
            return False
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await self._run_queues.has_queue(scope, queue)
        except (RedisUnavailable, TimeoutError):
            self._redis_away_until = time.monotonic() + AWAY_S
            return False
        if found and await self._has_messages(scope, queue):
            found = False  # it is there already: nothing is to be made
        if len(self._of_tasks) >= LIMIT:
            self._of_tasks.clear()
        self._of_tasks[scope, queue] = (found, now + KEPT_S)
        return found

    def invalidate_run_queue(self, scope: Scope, queue: str) -> None:
        """The run queue of this name is no more. Other brokers find out when their answer is too old."""
        self._of_tasks.pop((scope, queue), None)

    async def check_for_messages(self, scope: Scope, queue: str) -> None:
        """Raises WrongState if a durable queue must not be made with this name."""
        if await self.is_run_queue(scope, queue):
            raise WrongState(RUN_QUEUE, queue=queue)

    async def check_for_tasks(self, scope: Scope, queue: str) -> None:
        """Raises WrongState if the name is a durable queue's."""
        now = time.monotonic()
        if now < self._free_of_messages.get((scope, queue), 0.0):
            return
        if await self._has_messages(scope, queue):
            raise WrongState(
                f"{queue!r} is a durable queue: push messages to it at /api/v1/push, or use another name",
                queue=queue,
            )
        if len(self._free_of_messages) >= LIMIT:
            self._free_of_messages.clear()
        self._free_of_messages[scope, queue] = now + KEPT_S

    async def _has_messages(self, scope: Scope, queue: str) -> bool:
        if time.monotonic() < self._postgres_away_until:
            return False
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await catalog.queue_exists(self._database, scope, queue)
        except (DatabaseUnavailable, TimeoutError):
            self._postgres_away_until = time.monotonic() + AWAY_S
            return False
