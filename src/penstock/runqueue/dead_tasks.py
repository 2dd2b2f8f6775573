"""Dead tasks: tried again, or deleted for good; some of them or all."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import msgpack

from penstock.errors import UnknownQueue, UnknownTask
from penstock.model import Scope
from penstock.runqueue.connection import Shards
from penstock.runqueue.keys import queue_name
from penstock.runqueue.limits import check_many
from penstock.runqueue.overview import unknown_queue
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import Outcome, Settled, TaskState

PER_CALL = 500
"""Few enough not to hold Redis up."""

FOREVER = "+inf"


class Dead:
    """`command` is `redrive` or `delete_dead`."""

    def __init__(self, scripts: Scripts, shards: Shards) -> None:
        self._scripts = scripts
        self._shards = shards

    async def some(self, command: str, scope: Scope, queue: str, ids: Sequence[str]) -> list[Outcome]:
        check_many("tasks", ids)
        state = TaskState.ELIGIBLE if command == "redrive" else None
        outcomes: list[Outcome] = []
        for start in range(0, len(ids), PER_CALL):
            chunk = ids[start : start + PER_CALL]
            answers = await self._call(command, scope, queue, chunk, FOREVER)
            outcomes += [
                Settled(task_id, state) if done else _not_dead(task_id, queue)
                for task_id, done in zip(chunk, answers, strict=True)
            ]
        return outcomes

    async def all(self, command: str, scope: Scope, queue: str) -> int:
        """Those that were dead when it began: a redriven task that dies again meanwhile is left alone."""
        until_ms = str(await self._scripts.now_ms())
        done = 0
        while True:
            answers = await self._call(command, scope, queue, [], until_ms)
            done += len(answers)
            if len(answers) < PER_CALL:
                return done

    async def _call(
        self, command: str, scope: Scope, queue: str, ids: Sequence[str], until_ms: str
    ) -> list[int]:
        shard = await self._shards.of(scope)
        name = queue_name(scope, queue)
        try:
            answers: list[int] = await self._scripts.call(
                command, shard, name, msgpack.encode(list(ids)), PER_CALL, until_ms
            )
        except UnknownQueue:
            raise unknown_queue(queue) from None
        return answers


def _not_dead(task_id: str, queue: str) -> UnknownTask:
    return UnknownTask(f"there is no dead task {task_id} in run queue {queue!r}", taskId=task_id)
