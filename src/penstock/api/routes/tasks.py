"""Routes of leased tasks: ack, nack, heartbeat and release, for one task or many; and reading one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import LeaseAccess, ReadAccess
from penstock.api.http import request_parsing
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.http.reply import Handler, PendingRequest, Reply, respond
from penstock.api.http.request_parsing import request_body_schema
from penstock.api.http.response import HotResponse, json_response
from penstock.api.problems import problem_responses
from penstock.api.schemas import task_bodies
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.caller import Caller
from penstock.errors import LeaseLost, Overloaded, UnknownTask
from penstock.runqueue.task_ack import raise_error
from penstock.runqueue.task_model import Lease, TaskOutcome

router = APIRouter(prefix="/api/v1/tasks", tags=["tasks"], dependencies=[Depends(refuse_unknown_parameters)])


class _TaskRequest(PendingRequest):
    """A change of one task."""

    __slots__ = ()

    def finish(self, result: list[TaskOutcome]) -> HotResponse:
        [outcome] = result
        return HotResponse(200, encode(task_bodies.task_change_response(raise_error(outcome))))


class _TasksRequest(PendingRequest):
    """A change of many tasks, each on its own."""

    __slots__ = ("ids",)

    def __init__(self, items: Sequence[task_bodies.LeaseItem | task_bodies.NackItem]) -> None:
        self.ids = [item.id for item in items]

    def finish(self, result: list[TaskOutcome]) -> HotResponse:
        return HotResponse(200, encode(task_bodies.task_results(self.ids, result)))


def ack(services: Services, caller: Caller, task_id: str, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.lease_decoder, raw)
    reply.pending_request = _TaskRequest()
    services.run_queues.start_ack(caller.environment, [Lease(task_id, body.token)], reply)


def nack(services: Services, caller: Caller, task_id: str, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.nack_decoder, raw)
    reply.pending_request = _TaskRequest()
    services.run_queues.start_nack(caller.environment, [task_bodies.to_nack(task_id, body)], reply)


def heartbeat(services: Services, caller: Caller, task_id: str, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.heartbeat_decoder, raw)
    reply.pending_request = _TaskRequest()
    leases = [Lease(task_id, body.token)]
    services.run_queues.start_heartbeat(caller.environment, leases, body.visibilityMs, reply)


def release(services: Services, caller: Caller, task_id: str, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.lease_decoder, raw)
    reply.pending_request = _TaskRequest()
    services.run_queues.start_release(caller.environment, [Lease(task_id, body.token)], reply)


def ack_many(services: Services, caller: Caller, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.leases_decoder, raw)
    reply.pending_request = _TasksRequest(body.tasks)
    services.run_queues.start_ack(caller.environment, task_bodies.to_leases(body), reply)


def nack_many(services: Services, caller: Caller, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.nacks_decoder, raw)
    reply.pending_request = _TasksRequest(body.tasks)
    nacks = [task_bodies.to_nack(item.id, item) for item in body.tasks]
    services.run_queues.start_nack(caller.environment, nacks, reply)


def heartbeat_many(services: Services, caller: Caller, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.heartbeats_decoder, raw)
    reply.pending_request = _TasksRequest(body.tasks)
    leases = task_bodies.to_leases(body)
    services.run_queues.start_heartbeat(caller.environment, leases, body.visibilityMs, reply)


def release_many(services: Services, caller: Caller, raw: bytes, reply: Reply) -> None:
    body = request_parsing.decode(task_bodies.leases_decoder, raw)
    reply.pending_request = _TasksRequest(body.tasks)
    services.run_queues.start_release(caller.environment, task_bodies.to_leases(body), reply)


SINGLE: dict[str, Callable[[Services, Caller, str, bytes, Reply], None]] = {
    "ack": ack,
    "nack": nack,
    "heartbeat": heartbeat,
    "give-back": release,
}
"""Handlers of one task by the last segment of the URL. They need no task of their own."""
MANY: dict[str, Handler] = {
    "ack": ack_many,
    "nack": nack_many,
    "heartbeat": heartbeat_many,
    "give-back": release_many,
}
"""Handlers of many tasks by the last segment of the URL."""


def single_handler(verb: str, task_id: str) -> Handler:
    """The handler of a URL that names one task."""
    handle = SINGLE[verb]
    return lambda services, caller, body, reply: handle(services, caller, task_id, body, reply)


@router.get("/{task_id}", responses=problem_responses(UnknownTask))
async def get_task(request: Request, caller: ReadAccess, task_id: str) -> Response:
    """Read a task; 404 once it is finished or expired."""
    task = await get_services(request).run_queues.get_task(caller.environment, task_id)
    return json_response(task_bodies.task_detail(caller, task))


@router.post(
    "/{task_id}/ack",
    responses=problem_responses(UnknownTask, LeaseLost, Overloaded),
    openapi_extra=request_body_schema(task_bodies.TaskLeaseBody),
)
async def ack_task(request: Request, caller: LeaseAccess, task_id: str) -> Response:
    """Finish a task under the token of its lease. The task is deleted."""
    return await _handle_one(request, caller, task_id, "ack")


@router.post(
    "/{task_id}/nack",
    responses=problem_responses(UnknownTask, LeaseLost, Overloaded),
    openapi_extra=request_body_schema(task_bodies.NackBody),
)
async def nack_task(request: Request, caller: LeaseAccess, task_id: str) -> Response:
    """Report a failed attempt. The task is retried with backoff or after `delayMs`; it is dead once its
    attempts are used up."""
    return await _handle_one(request, caller, task_id, "nack")


@router.post(
    "/{task_id}/heartbeat",
    responses=problem_responses(UnknownTask, LeaseLost, Overloaded),
    openapi_extra=request_body_schema(task_bodies.HeartbeatBody),
)
async def heartbeat_task(request: Request, caller: LeaseAccess, task_id: str) -> Response:
    """Extend the lease of a task to `visibilityMs` from now."""
    return await _handle_one(request, caller, task_id, "heartbeat")


@router.post(
    "/{task_id}/give-back",
    responses=problem_responses(UnknownTask, LeaseLost, Overloaded),
    openapi_extra=request_body_schema(task_bodies.TaskLeaseBody),
)
async def give_back_task(request: Request, caller: LeaseAccess, task_id: str) -> Response:
    """Return a task that no worker has started. It keeps its place, and the attempt is not counted."""
    return await _handle_one(request, caller, task_id, "give-back")


@router.post(
    "/ack", responses=problem_responses(Overloaded), openapi_extra=request_body_schema(task_bodies.LeasesBody)
)
async def ack_tasks(request: Request, caller: LeaseAccess) -> Response:
    """Finish tasks, each on its own; one result each, in order."""
    return await _handle_many(request, caller, "ack")


@router.post(
    "/nack", responses=problem_responses(Overloaded), openapi_extra=request_body_schema(task_bodies.NacksBody)
)
async def nack_tasks(request: Request, caller: LeaseAccess) -> Response:
    """Report failed attempts, each on its own; one result each, in order."""
    return await _handle_many(request, caller, "nack")


@router.post(
    "/heartbeat",
    responses=problem_responses(Overloaded),
    openapi_extra=request_body_schema(task_bodies.HeartbeatsBody),
)
async def heartbeat_tasks(request: Request, caller: LeaseAccess) -> Response:
    """Extend the leases of tasks, each on its own; one result each, in order."""
    return await _handle_many(request, caller, "heartbeat")


@router.post(
    "/give-back",
    responses=problem_responses(Overloaded),
    openapi_extra=request_body_schema(task_bodies.LeasesBody),
)
async def give_back_tasks(request: Request, caller: LeaseAccess) -> Response:
    """Return tasks that no worker has started, each on its own; one result each, in order."""
    return await _handle_many(request, caller, "give-back")


async def _handle_one(request: Request, caller: Caller, task_id: str, verb: str) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), caller, single_handler(verb, task_id), raw)).to_response()


async def _handle_many(request: Request, caller: Caller, verb: str) -> Response:
    raw = await request_parsing.read_body(request)
    return (await respond(get_services(request), caller, MANY[verb], raw)).to_response()
