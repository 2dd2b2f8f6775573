"""Read the errors of dead tasks as they come: each task once per process, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.durable.alerts.evaluation_store import DeadTaskError
from penstock.errors import UnknownQueue
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import QueueState, Task

PAGE_SIZE = 1_000
MAX_PAGES = 10
"""Pages per queue and evaluation. The next evaluation continues after them."""


@dataclass(slots=True)
class _QueueProgress:
    """How far the dead tasks of a queue were read."""

    dead_total: int = -1
    """Tasks that had died in the life of the queue when its last page was read; -1: there are more pages."""
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class DeadTaskReader:
    """Reads the dead tasks of an environment that were not read before.

    A queue without new dead tasks costs no call. Tasks are listed by time of death, so a page continues after
    the last task of the one before it.
    """

    _progress: dict[str, _QueueProgress] = field(default_factory=dict)

    async def read(
        self, run_queues: RunQueues, scope: Scope, queues: Sequence[QueueState]
    ) -> list[DeadTaskError]:
        """Return the errors of dead tasks since the last call; at the first call, of all dead tasks."""
        errors: list[DeadTaskError] = []
        for queue in queues:
            progress = self._progress.setdefault(queue.queue, _QueueProgress())
            if queue.dead and progress.dead_total != queue.totals["dead"]:
                tasks = await _read_pages(run_queues, scope, queue, progress)
                errors += [
                    DeadTaskError(task.queue, task.error, (task.dead_ms or 0) / 1000) for task in tasks
                ]
        return errors


async def _read_pages(
    run_queues: RunQueues, scope: Scope, queue: QueueState, progress: _QueueProgress
) -> list[Task]:
    tasks: list[Task] = []
    for _ in range(MAX_PAGES):
        try:
            page = await run_queues.list_dead_tasks(
                scope, queue.queue, limit=PAGE_SIZE, after=progress.cursor
            )
        except UnknownQueue:  # it was deleted meanwhile
            break
        tasks += page.tasks
        if page.tasks:
            progress.cursor = f"{page.tasks[-1].dead_ms}:{page.tasks[-1].id}"
        if page.next is None:
            progress.dead_total = queue.totals["dead"]
            break
    return tasks
