"""Run queues: the one class that the layers above use."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import Scope
from penstock.runqueue.model import (
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


class RunQueues:
    """All run queues of a Redis; one object per process, used from its event loop.

    Concurrent calls of one kind travel together. Every method raises RedisUnavailable when Redis is away (it
    is not known then whether a change happened) and InvalidRequest for values out of range, with nothing
    changed. Queues come into being with their first task, limit or pause.
    """

    def __init__(
        self, redis_url: str, *, shards: int = 2, metrics_enabled: bool = True, visibility_ms: int = 30_000
    ) -> None: ...

    async def start(self) -> None:
        """Listen for wake-ups and sweep in the background. Redis need not be there. May be called twice."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End both; waiting dequeues return empty. May be called twice."""
        raise NotImplementedError

    async def enqueue(self, scope: Scope, queue: str, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Add tasks, in order, all or none. Durable when it returns, as far as Redis is."""
        raise NotImplementedError

    async def dequeue(
        self,
        scope: Scope,
        queue: str | None = None,
        *,
        limit: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        worker: str = "",
    ) -> list[RunningTask]:
        """Up to `limit` tasks, of one queue or of the environment's queues in turn.

        With `wait_ms` it waits until there is one. When cancelled, what it had taken is given back.
        """
        raise NotImplementedError

    async def heartbeat(self, scope: Scope, lease: Lease, visibility_ms: int | None = None) -> Settled:
        """Hold the task for another `visibility_ms` from now. Raises LeaseLost or UnknownTask."""
        raise NotImplementedError

    async def ack(self, scope: Scope, lease: Lease) -> Settled:
        """The task is done, and gone. Raises LeaseLost or UnknownTask; nothing is changed then."""
        raise NotImplementedError

    async def nack(self, scope: Scope, nack: Nack) -> Settled:
        """The attempt failed: retried later, or dead. Raises LeaseLost or UnknownTask."""
        raise NotImplementedError

    async def give_back(self, scope: Scope, leases: Sequence[Lease]) -> list[Outcome]:
        """Tasks nobody has begun to work on: eligible again at their old place, the attempt not counted."""
        raise NotImplementedError

    async def heartbeat_many(
        self, scope: Scope, leases: Sequence[Lease], visibility_ms: int | None = None
    ) -> list[Outcome]:
        raise NotImplementedError

    async def ack_many(self, scope: Scope, leases: Sequence[Lease]) -> list[Outcome]:
        raise NotImplementedError

    async def nack_many(self, scope: Scope, nacks: Sequence[Nack]) -> list[Outcome]:
        raise NotImplementedError

    async def task(self, scope: Scope, task_id: str) -> Task:
        """Raises UnknownTask, also for a task that is done, expired or of another environment."""
        raise NotImplementedError

    async def queues(self, scope: Scope) -> list[QueueState]:
        """The environment's run queues by name."""
        raise NotImplementedError

    async def queue(self, scope: Scope, queue: str) -> QueueState:
        """Raises UnknownQueue."""
        raise NotImplementedError

    async def has_queue(self, scope: Scope, queue: str) -> bool:
        raise NotImplementedError

    async def environment(self, scope: Scope) -> EnvironmentState:
        raise NotImplementedError

    async def set_queue_limit(self, scope: Scope, queue: str, limit: int | None) -> QueueState:
        """How many of its tasks may run at once; None: no limit; 0: none starts."""
        raise NotImplementedError

    async def set_environment_limit(
        self, scope: Scope, limit: int | None, burst: float = 1.0
    ) -> EnvironmentState:
        raise NotImplementedError

    async def pause(self, scope: Scope, queue: str) -> QueueState:
        """Hand out nothing more; what runs goes on."""
        raise NotImplementedError

    async def resume(self, scope: Scope, queue: str) -> QueueState:
        raise NotImplementedError

    async def dead_letters(
        self, scope: Scope, queue: str, *, limit: int = 100, after: str | None = None
    ) -> DeadLetters:
        """A page of dead tasks, payloads included. Raises UnknownQueue."""
        raise NotImplementedError

    async def redrive(self, scope: Scope, queue: str, task_ids: Sequence[str]) -> list[Outcome]:
        """Dead tasks become eligible with all their attempts. UnknownTask for what is not dead there."""
        raise NotImplementedError

    async def redrive_all(self, scope: Scope, queue: str) -> int:
        """How many; those that were dead when it was called."""
        raise NotImplementedError

    async def delete_dead(self, scope: Scope, queue: str, task_ids: Sequence[str]) -> list[Outcome]:
        raise NotImplementedError

    async def purge_dead(self, scope: Scope, queue: str) -> int:
        raise NotImplementedError

    async def sweep(self) -> Swept:
        """Promote, release and expire what is due in all shards. Harmless when run twice or by many."""
        raise NotImplementedError

    async def repair(self) -> int:
        """Make all sets and counts agree with the tasks' states; returns how many were put right."""
        raise NotImplementedError
