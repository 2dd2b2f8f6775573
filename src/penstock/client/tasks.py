"""Run queues for producers and workers: `client.tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec
from msgspec import Struct

from penstock.client.http.connections import Parting
from penstock.client.task_types import (
    DeadTasks,
    EnqueuedTask,
    EnvironmentLimits,
    NewTask,
    RunQueue,
    Settled,
    Task,
    TaskResult,
    TaskStatus,
)

if TYPE_CHECKING:
    from penstock.client.http.calls import Calls
    from penstock.client.worker import LostCallback, TaskHandler, Worker


class _NewTask(Struct, omit_defaults=True, rename="camel"):
    """A task as it is sent."""

    payload: msgspec.Raw
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None


class _Nack(Struct, omit_defaults=True, rename="camel"):
    id: str
    token: int
    error: str = ""
    retry: bool = True
    delay_ms: int | None = None


class _Enqueued(Struct):
    tasks: list[EnqueuedTask]


class _Dequeued(Struct):
    tasks: list[Task]


class _Results(Struct):
    results: list[TaskResult]


class _Queues(Struct):
    queues: list[RunQueue]


class _Count(Struct):
    redriven: int = 0
    deleted: int = 0


_encode = msgspec.json.encode
_enqueued = msgspec.json.Decoder(_Enqueued)
_dequeued = msgspec.json.Decoder(_Dequeued)
_settled = msgspec.json.Decoder(Settled)
_results = msgspec.json.Decoder(_Results)
_status = msgspec.json.Decoder(TaskStatus)
_queue = msgspec.json.Decoder(RunQueue)
_queues = msgspec.json.Decoder(_Queues)
_environment = msgspec.json.Decoder(EnvironmentLimits)
_dead = msgspec.json.Decoder(DeadTasks)
_count = msgspec.json.Decoder(_Count)


class Tasks:
    """Enqueue, dequeue and settle tasks, see and steer run queues. Made by the client: `client.tasks`."""

    def __init__(self, calls: Calls, workers: set[Worker]) -> None:
        self._calls = calls
        self._workers = workers

    # Producing

    async def enqueue(
        self,
        queue: str,
        payload: Any,
        *,
        priority: int = 0,
        delay_s: float = 0.0,
        ttl_s: float | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
    ) -> EnqueuedTask:
        """Add a task. The queue is made by its first one."""
        new = NewTask(payload, priority, delay_s, ttl_s, idempotency_key, max_attempts)
        [result] = await self.enqueue_many(queue, [new])
        return result

    async def enqueue_many(self, queue: str, tasks: Iterable[NewTask]) -> list[EnqueuedTask]:
        """Add tasks with one request, in order, all or none; one result each.

        Tasks without an idempotency key get one, as messages get transaction ids, so that the request can be
        repeated when its answer was lost.
        """
        items = [_item(task) for task in tasks]
        if not items:
            return []
        made = set()
        if self._calls.settings.make_transaction_ids:
            stem = uuid4().hex
            for index, item in enumerate(items):
                if item.idempotency_key is None:
                    item.idempotency_key = f"{stem}.{index}"
                    made.add(index)
        repeatable = all(item.idempotency_key is not None for item in items)
        answer = await self._calls.send(
            "POST", f"{_path(queue)}/tasks", _encode({"tasks": items}), repeatable
        )
        results = answer.read(_enqueued).tasks
        if answer.uncertain:
            # Nobody else has these keys: the first of the two was our own, and its answer was lost.
            for index in made:
                msgspec.structs.force_setattr(results[index], "status", "queued")
        return results

    # Working

    async def dequeue(
        self,
        queue: str | None = None,
        *,
        limit: int = 1,
        visibility_s: float | None = None,
        wait_s: float = 0.0,
        worker: str = "",
    ) -> list[Task]:
        """Take up to `limit` tasks of a queue, or of all run queues in turn; none if there are none.

        Each is held until its `held_until`; who needs longer sends heartbeats. With `wait_s` it waits for the
        first one.
        """
        return await self.take(queue, limit, visibility_s, wait_s, worker, None)

    async def take(
        self,
        queue: str | None,
        limit: int,
        visibility_s: float | None,
        wait_s: float,
        worker: str,
        parting: Parting | None,
    ) -> list[Task]:
        """`dequeue` in a way that can be left."""
        asked: dict[str, Any] = {"limit": limit, "worker": worker}
        if visibility_s is not None:
            asked["visibilityMs"] = _ms(visibility_s)
        if wait_s > 0:
            asked["waitMs"] = _ms(wait_s)
        path = "/api/v1/run-queues/dequeue" if queue is None else f"{_path(queue)}/dequeue"
        answer = await self._calls.send("POST", path, _encode(asked), wait_s=wait_s, parting=parting)
        return answer.read(_dequeued).tasks

    async def ack(self, task: Task) -> Settled:
        """The task is done. Raises LeaseLost if it is not held any more, NotFound if it is gone."""
        return await self._settle(task, "ack", {"token": task.token})

    async def nack(
        self, task: Task, error: str = "", *, retry: bool = True, delay_s: float | None = None
    ) -> Settled:
        """The attempt failed: tried again after a growing delay, or `delay_s`; dead past its attempts, or at
        once without `retry`."""
        body: dict[str, Any] = {"token": task.token, "error": error, "retry": retry}
        if delay_s is not None:
            body["delayMs"] = _ms(delay_s)
        return await self._settle(task, "nack", body)

    async def heartbeat(self, task: Task, visibility_s: float | None = None) -> Settled:
        """Hold a task for longer: so long from now, or as long as the broker's default."""
        body: dict[str, Any] = {"token": task.token}
        if visibility_s is not None:
            body["visibilityMs"] = _ms(visibility_s)
        return await self._settle(task, "heartbeat", body)

    async def give_back(self, task: Task) -> Settled:
        """Return a task that was not begun: no attempt is counted."""
        return await self._settle(task, "give-back", {"token": task.token})

    async def ack_many(self, tasks: Iterable[Task]) -> list[TaskResult]:
        """Finish tasks with one request; one result each, in order. What is refused changes nothing."""
        return await self._settle_many("ack", [_lease(task) for task in tasks])

    async def nack_many(self, failures: Iterable[tuple[Task, str]]) -> list[TaskResult]:
        """Failed attempts with their errors, with one request, as `ack_many`."""
        return await self._settle_many("nack", [_Nack(task.id, task.token, e) for task, e in failures])

    async def heartbeat_many(
        self, tasks: Iterable[Task], visibility_s: float | None = None
    ) -> list[TaskResult]:
        """Hold tasks for longer, with one request, as `ack_many`."""
        more = {} if visibility_s is None else {"visibilityMs": _ms(visibility_s)}
        return await self._settle_many("heartbeat", [_lease(task) for task in tasks], **more)

    async def give_back_many(self, tasks: Iterable[Task]) -> list[TaskResult]:
        """Return tasks that were not begun, with one request, as `ack_many`."""
        return await self._settle_many("give-back", [_lease(task) for task in tasks])

    def worker(
        self,
        queue: str | None,
        handler: TaskHandler,
        *,
        concurrency: int = 1,
        visibility_s: float = 30.0,
        wait_s: float = 30.0,
        grace_s: float = 30.0,
        name: str = "",
        on_lost: LostCallback | None = None,
    ) -> Worker:
        """A worker that calls the handler with each task of a queue, or of all run queues in turn.

        Await it to run it. A task whose handler returns is acked; one whose handler raises is nacked with the
        error's text. What else it promises is told at `Worker`.
        """
        from penstock.client.worker import Worker

        return Worker(
            self,
            queue,
            handler,
            siblings=self._workers,
            settings=self._calls.settings,
            concurrency=concurrency,
            visibility_s=visibility_s,
            wait_s=wait_s,
            grace_s=grace_s,
            name=name,
            on_lost=on_lost,
        )

    # Looking and steering

    async def get(self, task_id: str) -> TaskStatus:
        """A task as it is now. Raises NotFound once it is finished or expired."""
        return (await self._calls.send("GET", f"/api/v1/tasks/{_quoted(task_id)}")).read(_status)

    async def queues(self, *, search: str = "", limit: int = 100, offset: int = 0) -> list[RunQueue]:
        """A page of the run queues by name."""
        asked = {"limit": str(limit), "offset": str(offset)} | ({"search": search} if search else {})
        return (await self._calls.send("GET", f"/api/v1/run-queues?{urlencode(asked)}")).read(_queues).queues

    async def queue(self, queue: str) -> RunQueue:
        """Raises NotFound if there is none."""
        return (await self._calls.send("GET", _path(queue))).read(_queue)

    async def delete_queue(self, queue: str) -> None:
        """Forget a queue that holds nothing, so that its name is free. Raises WrongState if it does."""
        await self._calls.send("DELETE", _path(queue))

    async def set_limit(self, queue: str, concurrency: int | None) -> RunQueue:
        """How many tasks of the queue may run at once; None: no limit."""
        body = _encode({"concurrency": concurrency})
        return (await self._calls.send("PUT", f"{_path(queue)}/limits", body)).read(_queue)

    async def pause(self, queue: str) -> RunQueue:
        """Hand out nothing more of the queue; what runs goes on."""
        return (await self._calls.send("POST", f"{_path(queue)}/pause", b"")).read(_queue)

    async def resume(self, queue: str) -> RunQueue:
        return (await self._calls.send("POST", f"{_path(queue)}/resume", b"")).read(_queue)

    async def limits(self, environment: str = "default") -> EnvironmentLimits:
        """The limit of all run queues of an environment together, and what they hold."""
        path = f"/api/v1/environments/{_quoted(environment)}/run-limits"
        return (await self._calls.send("GET", path)).read(_environment)

    async def set_limits(
        self, concurrency: int | None, *, burst: float = 1.0, environment: str = "default"
    ) -> EnvironmentLimits:
        """How many tasks may run at once in all queues together: `concurrency` × `burst`."""
        path = f"/api/v1/environments/{_quoted(environment)}/run-limits"
        body = _encode({"concurrency": concurrency, "burst": burst})
        return (await self._calls.send("PUT", path, body)).read(_environment)

    async def dead_letters(self, queue: str, *, limit: int = 100, after: str | None = None) -> DeadTasks:
        """A page of tasks that used up their attempts, the oldest first."""
        asked = {"limit": str(limit)} | ({} if after is None else {"after": after})
        return (await self._calls.send("GET", f"{_path(queue)}/dead-letters?{urlencode(asked)}")).read(_dead)

    async def redrive(self, queue: str, task_ids: Sequence[str] | None = None) -> int:
        """Let dead tasks run again with all their attempts, these or all; how many."""
        path = f"{_path(queue)}/dead-letters/redrive"
        return (await self._calls.send("POST", path, _which(task_ids))).read(_count).redriven

    async def delete_dead(self, queue: str, task_ids: Sequence[str] | None = None) -> int:
        """Delete dead tasks, these or all; how many."""
        answer = await self._calls.send("DELETE", f"{_path(queue)}/dead-letters", _which(task_ids))
        return answer.read(_count).deleted

    async def _settle(self, task: Task, verb: str, body: dict[str, Any]) -> Settled:
        path = f"/api/v1/tasks/{_quoted(task.id)}/{verb}"
        return (await self._calls.send("POST", path, _encode(body))).read(_settled)

    async def _settle_many(self, verb: str, items: Sequence[object], **more: Any) -> list[TaskResult]:
        if not items:
            return []
        body = _encode({"tasks": items, **more})
        answer = await self._calls.send("POST", f"/api/v1/tasks/{verb}", body)
        results = answer.read(_results).results
        if answer.uncertain:
            for result in results:
                msgspec.structs.force_setattr(result, "uncertain", not result.success)
        return results


def _item(task: NewTask) -> _NewTask:
    """The task as it is sent. Raises TypeError where the payload cannot be written as JSON."""
    return _NewTask(
        msgspec.Raw(_encode(task.payload)),
        task.priority,
        _ms(task.delay_s),
        None if task.ttl_s is None else _ms(task.ttl_s),
        task.idempotency_key,
        task.max_attempts,
    )


def _lease(task: Task) -> dict[str, Any]:
    return {"id": task.id, "token": task.token}


def _which(task_ids: Sequence[str] | None) -> bytes:
    return _encode({"all": True} if task_ids is None else {"ids": list(task_ids)})


def _path(queue: str) -> str:
    return f"/api/v1/run-queues/{_quoted(queue)}"


def _quoted(part: str) -> str:
    return quote(part, safe="")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
