"""Delete environments step by step, in the background of every broker process.

One process of the cluster works: the one that holds an advisory lock. It deletes the queues, the tasks of run
queues, the rows of PostgreSQL and the metrics in ClickHouse, in small steps that can be repeated. When it
dies, another process finds what is left and continues.

Metric events of the last operations are still on their way when the queues are gone. So metrics are deleted
after the pipeline has counted these events, or after a while if it does not run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from penstock.background import BackgroundTask
from penstock.clock import Clock, system_clock
from penstock.durable.access.environment_store import EnvironmentStore
from penstock.durable.cluster_lock import ENVIRONMENTS_KEY, ClusterLock
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeletionIntervals:
    """How long the deletion of an environment waits for others."""

    poll_s: float = 1.0
    """How often a process looks for environments to delete."""
    requests_s: float = 3.0
    """How long requests may still be served: until every broker has learnt of the deletion."""
    events_s: float = 6.0
    """How long brokers may emit metric events after the last operation."""
    pipeline_s: float = 300.0
    """How long to wait for a pipeline that does not count the last events."""


@dataclass(frozen=True, slots=True)
class EnvironmentContents:
    """Deletes what an environment holds. The first two return how much they deleted; 0: nothing is left."""

    delete_some_queues: Callable[[Scope], Awaitable[int]]
    delete_some_tasks: Callable[[Scope], Awaitable[int]]
    read_counted_until_s: Callable[[], Awaitable[float | None]]
    """Returns the time up to which the pipeline has counted all metric events; None if that is unknown."""
    delete_metrics: Callable[[Scope], Awaitable[None]]


class DeletionProgress(msgspec.Struct, rename="camel"):
    """What was deleted, and what happens now. `note` says what the deletion waits for."""

    step: str = "queues"
    queues: int = 0
    tasks: int = 0
    rows: int = 0
    note: str | None = None
    emptied_at_s: float | None = None
    """When no queue, task or row was left."""


class EnvironmentDeletion(BackgroundTask):
    """Deletes environments until `stop`. `has_work` says from memory whether there may be one to delete."""

    task_name = "environment deletion"

    def __init__(
        self,
        postgres_url: str,
        contents: EnvironmentContents,
        has_work: Callable[[], bool],
        intervals: DeletionIntervals | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._postgres_url = postgres_url
        self._contents = contents
        self._has_work = has_work
        self._intervals = intervals or DeletionIntervals()
        self._clock = clock

    async def run_round(self) -> None:
        """Advance the deletion of every environment, unless another process does so."""
        lock = await ClusterLock.acquire(self._postgres_url, ENVIRONMENTS_KEY)
        if lock is None:
            return
        try:
            store = EnvironmentStore(lock)
            for environment in await store.list_to_delete(self._intervals.requests_s):
                progress = msgspec.json.decode(environment.deletion_progress, type=DeletionProgress)
                await self._advance(store, environment.scope, progress)
        finally:
            await lock.close()

    async def _advance(self, store: EnvironmentStore, scope: Scope, progress: DeletionProgress) -> None:
        """Delete as much as possible now. An error is noted, and the next round continues."""
        try:
            await self._delete_objects(store, scope, progress)
            if await self._metrics_are_complete(progress):
                await self._delete_metrics(store, scope, progress)
                return
            progress.note = "waits until the pipeline has counted the last metric events"
        except PenstockError as error:
            if progress.note != error.detail:
                logger.warning("The deletion of environment %s waits: %s", "/".join(scope), error.detail)
            progress.note = error.detail
        await _record(store, scope, progress)

    async def _delete_objects(
        self, store: EnvironmentStore, scope: Scope, progress: DeletionProgress
    ) -> None:
        steps = {
            "queues": self._contents.delete_some_queues,
            "tasks": self._contents.delete_some_tasks,
            "rows": store.delete_some_rows,
        }
        for step, delete_some in steps.items():
            while deleted := await delete_some(scope):
                progress.step, progress.note, progress.emptied_at_s = step, None, None
                setattr(progress, step, getattr(progress, step) + deleted)
                await _record(store, scope, progress)
        progress.step = "metrics"
        if progress.emptied_at_s is None:
            progress.emptied_at_s = self._clock()
            await _record(store, scope, progress)

    async def _metrics_are_complete(self, progress: DeletionProgress) -> bool:
        """Whether no metric event of the environment is on its way any more."""
        assert progress.emptied_at_s is not None
        last_event_s = progress.emptied_at_s + self._intervals.events_s
        counted_until_s = await self._contents.read_counted_until_s()
        if counted_until_s is not None and counted_until_s >= last_event_s:
            return True
        return self._clock() >= last_event_s + self._intervals.pipeline_s

    async def _delete_metrics(
        self, store: EnvironmentStore, scope: Scope, progress: DeletionProgress
    ) -> None:
        await self._contents.delete_metrics(scope)
        if await store.finish_deletion(scope):
            logger.info(
                "Environment %s is deleted: %d queues, %d tasks, %d rows",
                *("/".join(scope), progress.queues, progress.tasks, progress.rows),
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._intervals.poll_s)
            if not self._has_work():
                continue
            try:
                await self.run_round()
            except PenstockError as error:
                logger.warning("Environments are deleted later: %s", error.detail)
            except Exception:
                # The next round may succeed.
                logger.exception("An environment could not be deleted")


async def _record(store: EnvironmentStore, scope: Scope, progress: DeletionProgress) -> None:
    await store.record_progress(scope, msgspec.json.encode(progress).decode())
