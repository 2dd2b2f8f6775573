"""Routes for the dead tasks of one run queue: list, redrive and delete them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import (
    OperateAccess,
    ReadAccess,
)
from penstock.api.annotated_change import (
    annotate_change,
    annotate_single_requeue,
)
from penstock.api.audited_change import audit_change
from penstock.api.http.parameters import Limit, Queue, refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.schemas import task_bodies
from penstock.api.services import get_services
from penstock.errors import InvalidRequest, UnknownQueue

router = APIRouter(prefix="/api/v1", tags=["run queues"], dependencies=[Depends(refuse_unknown_parameters)])


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
