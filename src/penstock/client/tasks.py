"""Run queues for producers and workers: `client.tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec
from msgspec import Struct

from penstock.client.http.connections import RequestCancellation
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
    from penstock.client.http.transport import Transport
    from penstock.client.worker import LostCallback, TaskHandler, Worker


class _TaskItem(Struct, omit_defaults=True, rename="camel"):
    """A task in an enqueue request."""

    payload: msgspec.Raw
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    traceparent: str | None = None


class _NackItem(Struct, omit_defaults=True, rename="camel"):
    id: str
    token: int
    error: str = ""
    retry: bool = True
    delay_ms: int | None = None


class _EnqueueResponse(Struct):
    tasks: list[EnqueuedTask]


class _DequeueResponse(Struct):
    tasks: list[Task]


class _ResultsResponse(Struct):
    results: list[TaskResult]


class _QueuesResponse(Struct):
    queues: list[RunQueue]


class _CountResponse(Struct):
    redriven: int = 0
    deleted: int = 0


_encode = msgspec.json.encode
_enqueue_response = msgspec.json.Decoder(_EnqueueResponse)
_dequeue_response = msgspec.json.Decoder(_DequeueResponse)
_task_state = msgspec.json.Decoder(Settled)
_results_response = msgspec.json.Decoder(_ResultsResponse)
_task_status = msgspec.json.Decoder(TaskStatus)
_run_queue = msgspec.json.Decoder(RunQueue)
_queues_response = msgspec.json.Decoder(_QueuesResponse)
_environment_limits = msgspec.json.Decoder(EnvironmentLimits)

OWN_ENVIRONMENT = "-"
"""Stands for the environment of the client's token."""
_dead_tasks = msgspec.json.Decoder(DeadTasks)
_count_response = msgspec.json.Decoder(_CountResponse)


class Tasks:
    """Enqueue, dequeue and ack tasks; read and control run queues. Available as `client.tasks`."""

    def __init__(self, transport: Transport, workers: set[Worker]) -> None:
        self._transport = transport
        self._workers = workers

    # Enqueue

    async def enqueue(
        self,
        queue: str,
        payload: object,
        *,
        priority: int = 0,
        delay_s: float = 0.0,
        ttl_s: float | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
    ) -> EnqueuedTask:
        """Enqueue a task. The first task creates the queue."""
        task = NewTask(payload, priority, delay_s, ttl_s, idempotency_key, max_attempts)
        [result] = await self.enqueue_many(queue, [task])
        return result

    async def enqueue_many(self, queue: str, tasks: Iterable[NewTask]) -> list[EnqueuedTask]:
        """Enqueue tasks with one request, in order, all or none; one result each.

        The client generates missing idempotency keys, like transaction ids of messages, so that a request
        whose response was lost can be repeated.
        """
        items = [_task_item(task) for task in tasks]
        if not items:
            return []
        tracing = self._transport.tracing
        if tracing is None:
            return await self._enqueue(queue, items)
        with tracing.sending("enqueue", {queue}, [item.traceparent for item in items]):
            return await self._enqueue(queue, items)

    async def _enqueue(self, queue: str, items: Sequence[_TaskItem]) -> list[EnqueuedTask]:
        generated = set()
        if self._transport.settings.make_transaction_ids:
            prefix = uuid4().hex
            for index, item in enumerate(items):
                if item.idempotency_key is None:
                    item.idempotency_key = f"{prefix}.{index}"
                    generated.add(index)
        repeatable = all(item.idempotency_key is not None for item in items)
        response = await self._transport.send(
            "POST", f"{_path(queue)}/tasks", _encode({"tasks": items}), repeatable=repeatable
        )
        results = response.read(_enqueue_response).tasks
        if response.uncertain:
            # No other call uses these keys, so the original is the first attempt, whose response was lost.
            for index in generated:
                msgspec.structs.force_setattr(results[index], "status", "queued")
        return results

    # Dequeue and ack

    async def dequeue(
        self,
        queue: str | None = None,
        *,
        limit: int = 1,
        visibility_s: float | None = None,
        wait_s: float = 0.0,
        worker: str = "",
    ) -> list[Task]:
        """Dequeue up to `limit` tasks of a queue, or of all run queues in turn; an empty list if none.

        A task is leased until `held_until`; heartbeats extend that. With `wait_s` the call waits for the
        first task.
        """
        return await self.dequeue_cancellable(queue, limit, visibility_s, wait_s, worker, None)

    async def dequeue_cancellable(
        self,
        queue: str | None,
        limit: int,
        visibility_s: float | None,
        wait_s: float,
        worker: str,
        cancellation: RequestCancellation | None,
    ) -> list[Task]:
        """Dequeue with a way to cancel the request gracefully."""
        body: dict[str, object] = {"limit": limit, "worker": worker}
        if visibility_s is not None:
            body["visibilityMs"] = _ms(visibility_s)
        if wait_s > 0:
            body["waitMs"] = _ms(wait_s)
        path = "/api/v1/run-queues/dequeue" if queue is None else f"{_path(queue)}/dequeue"
        response = await self._transport.send(
            "POST", path, _encode(body), wait_s=wait_s, cancellation=cancellation
        )
        return response.read(_dequeue_response).tasks

    async def ack(self, task: Task) -> Settled:
        """Mark a task as done. Raises LeaseLost if its lease is lost, NotFound if it does not exist."""
        return await self._report(task, "ack", {"token": task.token})

    async def nack(
        self, task: Task, error: str = "", *, retry: bool = True, delay_s: float | None = None
    ) -> Settled:
        """Fail the attempt of a task.

        The task is retried with backoff, or after `delay_s`. It is dead after its last attempt, or at once
        without `retry`.
        """
        body: dict[str, object] = {"token": task.token, "error": error, "retry": retry}
        if delay_s is not None:
            body["delayMs"] = _ms(delay_s)
        return await self._report(task, "nack", body)

    async def heartbeat(self, task: Task, visibility_s: float | None = None) -> Settled:
        """Extend the lease of a task to `visibility_s`, or to the broker's default, from now."""
        body: dict[str, object] = {"token": task.token}
        if visibility_s is not None:
            body["visibilityMs"] = _ms(visibility_s)
        return await self._report(task, "heartbeat", body)

    async def give_back(self, task: Task) -> Settled:
        """Return a task without counting an attempt."""
        return await self._report(task, "give-back", {"token": task.token})

    async def ack_many(self, tasks: Iterable[Task]) -> list[TaskResult]:
        """Ack tasks with one request; one result each, in order. A refused ack changes nothing."""
        return await self._report_many("ack", [_lease_item(task) for task in tasks])

    async def nack_many(self, failures: Iterable[tuple[Task, str]]) -> list[TaskResult]:
        """Nack tasks with their errors, with one request, like `ack_many`."""
        return await self._report_many("nack", [_NackItem(task.id, task.token, e) for task, e in failures])

    async def heartbeat_many(
        self, tasks: Iterable[Task], visibility_s: float | None = None
    ) -> list[TaskResult]:
        """Extend the leases of tasks with one request, like `ack_many`."""
        options = {} if visibility_s is None else {"visibilityMs": _ms(visibility_s)}
        return await self._report_many("heartbeat", [_lease_item(task) for task in tasks], **options)

    async def give_back_many(self, tasks: Iterable[Task]) -> list[TaskResult]:
        """Return tasks without counting an attempt, with one request, like `ack_many`."""
        return await self._report_many("give-back", [_lease_item(task) for task in tasks])

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
        """Return a worker that calls the handler with each task of a queue, or of all run queues in turn.

        Await it to run it. A task is acked when its handler returns, and nacked with the error's text when it
        raises. `Worker` describes the guarantees.
        """
        from penstock.client.worker import Worker

        return Worker(
            self,
            queue,
            handler,
            registry=self._workers,
            settings=self._transport.settings,
            concurrency=concurrency,
            visibility_s=visibility_s,
            wait_s=wait_s,
            grace_s=grace_s,
            name=name,
            on_lost=on_lost,
            tracing=self._transport.tracing,
        )

    # State and limits

    async def get(self, task_id: str) -> TaskStatus:
        """Return the state of a task. Raises NotFound once it is finished or expired."""
        return (await self._transport.send("GET", f"/api/v1/tasks/{_quote(task_id)}")).read(_task_status)

    async def queues(self, *, search: str = "", limit: int = 100, offset: int = 0) -> list[RunQueue]:
        """Return a page of run queues by name."""
        parameters = {"limit": str(limit), "offset": str(offset)} | ({"search": search} if search else {})
        return (
            (await self._transport.send("GET", f"/api/v1/run-queues?{urlencode(parameters)}"))
            .read(_queues_response)
            .queues
        )

    async def queue(self, queue: str) -> RunQueue:
        """Return the state of a run queue. Raises NotFound if it does not exist."""
        return (await self._transport.send("GET", _path(queue))).read(_run_queue)

    async def delete_queue(self, queue: str) -> None:
        """Delete an empty queue and free its name. Raises WrongState if it has tasks."""
        await self._transport.send("DELETE", _path(queue))

    async def set_limit(self, queue: str, concurrency: int | None) -> RunQueue:
        """Set how many tasks of the queue may run at once, 1 or more; None removes the limit."""
        body = _encode({"concurrency": concurrency})
        return (await self._transport.send("PUT", f"{_path(queue)}/limits", body)).read(_run_queue)

    async def pause(self, queue: str) -> RunQueue:
        """Start no more tasks of the queue. Running tasks continue."""
        return (await self._transport.send("POST", f"{_path(queue)}/pause", b"")).read(_run_queue)

    async def resume(self, queue: str) -> RunQueue:
        return (await self._transport.send("POST", f"{_path(queue)}/resume", b"")).read(_run_queue)

    async def limits(self, environment: str = OWN_ENVIRONMENT) -> EnvironmentLimits:
        """Return the limit of the client's environment and the totals of its run queues."""
        path = f"/api/v1/environments/{_quote(environment)}/run-limits"
        return (await self._transport.send("GET", path)).read(_environment_limits)

    async def set_limits(
        self, concurrency: int | None, *, burst: float = 1.0, environment: str = OWN_ENVIRONMENT
    ) -> EnvironmentLimits:
        """Set how many tasks may run at once in all queues together: `concurrency` × `burst`."""
        path = f"/api/v1/environments/{_quote(environment)}/run-limits"
        body = _encode({"concurrency": concurrency, "burst": burst})
        return (await self._transport.send("PUT", path, body)).read(_environment_limits)

    async def dead_letters(self, queue: str, *, limit: int = 100, after: str | None = None) -> DeadTasks:
        """Return a page of dead tasks, oldest first."""
        parameters = {"limit": str(limit)} | ({} if after is None else {"after": after})
        return (
            await self._transport.send("GET", f"{_path(queue)}/dead-letters?{urlencode(parameters)}")
        ).read(_dead_tasks)

    async def redrive(self, queue: str, task_ids: Sequence[str] | None = None) -> int:
        """Run dead tasks again with all their attempts, these or all; return their number."""
        path = f"{_path(queue)}/dead-letters/redrive"
        return (await self._transport.send("POST", path, _selection(task_ids))).read(_count_response).redriven

    async def delete_dead(self, queue: str, task_ids: Sequence[str] | None = None) -> int:
        """Delete dead tasks, these or all; return their number."""
        response = await self._transport.send("DELETE", f"{_path(queue)}/dead-letters", _selection(task_ids))
        return response.read(_count_response).deleted

    async def _report(self, task: Task, verb: str, body: dict[str, object]) -> Settled:
        path = f"/api/v1/tasks/{_quote(task.id)}/{verb}"
        return (await self._transport.send("POST", path, _encode(body))).read(_task_state)

    async def _report_many(self, verb: str, items: Sequence[object], **options: int) -> list[TaskResult]:
        if not items:
            return []
        body = _encode({"tasks": items, **options})
        response = await self._transport.send("POST", f"/api/v1/tasks/{verb}", body)
        results = response.read(_results_response).results
        if response.uncertain:
            for result in results:
                msgspec.structs.force_setattr(result, "uncertain", not result.success)
        return results


def _task_item(task: NewTask) -> _TaskItem:
    """Convert a task to a request item. Raises TypeError if the payload cannot be encoded as JSON."""
    return _TaskItem(
        msgspec.Raw(_encode(task.payload)),
        task.priority,
        _ms(task.delay_s),
        None if task.ttl_s is None else _ms(task.ttl_s),
        task.idempotency_key,
        task.max_attempts,
        task.traceparent,
    )


def _lease_item(task: Task) -> dict[str, object]:
    return {"id": task.id, "token": task.token}


def _selection(task_ids: Sequence[str] | None) -> bytes:
    return _encode({"all": True} if task_ids is None else {"ids": list(task_ids)})


def _path(queue: str) -> str:
    return f"/api/v1/run-queues/{_quote(queue)}"


def _quote(segment: str) -> str:
    return quote(segment, safe="")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
