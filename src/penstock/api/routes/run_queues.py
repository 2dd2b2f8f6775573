"""Routes of run queues: state, limits, pauses and their current tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypedDict

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import (
    ConfigureAccess,
    OperateAccess,
    ReadAccess,
    check_environment,
)
from penstock.api.annotated_change import (
    annotate_change,
    annotate_pause,
    describe_limit,
)
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Label, Limit, Offset, Queue, Search, refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.run_queue_quota import run_queue_within_quotas
from penstock.api.schemas import task_bodies
from penstock.api.services import Services, get_services
from penstock.caller import Caller
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import UnknownEnvironment, UnknownQueue, WrongState
from penstock.model import Scope
from penstock.runqueue.limits import check_concurrency_limit
from penstock.runqueue.task_model import EnvironmentState, QueueState

router = APIRouter(prefix="/api/v1", tags=["run queues"], dependencies=[Depends(refuse_unknown_parameters)])


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
