"""Run queues: the one class that the layers above use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownQueue
from penstock.model import Scope
from penstock.runqueue import overview
from penstock.runqueue.connection import Shards, connect
from penstock.runqueue.dead_tasks import Dead
from penstock.runqueue.enqueue_dequeue import MOST_BYTES, Handing, Request
from penstock.runqueue.keys import environment_name, queue_name
from penstock.runqueue.limits import check_burst, check_limit, check_number, check_visibility, check_worker
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.sweeper import Sweeper
from penstock.runqueue.task_ack import Settling, raised
from penstock.runqueue.task_model import (
    LONGEST_DELAY_MS,
    DeadLetters,
    Enqueued,
    EnvironmentState,
    Lease,
    Nack,
    NewTask,
    Outcome,
    QueueState,
    RunningTask,
    Settled,
    Swept,
    Task,
)
from penstock.runqueue.task_wakeups import Wakeups

MOST_DEQUEUED = 1_000


class RunQueues:
    """All run queues of a Redis; one object per process, used from its event loop.

    Concurrent calls of one kind travel together. Every method raises RedisUnavailable when Redis is away (it
    is not known then whether a change happened) and InvalidRequest for values out of range, with nothing
    changed. Queues come into being with their first task, limit or pause.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        shards: int = 2,
        metrics_enabled: bool = True,
        visibility_ms: int = 30_000,
        idempotency_hours: float = 24,
    ) -> None:
        self._visibility_ms = visibility_ms
        self._client = connect(redis_url)
        self._scripts = Scripts(self._client, QUEUE.max_stream_length if metrics_enabled else 0)
        self._shards = Shards(self._client, shards)
        self._settling = Settling(self._scripts)
        self._handing = Handing(self._scripts, int(idempotency_hours * 3_600_000), self._give_back_left)
        self._dead = Dead(self._scripts, self._shards)
        self._wakeups = Wakeups(redis_url, self._client)
        self._sweeper = Sweeper(self._client, self._scripts, self._shards, metrics_enabled=metrics_enabled)
        self._next_shard = count()

    async def start(self) -> None:
        """Listen for wake-ups and sweep in the background. Redis need not be there. May be called twice."""
        self._wakeups.start()
        self._sweeper.start()

    def let_go(self) -> None:
        """Dequeues that wait now return empty at once. May be called often."""
        self._wakeups.dismiss_all()

    @property
    def waiting(self) -> int:
        """How many dequeues are under way or wait here."""
        return self._wakeups.number

    async def stop(self) -> None:
        """End both; waiting dequeues return empty. May be called twice."""
        await self._wakeups.stop()
        await self._sweeper.stop()
        await self._handing.drain()
        await self._settling.drain()
        await self._client.aclose()

    async def enqueue(self, scope: Scope, queue: str, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Add tasks, in order, all or none. Durable when it returns, as far as Redis is."""
        shard = await self._shards.of(scope)
        enqueued = await self._handing.enqueue(shard, scope, queue, tasks)
        if delays := [task.delay_ms for task in tasks if task.delay_ms]:
            self._sweeper.due_in(min(delays))
        return enqueued

    async def dequeue(
        self,
        scope: Scope | None,
        queue: str | None = None,
        *,
        limit: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        worker: str = "",
    ) -> list[RunningTask]:
        """Up to `limit` tasks, of one queue or of the environment's queues in turn.

        Without a scope, of all environments in turn: for a fleet of workers that serves everybody.
        Fewer come when their payloads are large. With `wait_ms` it waits until there is one. When
        cancelled, what it had taken is given back.
        """
        check_number("limit", limit, 1, MOST_DEQUEUED)
        check_number("wait_ms", wait_ms, 0, LONGEST_DELAY_MS)
        visibility_ms = self._visible(visibility_ms)
        environment = "" if scope is None else environment_name(scope)
        if scope is None and queue is not None:
            raise InvalidRequest("a queue is asked for without its environment; name both")
        name = "" if scope is None or queue is None else queue_name(scope, queue)
        request = (environment, name, limit, visibility_ms, check_worker(worker))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        with self._wakeups.waiting(name or environment + "/") as waiter:
            while True:
                waiter.rest()
                tasks = await self._take(scope, request)
                if tasks or waiter.dismissed or not await waiter.wait(until_s - loop.time()):
                    break
        if tasks:
            self._sweeper.due_in(visibility_ms)
            if len(tasks) == limit or sum(len(task.payload) for task in tasks) > MOST_BYTES // 2:
                # There may be more.
                self._wakeups.told(queue_name(tasks[-1].scope, tasks[-1].queue))
        return tasks

    async def heartbeat(self, scope: Scope, lease: Lease, visibility_ms: int | None = None) -> Settled:
        """Hold the task for another `visibility_ms` from now. Raises LeaseLost or UnknownTask."""
        [outcome] = await self.heartbeat_many(scope, [lease], visibility_ms)
        return raised(outcome)

    async def ack(self, scope: Scope, lease: Lease) -> Settled:
        """The task is done, and gone. Raises LeaseLost or UnknownTask; nothing is changed then."""
        [outcome] = await self._settling.ack(scope, [lease])
        return raised(outcome)

    async def nack(self, scope: Scope, nack: Nack) -> Settled:
        """The attempt failed: retried later, or dead. Raises LeaseLost or UnknownTask."""
        [outcome] = await self.nack_many(scope, [nack])
        return raised(outcome)

    async def give_back(self, scope: Scope, leases: Sequence[Lease]) -> list[Outcome]:
        """Tasks nobody has begun to work on: eligible again at their old place, the attempt not counted."""
        return await self._settling.give_back(scope, leases)

    async def heartbeat_many(
        self, scope: Scope, leases: Sequence[Lease], visibility_ms: int | None = None
    ) -> list[Outcome]:
        return await self._settling.heartbeat(scope, leases, self._visible(visibility_ms))

    async def ack_many(self, scope: Scope, leases: Sequence[Lease]) -> list[Outcome]:
        return await self._settling.ack(scope, leases)

    async def nack_many(self, scope: Scope, nacks: Sequence[Nack]) -> list[Outcome]:
        outcomes = await self._settling.nack(scope, nacks)
        if delays := [nack.delay_ms for nack in nacks if nack.delay_ms]:
            self._sweeper.due_in(min(delays))
        return outcomes

    async def task(self, scope: Scope, task_id: str) -> Task:
        """Raises UnknownTask, also for a task that is done, expired or of another environment."""
        return await overview.get_task(self._client, scope, task_id)

    async def queues(self, scope: Scope) -> list[QueueState]:
        """The environment's run queues by name."""
        return await overview.list_queues(self._client, self._scripts, await self._shards.of(scope), scope)

    async def queue(self, scope: Scope, queue: str) -> QueueState:
        """Raises UnknownQueue."""
        return await overview.get_queue(self._scripts, await self._shards.of(scope), scope, queue)

    async def has_queue(self, scope: Scope, queue: str) -> bool:
        return await overview.has_queue(self._client, await self._shards.of(scope), scope, queue)

    async def environment(self, scope: Scope) -> EnvironmentState:
        return (await overview.look(self._scripts, await self._shards.of(scope), scope, []))[0]

    async def set_queue_limit(self, scope: Scope, queue: str, limit: int | None) -> QueueState:
        """How many of its tasks may run at once; None: no limit; 0: none starts."""
        return await self._set_queue(scope, queue, "limit", str(check_limit(limit) or ""))

    async def set_environment_limit(
        self, scope: Scope, limit: int | None, burst: float = 1.0
    ) -> EnvironmentState:
        given = (environment_name(scope), str(check_limit(limit) or ""), str(check_burst(burst)))
        await self._scripts.call("set_environment", await self._shards.of(scope), *given)
        return await self.environment(scope)

    async def pause(self, scope: Scope, queue: str) -> QueueState:
        """Hand out nothing more; what runs goes on."""
        return await self._set_queue(scope, queue, "paused", "1")

    async def resume(self, scope: Scope, queue: str) -> QueueState:
        return await self._set_queue(scope, queue, "paused", "0")

    async def delete_queue(self, scope: Scope, queue: str) -> None:
        """Forget a queue that holds nothing, so that its name is free. Raises UnknownQueue, WrongState."""
        shard = await self._shards.of(scope)
        try:
            await self._scripts.call("delete_queue", shard, queue_name(scope, queue))
        except UnknownQueue:
            raise overview.unknown_queue(queue) from None

    async def dead_letters(
        self, scope: Scope, queue: str, *, limit: int = 100, after: str | None = None
    ) -> DeadLetters:
        """A page of dead tasks, payloads included. Raises UnknownQueue."""
        shard = await self._shards.of(scope)
        return await overview.dead_letters(self._scripts, shard, scope, queue, limit, after)

    async def redrive(self, scope: Scope, queue: str, task_ids: Sequence[str]) -> list[Outcome]:
        """Dead tasks become eligible with all their attempts. UnknownTask for what is not dead there."""
        return await self._dead.some("redrive", scope, queue, task_ids)

    async def redrive_all(self, scope: Scope, queue: str) -> int:
        """How many; those that were dead when it was called."""
        return await self._dead.all("redrive", scope, queue)

    async def delete_dead(self, scope: Scope, queue: str, task_ids: Sequence[str]) -> list[Outcome]:
        return await self._dead.some("delete_dead", scope, queue, task_ids)

    async def purge_dead(self, scope: Scope, queue: str) -> int:
        return await self._dead.all("delete_dead", scope, queue)

    async def sweep(self) -> Swept:
        """Promote, release and expire what is due in all shards. Harmless when run twice or by many."""
        return await self._sweeper.sweep()

    async def repair(self) -> int:
        """Make all sets and counts agree with the tasks' states; returns how many were put right."""
        return await self._sweeper.repair()

    async def share_environment(
        self, scope: Scope, depth: int, running: int, oldest_ms: int | None
    ) -> tuple[int, int, int | None]:
        """Depth, running and since when the oldest waits: those of an environment's durable queues go in,
        those of its run queues come out. Both emit the environment's gauges, and so speak for the whole.
        """
        given = (environment_name(scope), depth, running, "" if oldest_ms is None else oldest_ms)
        answer = await self._scripts.call("share_environment", await self._shards.of(scope), *given)
        return answer[0], answer[1], answer[2] or None

    async def _take(self, scope: Scope | None, request: Request) -> list[RunningTask]:
        if scope is not None:
            return await self._handing.dequeue(await self._shards.of(scope), request)
        number, first = await self._shards.number(), next(self._next_shard)
        for offset in range(number):
            if tasks := await self._handing.dequeue((first + offset) % number, request):
                return tasks
        return []

    async def _set_queue(self, scope: Scope, queue: str, field: str, value: str) -> QueueState:
        shard = await self._shards.of(scope)
        await self._scripts.call("set_queue", shard, queue_name(scope, queue), field, value)
        return await self.queue(scope, queue)

    async def _give_back_left(self, tasks: list[RunningTask]) -> None:
        for scope in {task.scope for task in tasks}:
            await self._settling.give_back(scope, [task.lease for task in tasks if task.scope == scope])

    def _visible(self, visibility_ms: int | None) -> int:
        return self._visibility_ms if visibility_ms is None else check_visibility(visibility_ms)
