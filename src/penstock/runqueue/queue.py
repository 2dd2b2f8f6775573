"""The interface of run queues to the layers above."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from penstock.batching import BatcherState, QueueTimeout, Receiver, receive, result_of
from penstock.caller import LOCAL_CALLER, Caller
from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownQueue
from penstock.model import Scope
from penstock.runqueue import overview
from penstock.runqueue.connection import connect
from penstock.runqueue.dead_tasks import DeadTaskActions
from penstock.runqueue.ended_tokens import release_tasks_of_tokens
from penstock.runqueue.enqueue_dequeue import TaskDispatcher
from penstock.runqueue.keys import environment_name, queue_name
from penstock.runqueue.limits import (
    MAX_DELAY_MS,
    MAX_TASKS_PER_DEQUEUE,
    MIN_VISIBILITY_MS,
    check_burst,
    check_concurrency_limit,
    check_number,
    check_visibility,
    check_worker_name,
)
from penstock.runqueue.pending_dequeue import PendingDequeue
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.shard_map import AllShards, ShardMap
from penstock.runqueue.sweeper import Sweeper, SweepIntervals
from penstock.runqueue.task_ack import OutcomeReceiver, TaskAcks, raise_error
from penstock.runqueue.task_model import (
    DeadTaskPage,
    EnqueueResult,
    EnvironmentState,
    Lease,
    Nack,
    NewTask,
    QueueState,
    RunningTask,
    SweepResult,
    Task,
    TaskChange,
    TaskOutcome,
)
from penstock.runqueue.task_removal import delete_some_tasks, purge_queue
from penstock.runqueue.task_wakeups import TaskWakeups
from penstock.runqueue.waiting_tasks import WaitingTasks


class RunQueues:
    """All run queues of a Redis; one object per process, used from its event loop.

    Concurrent calls of one kind are merged. Every method raises RedisUnavailable if Redis does not answer
    (a change may have happened or not), and InvalidRequest for a value out of range, before anything has
    changed. The first task, limit or pause of a queue creates it. With a `queue_timeout`, a call that has
    waited longer than that for Redis to finish earlier calls raises its error and changes nothing.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        shards: int = 2,
        metrics_enabled: bool = True,
        visibility_ms: int = 30_000,
        min_visibility_ms: int = MIN_VISIBILITY_MS,
        idempotency_hours: float = 24,
        sweep_intervals: SweepIntervals | None = None,
        queue_timeout: QueueTimeout | None = None,
        max_waiting: int | None = None,
    ) -> None:
        self._min_visibility_ms = min_visibility_ms
        self._default_visibility_ms = check_visibility(visibility_ms, min_visibility_ms)
        self._client = connect(redis_url)
        self._scripts = Scripts(self._client, QUEUE.max_stream_length if metrics_enabled else 0)
        self._wakeups = TaskWakeups(redis_url, self._client, max_waiting)
        # A task in a new shard may have woken a dequeue that did not know the shard yet.
        self._shards = ShardMap(self._client, shards, on_raised=self._wakeups.wake_all)
        self._known_shards = self._shards.known
        self._all_shards = AllShards(self._shards)
        self._sweeper = Sweeper(
            self._client,
            self._scripts,
            self._shards,
            metrics_enabled=metrics_enabled,
            intervals=sweep_intervals,
        )
        self._acks = TaskAcks(self._scripts, self._sweeper.sweep_within, queue_timeout)
        self._dispatcher = TaskDispatcher(
            self._scripts,
            self._wakeups,
            int(idempotency_hours * 3_600_000),
            self._release_abandoned,
            self._sweeper.sweep_within,
            queue_timeout,
        )
        # In the order in which `stop` drains them: an abandoned dequeue releases its tasks with a nack.
        self.batchers: Mapping[str, BatcherState] = {
            "enqueue": self._dispatcher.enqueues,
            "dequeue": self._dispatcher.dequeues,
            **self._acks.batchers,
        }
        self._dead_tasks = DeadTaskActions(self._scripts, self._shards)
        self.waiting_tasks = WaitingTasks(self._scripts, self._shards)

    async def start(self) -> None:
        """Start to receive wake-ups and to sweep. Redis need not be reachable yet. May be called twice."""
        await self._wakeups.start()
        await self._sweeper.start()

    def wake_all_for_shutdown(self) -> None:
        """Make the dequeues that wait now return empty at once. May be called repeatedly."""
        self._wakeups.release_all()

    def end_inactive_callers(self) -> None:
        """End the waiting dequeues of callers that are not active any more."""
        self._wakeups.end_inactive()

    async def release_tasks_of_tokens(self, scope: Scope, token_numbers: Collection[int]) -> int:
        """Release the running tasks of an environment that were leased with these access tokens."""
        shard = await self._shards.shard_of(scope)
        return await release_tasks_of_tokens(self._client, self._scripts, shard, scope, token_numbers)

    @property
    def waiting_dequeues(self) -> int:
        """Number of dequeues of this process that wait or are in flight."""
        return self._wakeups.waiter_count

    async def stop(self) -> None:
        """Stop both background tasks; waiting dequeues return empty. May be called twice."""
        await self._wakeups.stop()
        await self._sweeper.stop()
        for batcher in (self._shards.lookups, *self.batchers.values()):
            await batcher.drain()
        await self._client.aclose()

    def knows_shard(self, scope: Scope) -> bool:
        """Whether `start_enqueue` and `start_dequeue` can be called. If not, await `load_shard` first."""
        return scope in self._known_shards

    async def load_shard(self, scope: Scope) -> None:
        """Look up the shard of an environment. Once per process and environment this calls Redis."""
        await self._shards.shard_of(scope)

    def start_enqueue(
        self,
        scope: Scope,
        queue: str,
        tasks: Sequence[NewTask],
        receiver: Receiver[list[EnqueueResult]],
    ) -> None:
        """Add tasks in order, all or none. They are as durable as Redis when the receiver gets the result."""
        self._dispatcher.start_enqueue(self._known_shards[scope], scope, queue, tasks, receiver)

    async def enqueue(self, scope: Scope, queue: str, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Await what `start_enqueue` starts."""
        await self._shards.shard_of(scope)
        return await result_of(lambda receiver: self.start_enqueue(scope, queue, tasks, receiver))

    def start_dequeue(
        self,
        scope: Scope | None,
        queue: str | None,
        receiver: Receiver[list[RunningTask]],
        *,
        limit: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        worker: str = "",
        caller: Caller = LOCAL_CALLER,
    ) -> PendingDequeue:
        """Lease up to `limit` tasks, of one queue or of the environment's queues in turn.

        Without a scope it serves all environments in turn: for workers that are shared by all. The receiver
        gets fewer tasks if their payloads are large. With `wait_ms` the dequeue waits for a first task. When
        cancelled, it releases the tasks it had leased. It ends with Unauthorized if the caller's token ends.
        """
        check_number("limit", limit, 1, MAX_TASKS_PER_DEQUEUE)
        check_number("wait_ms", wait_ms, 0, MAX_DELAY_MS)
        visibility_ms = self._visibility_or_default(visibility_ms)
        environment = "" if scope is None else environment_name(scope)
        if scope is None and queue is not None:
            raise InvalidRequest("The call names a queue without its environment. Pass both.")
        name = "" if scope is None or queue is None else queue_name(scope, queue)
        arguments = (environment, name, limit, visibility_ms, check_worker_name(worker), caller.token_number)
        shards = self._all_shards if scope is None else (self._known_shards[scope],)
        return self._dispatcher.start_dequeue(shards, arguments, wait_ms / 1000, receiver, caller)

    async def dequeue(
        self,
        scope: Scope | None,
        queue: str | None = None,
        *,
        limit: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        worker: str = "",
        caller: Caller = LOCAL_CALLER,
    ) -> list[RunningTask]:
        """Await what `start_dequeue` starts."""
        if scope is None:
            await self._shards.count()
        else:
            await self._shards.shard_of(scope)
        future: asyncio.Future[list[RunningTask]] = asyncio.get_running_loop().create_future()
        pending = self.start_dequeue(
            scope,
            queue,
            future,
            limit=limit,
            visibility_ms=visibility_ms,
            wait_ms=wait_ms,
            worker=worker,
            caller=caller,
        )
        try:
            return await receive(future, pending.abandon)
        finally:
            pending.cancel()

    def start_heartbeat(
        self, scope: Scope, leases: Sequence[Lease], visibility_ms: int | None, receiver: OutcomeReceiver
    ) -> None:
        """Extend leases to `visibility_ms` from now. The receiver gets one outcome each, in order."""
        self._acks.start_heartbeat(scope, leases, self._visibility_or_default(visibility_ms), receiver)

    def start_ack(self, scope: Scope, leases: Sequence[Lease], receiver: OutcomeReceiver) -> None:
        """Complete and delete tasks. An outcome LeaseLost or UnknownTask has changed nothing."""
        self._acks.start_ack(scope, leases, receiver)

    def start_nack(self, scope: Scope, nacks: Sequence[Nack], receiver: OutcomeReceiver) -> None:
        """End failed attempts: each task is retried or dead."""
        self._acks.start_nack(scope, nacks, receiver)

    def start_release(self, scope: Scope, leases: Sequence[Lease], receiver: OutcomeReceiver) -> None:
        """Return tasks that no worker has started to their old position, without counting the attempt."""
        self._acks.start_release(scope, leases, receiver)

    async def heartbeat(self, scope: Scope, lease: Lease, visibility_ms: int | None = None) -> TaskChange:
        """Await the heartbeat of one task. Raises LeaseLost or UnknownTask."""
        [outcome] = await self.heartbeat_many(scope, [lease], visibility_ms)
        return raise_error(outcome)

    async def ack(self, scope: Scope, lease: Lease) -> TaskChange:
        """Await the ack of one task. Raises LeaseLost or UnknownTask."""
        [outcome] = await self.ack_many(scope, [lease])
        return raise_error(outcome)

    async def nack(self, scope: Scope, nack: Nack) -> TaskChange:
        """Await the nack of one task. Raises LeaseLost or UnknownTask."""
        [outcome] = await self.nack_many(scope, [nack])
        return raise_error(outcome)

    async def release(self, scope: Scope, leases: Sequence[Lease]) -> list[TaskOutcome]:
        return await result_of(lambda receiver: self.start_release(scope, leases, receiver))

    async def heartbeat_many(
        self, scope: Scope, leases: Sequence[Lease], visibility_ms: int | None = None
    ) -> list[TaskOutcome]:
        return await result_of(lambda receiver: self.start_heartbeat(scope, leases, visibility_ms, receiver))

    async def ack_many(self, scope: Scope, leases: Sequence[Lease]) -> list[TaskOutcome]:
        return await result_of(lambda receiver: self.start_ack(scope, leases, receiver))

    async def nack_many(self, scope: Scope, nacks: Sequence[Nack]) -> list[TaskOutcome]:
        return await result_of(lambda receiver: self.start_nack(scope, nacks, receiver))

    async def get_task(self, scope: Scope, task_id: str) -> Task:
        """Return a task.

        Raises UnknownTask, also for a task that is acked, expired or of another environment.
        """
        return await overview.get_task(self._client, scope, task_id)

    async def list_queues(self, scope: Scope) -> list[QueueState]:
        """Return the run queues of the environment, sorted by name."""
        shard = await self._shards.shard_of(scope)
        return await overview.list_queues(self._client, self._scripts, shard, scope)

    async def get_queue(self, scope: Scope, queue: str) -> QueueState:
        """Return the state of a queue. Raises UnknownQueue."""
        return await overview.get_queue(self._scripts, await self._shards.shard_of(scope), scope, queue)

    async def has_queue(self, scope: Scope, queue: str) -> bool:
        return await overview.has_queue(self._client, await self._shards.shard_of(scope), scope, queue)

    async def nearest_queue_names(self, scope: Scope, queue: str, limit: int) -> list[str]:
        """Return up to `limit` names of queues on each side of a name, in the order of names."""
        shard = await self._shards.shard_of(scope)
        return await overview.nearest_queue_names(self._client, shard, scope, queue, limit)

    async def get_environment(self, scope: Scope) -> EnvironmentState:
        return (await overview.inspect(self._scripts, await self._shards.shard_of(scope), scope, []))[0]

    async def set_queue_limit(self, scope: Scope, queue: str, limit: int | None) -> QueueState:
        """Set how many tasks of the queue may run at once, at least 1; None removes the limit.

        Raises InvalidRequest for 0: use `pause` to start no task.
        """
        return await self._set_queue(scope, queue, "limit", str(check_concurrency_limit(limit) or ""))

    async def set_environment_limit(
        self, scope: Scope, limit: int | None, burst: float = 1.0
    ) -> EnvironmentState:
        """Limit the concurrent tasks of all queues together to `limit` × `burst`, of one queue to `limit`."""
        limit_text = str(check_concurrency_limit(limit) or "")
        arguments = (environment_name(scope), limit_text, str(check_burst(burst)))
        await self._scripts.call("set_environment", await self._shards.shard_of(scope), *arguments)
        return await self.get_environment(scope)

    async def pause(self, scope: Scope, queue: str) -> QueueState:
        """Start no more tasks of the queue; running tasks continue. Raises UnknownQueue."""
        return await self._set_queue(scope, queue, "paused", "1")

    async def resume(self, scope: Scope, queue: str) -> QueueState:
        """Start tasks of a paused queue again. Raises UnknownQueue."""
        return await self._set_queue(scope, queue, "paused", "0")

    async def delete_queue(self, scope: Scope, queue: str) -> None:
        """Delete a queue without tasks, which frees its name. Raises UnknownQueue or WrongState."""
        shard = await self._shards.shard_of(scope)
        try:
            await self._scripts.call("delete_queue", shard, queue_name(scope, queue))
        except UnknownQueue:
            raise overview.unknown_queue(queue) from None

    async def purge(self, scope: Scope, queue: str) -> int:
        """Drop the tasks that wait or are delayed; return how many. Running and dead tasks stay.

        Metrics count them as expired. Tasks that are enqueued meanwhile may be dropped too. Raises
        UnknownQueue.
        """
        return await purge_queue(self._scripts, await self._shards.shard_of(scope), scope, queue)

    async def delete_some_tasks(self, scope: Scope) -> int:
        """Delete some tasks of an environment that is being deleted; return how many, 0 once none is left."""
        shard = await self._shards.shard_of(scope)
        return await delete_some_tasks(self._client, self._scripts, shard, scope)

    async def list_dead_tasks(
        self, scope: Scope, queue: str, *, limit: int = 100, after: str | None = None
    ) -> DeadTaskPage:
        """Return a page of dead tasks with their payloads. Raises UnknownQueue."""
        shard = await self._shards.shard_of(scope)
        return await overview.list_dead_tasks(self._scripts, shard, scope, queue, limit, after)

    async def list_current_tasks(self, scope: Scope, queue: str, limit: int) -> list[Task]:
        """Return up to `limit` tasks each that run, wait or are delayed. Raises UnknownQueue.

        The waiting ones are the next to run; of the others, any.
        """
        shard = await self._shards.shard_of(scope)
        return await overview.list_current_tasks(self._scripts, shard, scope, queue, limit)

    async def redrive(self, scope: Scope, queue: str, task_ids: Sequence[str]) -> list[TaskOutcome]:
        """Make dead tasks eligible with all their attempts. UnknownTask for an id that is not dead there."""
        return await self._dead_tasks.apply_to_ids("redrive", scope, queue, task_ids)

    async def redrive_all(self, scope: Scope, queue: str) -> int:
        """Redrive the tasks that are dead now; return how many."""
        return await self._dead_tasks.apply_to_all("redrive", scope, queue)

    async def delete_dead(self, scope: Scope, queue: str, task_ids: Sequence[str]) -> list[TaskOutcome]:
        return await self._dead_tasks.apply_to_ids("delete_dead", scope, queue, task_ids)

    async def purge_dead(self, scope: Scope, queue: str) -> int:
        """Delete the tasks that are dead now; return how many."""
        return await self._dead_tasks.apply_to_all("delete_dead", scope, queue)

    async def sweep(self) -> SweepResult:
        """Promote, release and expire the tasks that are due in all shards. May run concurrently."""
        return await self._sweeper.sweep()

    async def repair(self) -> int:
        """Make all sets and counts agree with the states of the tasks; return how many were repaired."""
        return await self._sweeper.repair()

    async def exchange_environment_gauges(
        self, scope: Scope, depth: int, running: int, oldest_ms: int | None
    ) -> tuple[int, int, int | None]:
        """Store depth, running and oldest wait time of the environment's durable queues; return those of its
        run queues.

        Both kinds of queues emit the gauges of the environment, so each must know the numbers of the other.
        """
        arguments = (environment_name(scope), depth, running, "" if oldest_ms is None else oldest_ms)
        shard = await self._shards.shard_of(scope)
        reply = await self._scripts.call("exchange_environment_gauges", shard, *arguments)
        return reply[0], reply[1], reply[2] or None

    async def _set_queue(self, scope: Scope, queue: str, field: str, value: str) -> QueueState:
        shard = await self._shards.shard_of(scope)
        try:
            await self._scripts.call("set_queue", shard, queue_name(scope, queue), field, value)
        except UnknownQueue:
            raise overview.unknown_queue(queue) from None
        return await self.get_queue(scope, queue)

    async def _release_abandoned(self, tasks: list[RunningTask]) -> None:
        for scope in {task.scope for task in tasks}:
            await self.release(scope, [task.lease for task in tasks if task.scope == scope])

    def _visibility_or_default(self, visibility_ms: int | None) -> int:
        if visibility_ms is None:
            return self._default_visibility_ms
        return check_visibility(visibility_ms, self._min_visibility_ms)
