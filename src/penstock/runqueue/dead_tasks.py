"""Redrive or delete dead tasks, by id or all of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import msgpack

from penstock.errors import UnknownQueue, UnknownTask
from penstock.model import Scope
from penstock.runqueue.keys import queue_name
from penstock.runqueue.limits import check_item_count
from penstock.runqueue.overview import unknown_queue
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.shard_map import ShardMap
from penstock.runqueue.task_model import TaskChange, TaskOutcome, TaskState

TASKS_PER_CALL = 500
"""A larger call would block Redis for other clients."""

NO_TIME_LIMIT = "+inf"

DeadTaskCommand = Literal["redrive", "delete_dead"]


class DeadTaskActions:
    """Applies the commands `redrive` and `delete_dead`, in chunks."""

    def __init__(self, scripts: Scripts, shards: ShardMap) -> None:
        self._scripts = scripts
        self._shards = shards

    async def apply_to_ids(
        self, command: DeadTaskCommand, scope: Scope, queue: str, ids: Sequence[str]
    ) -> list[TaskOutcome]:
        """Return one outcome per id: UnknownTask if it is no dead task of the queue."""
        check_item_count("tasks", ids)
        state = TaskState.ELIGIBLE if command == "redrive" else None
        outcomes: list[TaskOutcome] = []
        for start in range(0, len(ids), TASKS_PER_CALL):
            chunk = ids[start : start + TASKS_PER_CALL]
            results = await self._call(command, scope, queue, chunk, NO_TIME_LIMIT)
            outcomes += [
                TaskChange(task_id, state) if was_dead else _not_dead(task_id, queue)
                for task_id, was_dead in zip(chunk, results, strict=True)
            ]
        return outcomes

    async def apply_to_all(self, command: DeadTaskCommand, scope: Scope, queue: str) -> int:
        """Return the number of tasks changed.

        Only tasks that are dead at the start are changed: a redriven task that dies again meanwhile stays
        dead.
        """
        until_ms = str(await self._scripts.now_ms(await self._shards.shard_of(scope)))
        changed = 0
        while True:
            results = await self._call(command, scope, queue, [], until_ms)
            changed += len(results)
            if len(results) < TASKS_PER_CALL:
                return changed

    async def _call(
        self, command: DeadTaskCommand, scope: Scope, queue: str, ids: Sequence[str], until_ms: str
    ) -> list[int]:
        shard = await self._shards.shard_of(scope)
        name = queue_name(scope, queue)
        try:
            results: list[int] = await self._scripts.call(
                command, shard, name, msgpack.encode(list(ids)), TASKS_PER_CALL, until_ms
            )
        except UnknownQueue:
            raise unknown_queue(queue) from None
        return results


def _not_dead(task_id: str, queue: str) -> UnknownTask:
    return UnknownTask(f"Run queue {queue!r} has no dead task {task_id}.", taskId=task_id)
