"""Routes that enqueue tasks in run queues and lease them."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import (
    ConsumeAccess,
    ProduceAccess,
)
from penstock.api.http import request_parsing
from penstock.api.http.disconnect import unless_disconnected
from penstock.api.http.parameters import Queue, refuse_unknown_parameters
from penstock.api.http.reply import PendingRequest, Reply, respond
from penstock.api.http.request_parsing import request_body_schema
from penstock.api.http.response import HotResponse
from penstock.api.problems import problem_responses
from penstock.api.run_queue_quota import run_queue_within_quotas
from penstock.api.schemas import task_bodies
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.caller import Caller, CountedWait
from penstock.errors import InvalidRequest, Overloaded, WrongState
from penstock.log_format import request_ids
from penstock.runqueue.pending_dequeue import PendingDequeue
from penstock.runqueue.task_model import EnqueueResult, NewTask, RunningTask

router = APIRouter(prefix="/api/v1", tags=["run queues"], dependencies=[Depends(refuse_unknown_parameters)])

NO_TASKS = HotResponse(200, b'{"tasks":[]}')
_DEFAULT_OPTIONS = task_bodies.DequeueBody()


class _EnqueueRequest(PendingRequest):
    """An enqueue in its batch."""

    __slots__ = ()

    def finish(self, result: list[EnqueueResult]) -> HotResponse:
        return HotResponse(201, encode(task_bodies.enqueue_response(result)))


@dataclass(frozen=True, slots=True)
class EnqueueHandler:
    """The enqueue that a URL asks for; its tasks are in the body."""

    queue: str

    def __call__(
        self, services: Services, caller: Caller, body: bytes, reply: Reply
    ) -> Awaitable[HotResponse] | None:
        """Enqueue tasks, in a batch without a task of their own, unless a lookup has to be awaited first."""
        tasks = task_bodies.to_new_tasks(request_parsing.decode(task_bodies.enqueue_decoder, body))
        ids = request_ids.get()
        if ids is not None and ids.trace_context is not None:
            tasks = task_bodies.with_trace_context(tasks, ids.trace_context)
        if caller.quotas is not None and caller.quotas.limits_queues:
            return self._enqueue_within_quotas(services, caller, tasks, len(body))
        if caller.quotas is not None and caller.quotas.limits_storage:
            caller.quotas.admit_messages(len(tasks), len(body))
        run_queues = services.run_queues
        if not (
            run_queues.knows_shard(caller.environment)
            and services.queue_names.is_known_not_durable(caller.environment, self.queue)
        ):
            return self._look_up_and_enqueue(services, caller, tasks)
        reply.pending_request = _EnqueueRequest()
        run_queues.start_enqueue(caller.environment, self.queue, tasks, reply)
        return None

    async def _look_up_and_enqueue(
        self, services: Services, caller: Caller, tasks: Sequence[NewTask]
    ) -> HotResponse:
        await services.queue_names.ensure_not_durable_queue(caller.environment, self.queue)
        return _EnqueueRequest().finish(
            await services.run_queues.enqueue(caller.environment, self.queue, tasks)
        )

    async def _enqueue_within_quotas(
        self, services: Services, caller: Caller, tasks: Sequence[NewTask], size: int
    ) -> HotResponse:
        async with run_queue_within_quotas(services, caller, self.queue):
            assert caller.quotas is not None
            caller.quotas.admit_messages(len(tasks), size)
            return await self._look_up_and_enqueue(services, caller, tasks)


class _DequeueRequest(PendingRequest):
    """A dequeue in its batch, or waiting for tasks."""

    __slots__ = ("pending_dequeue", "reply", "waiting_pop")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.pending_dequeue: PendingDequeue
        self.waiting_pop: CountedWait | None = None

    def finish(self, result: list[RunningTask]) -> HotResponse:
        self.end_waiting()
        if result and self.reply.client_disconnected():
            self.abandon(result)
            return NO_TASKS
        return HotResponse(200, encode(task_bodies.dequeue_response(result)))

    def recover(self, error: Exception) -> None:
        self.end_waiting()

    def abandon(self, result: list[RunningTask]) -> None:
        self.end_waiting()
        self.pending_dequeue.abandon(result)

    def cancel(self) -> None:
        self.end_waiting()
        self.pending_dequeue.cancel()

    def end_waiting(self) -> None:
        if self.waiting_pop is not None:
            self.waiting_pop.end()


@dataclass(frozen=True, slots=True)
class DequeueHandler:
    """The dequeue that a URL asks for, of one queue or of all queues in turn; its options are in the body."""

    queue: str | None

    def __call__(
        self, services: Services, caller: Caller, body: bytes, reply: Reply
    ) -> Awaitable[HotResponse] | None:
        """Dequeue tasks, and wait for them, without a task of its own."""
        if not services.run_queues.knows_shard(caller.environment):
            return self._load_shard_and_dequeue(services, caller, body, reply)
        options = _DEFAULT_OPTIONS
        if body.strip():
            options = request_parsing.decode(task_bodies.dequeue_decoder, body)
        request = _DequeueRequest(reply)
        if caller.quotas is not None and options.waitMs:
            request.waiting_pop = caller.quotas.start_waiting()
        reply.pending_request = request
        try:
            request.pending_dequeue = services.run_queues.start_dequeue(
                caller.environment,
                self.queue,
                reply,
                limit=options.limit,
                visibility_ms=options.visibilityMs,
                wait_ms=options.waitMs,
                worker=options.worker,
                caller=caller,
            )
        except InvalidRequest:
            request.end_waiting()
            raise
        return None

    async def _load_shard_and_dequeue(
        self, services: Services, caller: Caller, body: bytes, reply: Reply
    ) -> HotResponse:
        await services.run_queues.load_shard(caller.environment)
        return await respond(services, caller, self, body, reply.client_disconnected)


@router.post(
    "/run-queues/{queue}/tasks",
    responses=problem_responses(WrongState, Overloaded),
    status_code=201,
    openapi_extra=request_body_schema(task_bodies.EnqueueBody),
)
async def enqueue_tasks(request: Request, caller: ProduceAccess, queue: Queue) -> Response:
    """Enqueue one task, or many with `tasks`: in order, all or none. The first task creates the queue."""
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), caller, EnqueueHandler(queue), raw)).to_response()


@router.post(
    "/run-queues/{queue}/dequeue",
    responses=problem_responses(WrongState, Overloaded),
    openapi_extra=request_body_schema(task_bodies.DequeueBody, required=False),
)
async def dequeue_tasks(request: Request, caller: ConsumeAccess, queue: Queue) -> Response:
    """Lease tasks of a queue until `heldUntil`, within the limits of the queue and of its environment."""
    return await _dequeue_while_connected(request, caller, queue)


@router.post(
    "/run-queues/dequeue",
    responses=problem_responses(Overloaded),
    openapi_extra=request_body_schema(task_bodies.DequeueBody, required=False),
)
async def dequeue_of_any_queue(request: Request, caller: ConsumeAccess) -> Response:
    """Lease tasks of all run queues, in turn."""
    return await _dequeue_while_connected(request, caller, None)


async def _dequeue_while_connected(request: Request, caller: Caller, queue: str | None) -> Response:
    raw = await request_parsing.read_body(request)
    response = await unless_disconnected(
        request, respond(get_services(request), caller, DequeueHandler(queue), raw)
    )
    return (response or NO_TASKS).to_response()
