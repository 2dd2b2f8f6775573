"""Ack, nack, heartbeat and release tasks that workers hold, many per call."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

from msgspec import msgpack

from penstock.batching import Batcher, QueueTimeout, split_results
from penstock.errors import LeaseLost, PenstockError, UnknownTask
from penstock.model import Scope
from penstock.runqueue.keys import environment_name, shard_of_task
from penstock.runqueue.limits import MAX_DELAY_MS, MAX_ERROR_LENGTH, check_item_count, check_number
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import Lease, Nack, TaskChange, TaskOutcome, TaskState

UNKNOWN, LOST, NOW_DEAD, NOW_ELIGIBLE = 0, -1, 2, 3
"""Replies of the scripts. Larger numbers are times."""

BACKOFF = -1
ScriptItem = tuple[str | float, ...]
"""Environment, task id and token, then the arguments of the command."""


class TaskAcks:
    """Each method returns one outcome per lease, in order. A refused lease does not affect the others."""

    def __init__(self, scripts: Scripts, queue_timeout: QueueTimeout | None = None) -> None:
        self._scripts = scripts
        self._queue_timeout = queue_timeout
        self.batchers = {command: self._create_batcher(command) for command in ("heartbeat", "ack", "nack")}

    async def heartbeat(self, scope: Scope, leases: Sequence[Lease], visibility_ms: int) -> list[TaskOutcome]:
        items = [(lease, (visibility_ms,)) for lease in leases]
        return await self._submit(
            "heartbeat",
            scope,
            items,
            lambda lease, deadline_ms: TaskChange(lease.id, TaskState.RUNNING, deadline_ms),
        )

    async def ack(self, scope: Scope, leases: Sequence[Lease]) -> list[TaskOutcome]:
        items: list[tuple[Lease, ScriptItem]] = [(lease, ()) for lease in leases]
        return await self._submit("ack", scope, items, lambda lease, _: TaskChange(lease.id, None))

    async def nack(self, scope: Scope, nacks: Sequence[Nack]) -> list[TaskOutcome]:
        items = [(nack.lease, _nack_arguments(nack)) for nack in nacks]
        return await self._submit("nack", scope, items, _nack_change)

    async def release(self, scope: Scope, leases: Sequence[Lease]) -> list[TaskOutcome]:
        items = [(lease, ("release", 0, 0, "")) for lease in leases]
        return await self._submit("nack", scope, items, _nack_change)

    async def _submit(
        self,
        command: str,
        scope: Scope,
        items: Sequence[tuple[Lease, ScriptItem]],
        to_change: Callable[[Lease, int], TaskChange],
    ) -> list[TaskOutcome]:
        check_item_count("tasks", items)
        environment = environment_name(scope)
        outcomes: list[TaskOutcome | None] = [None] * len(items)
        indexes_by_shard: dict[int, list[int]] = {}
        for index, (lease, _) in enumerate(items):
            try:
                indexes_by_shard.setdefault(shard_of_task(lease.id), []).append(index)
            except UnknownTask as unknown:
                outcomes[index] = unknown
        for shard, indexes in indexes_by_shard.items():
            script_items = [
                (environment, items[index][0].id, items[index][0].token, *items[index][1])
                for index in indexes
            ]
            replies = await self.batchers[command].submit(shard, script_items, items=len(script_items))
            for index, reply in zip(indexes, replies, strict=True):
                lease = items[index][0]
                outcomes[index] = _lease_error(lease, reply) or to_change(lease, reply)
        return [outcome for outcome in outcomes if outcome is not None]

    def _create_batcher(self, command: str) -> Batcher[list[ScriptItem], list[int]]:
        async def execute(shard: Hashable, requests: Sequence[list[ScriptItem]]) -> list[list[int]]:
            assert isinstance(shard, int)
            items = [item for request in requests for item in request]
            return split_results(requests, await self._scripts.call(command, shard, msgpack.encode(items)))

        return Batcher(execute, queue_timeout=self._queue_timeout, isolates_failures=False)


def raise_error(outcome: TaskOutcome) -> TaskChange:
    """Return the change, or raise the error that the outcome is."""
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def _lease_error(lease: Lease, reply: int) -> PenstockError | None:
    if reply == UNKNOWN:
        return UnknownTask(
            f"Task {lease.id} does not exist in this environment: it is acked, has expired or never existed.",
            taskId=lease.id,
        )
    if reply == LOST:
        return LeaseLost(
            f"The lease of task {lease.id} is lost: the visibility timeout passed, or the task was acked or "
            "nacked before. Drop the work: another worker has the task or will get it.",
            taskId=lease.id,
        )
    return None


def _nack_change(lease: Lease, reply: int) -> TaskChange:
    if reply == NOW_DEAD:
        return TaskChange(lease.id, TaskState.DEAD)
    if reply == NOW_ELIGIBLE:
        return TaskChange(lease.id, TaskState.ELIGIBLE)
    return TaskChange(lease.id, TaskState.DELAYED, reply)


def _nack_arguments(nack: Nack) -> ScriptItem:
    delay_ms = BACKOFF
    if nack.delay_ms is not None:
        delay_ms = check_number("delay_ms", nack.delay_ms, 0, MAX_DELAY_MS)
    error = nack.error[:MAX_ERROR_LENGTH].encode("utf-8", "replace").decode()
    return ("retry" if nack.retry else "declare_dead", delay_ms, random.random(), error)
