"""Ack, nack, heartbeat and release tasks that workers hold, many per call."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

from msgspec import msgpack

from penstock.batching import Batcher, QueueTimeout, Receiver, split_results
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

OutcomeReceiver = Receiver[list[TaskOutcome]]


class TaskAcks:
    """Each method gives `receiver` one outcome per lease, in order. A refused lease does not affect others.

    `sweep_within` learns when a nacked task is due again.
    """

    def __init__(
        self,
        scripts: Scripts,
        sweep_within: Callable[[int], None],
        queue_timeout: QueueTimeout | None = None,
    ) -> None:
        self._scripts = scripts
        self._sweep_within = sweep_within
        self._queue_timeout = queue_timeout
        self.batchers = {command: self._create_batcher(command) for command in ("heartbeat", "ack", "nack")}

    def start_heartbeat(
        self, scope: Scope, leases: Sequence[Lease], visibility_ms: int, receiver: OutcomeReceiver
    ) -> None:
        items = [(lease, (visibility_ms,)) for lease in leases]
        self._start("heartbeat", scope, items, _heartbeat_change, receiver)

    def start_ack(self, scope: Scope, leases: Sequence[Lease], receiver: OutcomeReceiver) -> None:
        items: list[tuple[Lease, ScriptItem]] = [(lease, ()) for lease in leases]
        self._start("ack", scope, items, _ack_change, receiver)

    def start_nack(self, scope: Scope, nacks: Sequence[Nack], receiver: OutcomeReceiver) -> None:
        items = [(nack.lease, _nack_arguments(nack)) for nack in nacks]
        self._start("nack", scope, items, _nack_change, receiver)

    def start_release(self, scope: Scope, leases: Sequence[Lease], receiver: OutcomeReceiver) -> None:
        items = [(lease, ("release", 0, 0, "")) for lease in leases]
        self._start("nack", scope, items, _nack_change, receiver)

    def _start(
        self,
        command: str,
        scope: Scope,
        items: Sequence[tuple[Lease, ScriptItem]],
        to_change: Callable[[Lease, int], TaskChange],
        receiver: OutcomeReceiver,
    ) -> None:
        check_item_count("tasks", items)
        _PendingChanges(
            self.batchers[command], environment_name(scope), items, to_change, receiver
        ).call_next_shard()

    def _create_batcher(self, command: str) -> Batcher[list[ScriptItem], list[int]]:
        async def execute(shard: Hashable, requests: Sequence[list[ScriptItem]]) -> list[list[int]]:
            assert isinstance(shard, int)
            items = [item for request in requests for item in request]
            replies = await self._scripts.call(command, shard, msgpack.encode(items))
            if command == "nack":
                self._sweep_for_retries(items)
            return split_results(requests, replies)

        return Batcher(execute, queue_timeout=self._queue_timeout, isolates_failures=False)

    def _sweep_for_retries(self, nacks: Sequence[ScriptItem]) -> None:
        delays_ms = [delay_ms for *_, delay_ms, _, _ in nacks if isinstance(delay_ms, int) and delay_ms > 0]
        if delays_ms:
            self._sweep_within(min(delays_ms))


class _PendingChanges:
    """A call for tasks of one or more shards. It receives the replies of one shard after the other."""

    __slots__ = (
        "_batcher",
        "_environment",
        "_indexes",
        "_items",
        "_outcomes",
        "_receiver",
        "_remaining_shards",
        "_to_change",
    )

    def __init__(
        self,
        batcher: Batcher[list[ScriptItem], list[int]],
        environment: str,
        items: Sequence[tuple[Lease, ScriptItem]],
        to_change: Callable[[Lease, int], TaskChange],
        receiver: OutcomeReceiver,
    ) -> None:
        self._batcher = batcher
        self._environment = environment
        self._items = items
        self._to_change = to_change
        self._receiver = receiver
        self._outcomes: list[TaskOutcome | None] = [None] * len(items)
        self._indexes: list[int]
        """Indexes of the items that the current shard has."""
        indexes_by_shard: dict[int, list[int]] = {}
        for index, (lease, _) in enumerate(items):
            try:
                indexes_by_shard.setdefault(shard_of_task(lease.id), []).append(index)
            except UnknownTask as unknown:
                self._outcomes[index] = unknown
        self._remaining_shards = list(indexes_by_shard.items())

    def call_next_shard(self) -> None:
        """Send the items of the next shard. After the last shard, the receiver gets the outcomes."""
        if not self._remaining_shards:
            self._receiver.set_result([outcome for outcome in self._outcomes if outcome is not None])
            return
        shard, self._indexes = self._remaining_shards.pop(0)
        script_items: list[ScriptItem] = []
        for index in self._indexes:
            lease, arguments = self._items[index]
            script_items.append((self._environment, lease.id, lease.token, *arguments))
        self._batcher.put(shard, script_items, self, items=len(script_items))

    def done(self) -> bool:
        return self._receiver.done()

    def set_result(self, replies: list[int], /) -> None:
        for index, reply in zip(self._indexes, replies, strict=True):
            lease = self._items[index][0]
            self._outcomes[index] = _lease_error(lease, reply) or self._to_change(lease, reply)
        self.call_next_shard()

    def set_exception(self, exception: Exception, /) -> None:
        self._receiver.set_exception(exception)


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


def _heartbeat_change(lease: Lease, deadline_ms: int) -> TaskChange:
    return TaskChange(lease.id, TaskState.RUNNING, deadline_ms)


def _ack_change(lease: Lease, reply: int) -> TaskChange:
    return TaskChange(lease.id, None)


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
