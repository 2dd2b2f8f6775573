"""Routes of run queues: enqueue and dequeue; state, limits, pauses and dead tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

from fastapi import APIRouter, Depends, Query
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import (
    ConfigureAccess,
    ConsumeAccess,
    OperateAccess,
    ProduceAccess,
    ReadAccess,
    check_environment,
)
from penstock.api.annotated_change import (
    annotate_change,
    annotate_pause,
    annotate_single_requeue,
    describe_limit,
)
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http import request_parsing
from penstock.api.http.disconnect import unless_disconnected
from penstock.api.http.parameters import Label, Limit, Offset, Queue, Search, refuse_unknown_parameters
from penstock.api.http.reply import PendingRequest, Reply, respond
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import HotResponse, json_response
from penstock.api.problems import problem_responses
from penstock.api.run_queue_quota import run_queue_within_quotas
from penstock.api.schemas import task_bodies
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.caller import Caller, CountedWait
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import InvalidRequest, Overloaded, UnknownEnvironment, UnknownQueue, WrongState
from penstock.model import Scope
from penstock.runqueue.limits import check_concurrency_limit
from penstock.runqueue.pending_dequeue import PendingDequeue
from penstock.runqueue.task_model import EnqueueResult, EnvironmentState, NewTask, QueueState, RunningTask

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
        if caller.quotas is not None and caller.quotas.limits_queues:
            return self._enqueue_within_quotas(services, caller, tasks, len(body))
        if caller.quotas is not None and caller.quotas.limits_storage:
            caller.quotas.admit_messages(len(tasks), len(body))
        run_queues = services.run_queues
        if not (
            run_queues.knows_shards
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
        if not services.run_queues.knows_shards:
            return self._load_shards_and_dequeue(services, caller, body, reply)
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

    async def _load_shards_and_dequeue(
        self, services: Services, caller: Caller, body: bytes, reply: Reply
    ) -> HotResponse:
        await services.run_queues.load_shards()
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


@router.get("/run-queues")
async def list_run_queues(
    request: Request, caller: ReadAccess, search: Search = None, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """A page of the run queues by name, with their state, and the state of the environment."""
    services = get_services(request)
    states = await services.run_queues.list_queues(caller.environment)
    if search:
        states = [state for state in states if search.casefold() in state.queue.casefold()]
    environment = await services.run_queues.get_environment(caller.environment)
    return {
        "queues": [queue_state_to_dict(state) for state in states[offset : offset + limit]],
        "total": len(states),
        "limit": limit,
        "offset": offset,
        "environment": _environment_state_to_dict(environment),
    }


@router.get("/run-queues/{queue}", responses=problem_responses(UnknownQueue, WrongState))
async def get_run_queue(request: Request, caller: ReadAccess, queue: Queue) -> dict[str, object]:
    """Read the state of one run queue."""
    state = await get_services(request).run_queues.get_queue(caller.environment, queue)
    return {**queue_state_to_dict(state), "asOf": iso(to_utc(system_clock()))}


@router.delete("/run-queues/{queue}", responses=problem_responses(UnknownQueue, WrongState))
async def delete_run_queue(request: Request, caller: ConfigureAccess, queue: Queue) -> dict[str, object]:
    """Delete a run queue that holds no task, not even a dead one: its limit, its pause and its name."""
    services = get_services(request)
    before = await _read_settings(services, caller, queue)
    await services.run_queues.delete_queue(caller.environment, queue)
    audit_change(request, before=before)
    services.queue_names.invalidate_run_queue(caller.environment, queue)
    return {"deleted": True, "queue": queue}


@router.put(
    "/run-queues/{queue}/limits",
    responses=problem_responses(WrongState),
    openapi_extra=request_body_schema(task_bodies.LimitsBody),
)
async def set_limits(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Set how many tasks of the queue may run at once; null removes the limit. Takes effect at once.

    0 is refused: pause the queue to start none of its tasks.
    """
    services = get_services(request)
    body = await read_json(request, task_bodies.limits_decoder)
    check_concurrency_limit(body.concurrency)
    await services.queue_names.ensure_not_durable_queue(caller.environment, queue)
    before = await _read_settings(services, caller, queue)
    async with run_queue_within_quotas(services, caller, queue):
        state = await services.run_queues.set_queue_limit(caller.environment, queue, body.concurrency)
    audit_change(request, before=before, after=_settings_of(state))
    limit_before = before["concurrency"] if before else None
    if limit_before != state.limit:
        await annotate_change(
            request, caller, "limit", describe_limit(limit_before, state.limit), queue=queue
        )
    return queue_state_to_dict(state)


@router.post("/run-queues/{queue}/pause", responses=problem_responses(UnknownQueue, WrongState))
async def pause(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Stop handing out tasks of the queue. Running tasks continue, and tasks can be enqueued."""
    return await _set_paused(request, caller, queue, get_services(request).run_queues.pause)


@router.post("/run-queues/{queue}/resume", responses=problem_responses(UnknownQueue, WrongState))
async def resume(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Hand out tasks of a paused queue again."""
    return await _set_paused(request, caller, queue, get_services(request).run_queues.resume)


@router.post("/run-queues/{queue}/purge", responses=problem_responses(UnknownQueue, WrongState))
async def purge(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Drop the tasks of the queue that wait or are delayed. Running and dead tasks stay.

    Metrics count the dropped tasks as expired. Tasks that are enqueued meanwhile may be dropped too.
    """
    services = get_services(request)
    await services.queue_names.ensure_not_durable_queue(caller.environment, queue)
    purged = await services.run_queues.purge(caller.environment, queue)
    audit_change(request, after={"purged": purged})
    await annotate_change(request, caller, "purge", f"Purged: {purged:,} tasks", queue=queue)
    return {"queue": queue, "purged": purged}


@router.get("/environments/{environment}/run-limits", responses=problem_responses(UnknownEnvironment))
async def get_environment_limits(
    request: Request, caller: ReadAccess, environment: Label
) -> dict[str, object]:
    """Read the limit that all run queues of an environment share, and how much of it is used."""
    check_environment(caller, environment)
    state = await get_services(request).run_queues.get_environment(caller.environment)
    return _environment_state_to_dict(state)


@router.put(
    "/environments/{environment}/run-limits",
    responses=problem_responses(UnknownEnvironment),
    openapi_extra=request_body_schema(task_bodies.EnvironmentLimitsBody),
)
async def set_environment_limits(
    request: Request, caller: ConfigureAccess, environment: Label
) -> dict[str, object]:
    """Set how many tasks may run at once: `concurrency` × `burst` in all queues together, and `concurrency`
    in any one queue."""
    body = await read_json(request, task_bodies.environment_limits_decoder)
    check_environment(caller, environment)
    run_queues = get_services(request).run_queues
    before = await run_queues.get_environment(caller.environment)
    state = await run_queues.set_environment_limit(caller.environment, body.concurrency, body.burst)
    audit_change(
        request,
        before={"concurrency": before.limit, "burst": before.burst},
        after={"concurrency": state.limit, "burst": state.burst},
    )
    if (before.limit, before.burst) != (state.limit, state.burst):
        text = f"{describe_limit(before.limit, state.limit)} in the environment, burst {state.burst:g}"
        await annotate_change(request, caller, "limit", text, queue=None)
    return _environment_state_to_dict(state)


@router.get("/run-queues/{queue}/tasks", responses=problem_responses(UnknownQueue, WrongState))
async def list_current_tasks(
    request: Request,
    caller: ReadAccess,
    queue: Queue,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of tasks of each state")] = 20,
) -> Response:
    """List some tasks that run, the next ones to run, and some that are delayed, with their payloads."""
    tasks = await get_services(request).run_queues.list_current_tasks(caller.environment, queue, limit)
    return json_response({"tasks": [task_bodies.task_detail(caller, task) for task in tasks]})


@router.get("/run-queues/{queue}/dead-letters", responses=problem_responses(UnknownQueue))
async def list_dead_tasks(
    request: Request,
    caller: ReadAccess,
    queue: Queue,
    limit: Limit = 100,
    after: Annotated[str | None, Query(max_length=255, description="`next` of the previous page")] = None,
) -> Response:
    """A page of tasks that used up their attempts, the oldest first, with their payloads and last errors."""
    services = get_services(request)
    page = await services.run_queues.list_dead_tasks(caller.environment, queue, limit=limit, after=after)
    state = await services.run_queues.get_queue(caller.environment, queue)
    return json_response(
        {
            "tasks": [task_bodies.task_detail(caller, task) for task in page.tasks],
            "total": state.dead,
            "next": page.next,
        }
    )


@router.post(
    "/run-queues/{queue}/dead-letters/redrive",
    responses=problem_responses(UnknownQueue),
    openapi_extra=request_body_schema(task_bodies.DeadTasksBody),
)
async def redrive(request: Request, caller: OperateAccess, queue: Queue) -> Response:
    """Run dead tasks again with all their attempts: those in `ids`, or `all` that are dead now."""
    run_queues = get_services(request).run_queues
    ids = await _read_dead_task_ids(request)
    if ids is None:
        redriven = await run_queues.redrive_all(caller.environment, queue)
        audit_change(request, after={"redriven": redriven}, all=True)
        if redriven:
            text = f"Requeued: {redriven:,} dead tasks"
            await annotate_change(request, caller, "requeue", text, queue=queue)
        return json_response({"redriven": redriven})
    results = task_bodies.task_results(ids, await run_queues.redrive(caller.environment, queue, ids)).results
    redriven = sum(result.success for result in results)
    audit_change(request, after={"redriven": redriven, "ids": ids})
    if redriven:
        await annotate_single_requeue(request, caller, queue)
    return json_response({"redriven": redriven, "results": results})


@router.delete(
    "/run-queues/{queue}/dead-letters",
    responses=problem_responses(UnknownQueue),
    openapi_extra=request_body_schema(task_bodies.DeadTasksBody),
)
async def delete_dead_tasks(request: Request, caller: OperateAccess, queue: Queue) -> Response:
    """Delete dead tasks: those in `ids`, or `all` that are dead now."""
    run_queues = get_services(request).run_queues
    ids = await _read_dead_task_ids(request)
    if ids is None:
        deleted = await run_queues.purge_dead(caller.environment, queue)
        audit_change(request, after={"deleted": deleted}, all=True)
        return json_response({"deleted": deleted})
    results = task_bodies.task_results(
        ids, await run_queues.delete_dead(caller.environment, queue, ids)
    ).results
    deleted = sum(result.success for result in results)
    audit_change(request, after={"deleted": deleted, "ids": ids})
    return json_response({"deleted": deleted, "results": results})


async def _read_dead_task_ids(request: Request) -> list[str] | None:
    """The ids of the body; None if it asks for all dead tasks, which it must do explicitly."""
    body = await read_json(request, task_bodies.dead_tasks_decoder)
    if isinstance(body.ids, list) and not body.all:
        return body.ids
    if body.all and body.ids is UNSET:
        return None
    raise InvalidRequest(
        'The body does not say which dead tasks. Send {"ids": [...]} or {"all": true}.', field="ids"
    )


async def _set_paused(
    request: Request,
    caller: Caller,
    queue: str,
    pause_or_resume: Callable[[Scope, str], Awaitable[QueueState]],
) -> dict[str, object]:
    services = get_services(request)
    await services.queue_names.ensure_not_durable_queue(caller.environment, queue)
    before = await _read_settings(services, caller, queue)
    state = await pause_or_resume(caller.environment, queue)
    audit_change(request, before=before, after=_settings_of(state))
    if before and before["paused"] != state.paused:
        await annotate_pause(request, caller, queue, state.paused)
    return queue_state_to_dict(state)


class QueueSettings(TypedDict):
    """What can be set of a queue."""

    concurrency: int | None
    paused: bool


async def _read_settings(services: Services, caller: Caller, queue: str) -> QueueSettings | None:
    """Return what can be set of a queue; None if it does not exist."""
    settings: QueueSettings | None = await state_before(
        services.run_queues.get_queue(caller.environment, queue), _settings_of
    )
    return settings


def _settings_of(state: QueueState) -> QueueSettings:
    return {"concurrency": state.limit, "paused": state.paused}


def queue_state_to_dict(state: QueueState) -> dict[str, object]:
    return {
        "name": state.queue,
        "depth": state.eligible,
        "delayed": state.delayed,
        "running": state.running,
        "dead": state.dead,
        "concurrency": state.limit,
        "paused": state.paused,
        "oldestAgeMs": state.oldest_age_ms,
    }


def _environment_state_to_dict(state: EnvironmentState) -> dict[str, object]:
    return {
        "queues": state.queues,
        "depth": state.eligible,
        "delayed": state.delayed,
        "running": state.running,
        "concurrency": state.limit,
        "burst": state.burst,
        "oldestAgeMs": state.oldest_age_ms,
    }
