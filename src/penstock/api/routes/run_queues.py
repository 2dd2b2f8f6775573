"""Run queues: enqueue and dequeue; what there is, limits, pauses and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http import request_parsing
from penstock.api.http.disconnect import unless_disconnected
from penstock.api.http.parameters import Label, Limit, Offset, Queue, Search
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import HotResponse, json_response
from penstock.api.schemas import task_bodies
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.errors import InvalidRequest
from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.task_model import EnvironmentState, QueueState

router = APIRouter(prefix="/api/v1", tags=["run queues"])

NO_TASKS = HotResponse(200, b'{"tasks":[]}')


async def enqueue(services: Services, queue: str, raw: bytes) -> HotResponse:
    tasks = task_bodies.new_tasks(request_parsing.decode(task_bodies.enqueue_body, raw))
    await services.queue_names.ensure_not_durable_queue(DEFAULT_SCOPE, queue)
    results = await services.run_queues.enqueue(DEFAULT_SCOPE, queue, tasks)
    return HotResponse(201, encode(task_bodies.enqueued(results)))


async def dequeue(
    services: Services, queue: str | None, raw: bytes, client_disconnected: Callable[[], bool] = lambda: False
) -> HotResponse:
    """The answer to a dequeue, of one queue or of all in turn; given back if the worker has left by then."""
    body = task_bodies.DequeueBody()
    if raw.strip():
        body = request_parsing.decode(task_bodies.dequeue_body, raw)
    tasks = await services.run_queues.dequeue(
        DEFAULT_SCOPE,
        queue,
        limit=body.limit,
        visibility_ms=body.visibilityMs,
        wait_ms=body.waitMs,
        worker=body.worker,
    )
    if tasks and client_disconnected():
        # The server cancels what it does for a client when it notices that it has left; not this.
        await asyncio.shield(services.run_queues.give_back(DEFAULT_SCOPE, [task.lease for task in tasks]))
        return NO_TASKS
    return HotResponse(200, encode(task_bodies.dequeued(tasks)))


@router.post(
    "/run-queues/{queue}/tasks", status_code=201, openapi_extra=request_body_schema(task_bodies.EnqueueBody)
)
async def enqueue_tasks(request: Request, queue: Queue) -> Response:
    """Add a task, or with `tasks` many, in order, all or none. The queue is made by its first task."""
    services = get_services(request)
    return (await enqueue(services, queue, await request_parsing.read_body(request))).to_response()


@router.post(
    "/run-queues/{queue}/dequeue",
    openapi_extra=request_body_schema(task_bodies.DequeueBody, required=False),
)
async def dequeue_tasks(request: Request, queue: Queue) -> Response:
    """Take tasks of a queue, within its limit and the environment's, and hold them until `heldUntil`."""
    return await _taken(request, queue)


@router.post(
    "/run-queues/dequeue", openapi_extra=request_body_schema(task_bodies.DequeueBody, required=False)
)
async def dequeue_of_any_queue(request: Request) -> Response:
    """The same of all run queues, in turn."""
    return await _taken(request, None)


async def _taken(request: Request, queue: str | None) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    left = asyncio.Event()
    work = dequeue(services, queue, raw, left.is_set)
    answer = await unless_disconnected(request, work, left.set)
    return (answer or NO_TASKS).to_response()


@router.get("/run-queues")
async def list_run_queues(
    request: Request, search: Search = None, limit: Limit = 100, offset: Offset = 0
) -> dict[str, Any]:
    """A page of the run queues by name, with what they hold, and the environment's limit."""
    services = get_services(request)
    found = await services.run_queues.queues(DEFAULT_SCOPE)
    if search:
        found = [state for state in found if search.casefold() in state.queue.casefold()]
    environment = await services.run_queues.environment(DEFAULT_SCOPE)
    return {
        "queues": [queue_state(state) for state in found[offset : offset + limit]],
        "total": len(found),
        "limit": limit,
        "offset": offset,
        "environment": _environment_state(environment),
    }


@router.get("/run-queues/{queue}")
async def get_run_queue(request: Request, queue: Queue) -> dict[str, Any]:
    """One run queue, now."""
    return queue_state(await get_services(request).run_queues.queue(DEFAULT_SCOPE, queue))


@router.delete("/run-queues/{queue}")
async def delete_run_queue(request: Request, queue: Queue) -> dict[str, Any]:
    """Forget a run queue that holds no task, dead ones included: its limit, its pause and its name."""
    services = get_services(request)
    await services.run_queues.delete_queue(DEFAULT_SCOPE, queue)
    services.queue_names.invalidate_run_queue(DEFAULT_SCOPE, queue)
    return {"deleted": True, "queue": queue}


@router.put("/run-queues/{queue}/limits", openapi_extra=request_body_schema(task_bodies.LimitsBody))
async def set_limits(request: Request, queue: Queue) -> dict[str, Any]:
    """How many tasks of the queue may run at once: null for no limit. Takes effect at once."""
    services = get_services(request)
    body = await read_json(request, task_bodies.limits_body)
    await services.queue_names.ensure_not_durable_queue(DEFAULT_SCOPE, queue)
    return queue_state(await services.run_queues.set_queue_limit(DEFAULT_SCOPE, queue, body.concurrency))


@router.post("/run-queues/{queue}/pause")
async def pause(request: Request, queue: Queue) -> dict[str, Any]:
    """Hand out nothing more of the queue; what runs goes on, and tasks may be enqueued."""
    services = get_services(request)
    await services.queue_names.ensure_not_durable_queue(DEFAULT_SCOPE, queue)
    return queue_state(await services.run_queues.pause(DEFAULT_SCOPE, queue))


@router.post("/run-queues/{queue}/resume")
async def resume(request: Request, queue: Queue) -> dict[str, Any]:
    """Hand out again."""
    services = get_services(request)
    await services.queue_names.ensure_not_durable_queue(DEFAULT_SCOPE, queue)
    return queue_state(await services.run_queues.resume(DEFAULT_SCOPE, queue))


@router.get("/environments/{environment}/run-limits")
async def get_environment_limits(request: Request, environment: Label) -> dict[str, Any]:
    """The limit of all run queues of an environment together, and how much of it is used."""
    scope = DEFAULT_SCOPE._replace(environment=environment)
    return _environment_state(await get_services(request).run_queues.environment(scope))


@router.put(
    "/environments/{environment}/run-limits",
    openapi_extra=request_body_schema(task_bodies.EnvironmentLimitsBody),
)
async def set_environment_limits(request: Request, environment: Label) -> dict[str, Any]:
    """How many tasks may run at once in all queues together: `concurrency` × `burst`, and in one queue
    `concurrency`."""
    body = await read_json(request, task_bodies.environment_limits_body)
    scope = DEFAULT_SCOPE._replace(environment=environment)
    state = await get_services(request).run_queues.set_environment_limit(scope, body.concurrency, body.burst)
    return _environment_state(state)


@router.get("/run-queues/{queue}/dead-letters")
async def list_dead_tasks(
    request: Request,
    queue: Queue,
    limit: Limit = 100,
    after: Annotated[str | None, Query(max_length=255, description="`next` of the page before")] = None,
) -> Response:
    """A page of tasks that used up their attempts, the oldest first, with their payloads and last errors."""
    services = get_services(request)
    page = await services.run_queues.dead_letters(DEFAULT_SCOPE, queue, limit=limit, after=after)
    state = await services.run_queues.queue(DEFAULT_SCOPE, queue)
    return json_response(
        {
            "tasks": [task_bodies.described(task) for task in page.tasks],
            "total": state.dead,
            "next": page.next,
        }
    )


@router.post(
    "/run-queues/{queue}/dead-letters/redrive", openapi_extra=request_body_schema(task_bodies.DeadBody)
)
async def redrive(request: Request, queue: Queue) -> Response:
    """Let dead tasks run again with all their attempts: `ids`, or `all` that are dead now."""
    run_queues = get_services(request).run_queues
    ids = await _dead_ids(request)
    if ids is None:
        return json_response({"redriven": await run_queues.redrive_all(DEFAULT_SCOPE, queue)})
    results = task_bodies.outcomes(ids, await run_queues.redrive(DEFAULT_SCOPE, queue, ids)).results
    return json_response({"redriven": sum(result["success"] for result in results), "results": results})


@router.delete("/run-queues/{queue}/dead-letters", openapi_extra=request_body_schema(task_bodies.DeadBody))
async def delete_dead_tasks(request: Request, queue: Queue) -> Response:
    """Delete dead tasks: `ids`, or `all` that are dead now."""
    run_queues = get_services(request).run_queues
    ids = await _dead_ids(request)
    if ids is None:
        return json_response({"deleted": await run_queues.purge_dead(DEFAULT_SCOPE, queue)})
    results = task_bodies.outcomes(ids, await run_queues.delete_dead(DEFAULT_SCOPE, queue, ids)).results
    return json_response({"deleted": sum(result["success"] for result in results), "results": results})


async def _dead_ids(request: Request) -> list[str] | None:
    """Which dead tasks are meant; None for all of them, which must be said."""
    body = await read_json(request, task_bodies.dead_body)
    if isinstance(body.ids, list) and not body.all:
        return body.ids
    if body.all and body.ids is UNSET:
        return None
    raise InvalidRequest('say which dead tasks are meant: {"ids": [...]} or {"all": true}', field="ids")


def queue_state(state: QueueState) -> dict[str, Any]:
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


def _environment_state(state: EnvironmentState) -> dict[str, Any]:
    return {
        "queues": state.queues,
        "depth": state.eligible,
        "delayed": state.delayed,
        "running": state.running,
        "concurrency": state.limit,
        "burst": state.burst,
        "oldestAgeMs": state.oldest_age_ms,
    }
