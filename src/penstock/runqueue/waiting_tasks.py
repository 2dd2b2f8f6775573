"""Iterate over the tasks of a queue by state, and delete waiting tasks or declare them dead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from msgspec import msgpack

from penstock.errors import UnknownQueue
from penstock.model import Scope
from penstock.runqueue.keys import queue_name
from penstock.runqueue.overview import unknown_queue
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.shard_map import ShardMap
from penstock.runqueue.task_model import Task, TaskState
from penstock.runqueue.task_records import decode_task

START = "0"
"""The cursor of a new iteration."""

WaitingTaskAction = Literal["delete", "declare_dead"]


class TaskScan(NamedTuple):
    """Some tasks of an iteration. `next` is the cursor of the next call; None at the end."""

    tasks: list[Task]
    next: str | None


class WaitingTaskChanges(NamedTuple):
    """How many tasks a call changed, and how many it skipped because they run."""

    changed: int
    running: int


class WaitingTasks:
    """Reads and changes tasks that wait for a worker or for their delay."""

    def __init__(self, scripts: Scripts, shards: ShardMap) -> None:
        self._scripts = scripts
        self._shards = shards

    async def scan(self, scope: Scope, queue: str, state: TaskState, cursor: str, count: int) -> TaskScan:
        """Return some tasks in a state, in no order. Raises UnknownQueue.

        A task that keeps its state during the iteration is returned at least once.
        """
        next_cursor, *page = await self._call("scan_tasks", scope, queue, state.value, cursor, count)
        tasks = [decode_task(page[i].decode(), page[i + 1], page[i + 2]) for i in range(0, len(page), 3)]
        text: str = next_cursor.decode() if isinstance(next_cursor, bytes) else str(next_cursor)
        return TaskScan(tasks, None if text == START else text)

    async def change(
        self, scope: Scope, queue: str, task_ids: Sequence[str], action: WaitingTaskAction, error: str = ""
    ) -> WaitingTaskChanges:
        """Delete tasks or declare them dead, unless they run. Raises UnknownQueue."""
        ids = msgpack.encode(list(task_ids))
        results: list[int] = await self._call("change_waiting", scope, queue, ids, action, error)
        return WaitingTaskChanges(results.count(1), results.count(-1))

    async def _call(self, command: str, scope: Scope, queue: str, *arguments: str | bytes | int) -> list[Any]:
        shard = await self._shards.shard_of(scope)
        try:
            reply: list[Any] = await self._scripts.call(command, shard, queue_name(scope, queue), *arguments)
        except UnknownQueue:
            raise unknown_queue(queue) from None
        return reply
