"""Sample what environments store, for those whose queues, partitions, messages or bytes are limited."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from penstock.access.quotas.environment_use import EnvironmentUse
from penstock.background import BackgroundTask
from penstock.durable.access.environment_use_reader import EnvironmentUseReader
from penstock.durable.pool import Session
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
MAX_SHARE_OF_TIME = 0.05
"""Largest share of the time that the queries may take, however many queues the environments have."""

CountTasks = Callable[[Scope], Awaitable[tuple[int, int]]]
"""Returns how many run queues and how many tasks an environment has."""


class UseSampler(BackgroundTask):
    """Samples the environments in `uses`, to which others add. With `notify` it does so at once."""

    task_name = "quota use"

    def __init__(
        self,
        session: Session,
        uses: Mapping[Scope, EnvironmentUse],
        count_tasks: CountTasks,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._reader = EnvironmentUseReader(session)
        self._uses = uses
        self._count_tasks = count_tasks
        self._interval_s = interval_s
        self._is_due = asyncio.Event()

    def notify(self) -> None:
        """Sample now: an environment is new."""
        self._is_due.set()

    async def sample_all(self) -> None:
        """Sample every environment. What cannot be read keeps its last numbers."""
        for scope, use in list(self._uses.items()):
            try:
                await self._sample(scope, use)
            except PenstockError as error:
                logger.debug("The use of %s was not sampled: %s", "/".join(scope), error.detail)

    async def _sample(self, scope: Scope, use: EnvironmentUse) -> None:
        added_messages, added_bytes = use.added_messages, use.added_bytes
        objects = await self._reader.count_objects(scope)
        size = await self._reader.estimate_bytes(scope) if use.has_byte_limit else 0
        try:
            run_queues, tasks = await self._count_tasks(scope)
        except PenstockError:  # Redis is away: go on with the last number of tasks
            run_queues, tasks = use.run_queues, use.tasks
        use.durable_queues, use.partitions = objects.queues, objects.partitions
        use.run_queues, use.tasks = run_queues, tasks
        use.messages, use.bytes = objects.messages + tasks, size
        # Part of what was added during the queries may be in the sample too; the next one corrects that.
        use.added_messages -= added_messages
        use.added_bytes -= added_bytes
        use.is_sampled = True

    async def _run(self) -> None:
        while True:
            started_s = time.monotonic()
            self._is_due.clear()
            try:
                await self.sample_all()
            except Exception:
                # Quotas must not stop being sampled because of one error.
                logger.exception("The use of quotas was not sampled")
            took_s = time.monotonic() - started_s
            pause_s = max(self._interval_s, took_s / MAX_SHARE_OF_TIME)
            try:
                async with asyncio.timeout(pause_s if self._uses else None):
                    await self._is_due.wait()
            except TimeoutError:
                continue
