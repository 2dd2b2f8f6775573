"""Tasks in the hands of workers: ack, nack, heartbeat, give back, one or many; and a look at one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http import request_parsing
from penstock.api.http.request_parsing import request_body_schema
from penstock.api.http.response import HotResponse, json_response
from penstock.api.schemas import task_bodies
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.task_model import Lease

router = APIRouter(prefix="/api/v1/tasks", tags=["tasks"])


async def ack(services: Services, task_id: str, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.ack_body, raw)
    return _answer(
        task_bodies.settled(await services.run_queues.ack(DEFAULT_SCOPE, Lease(task_id, body.token)))
    )


async def nack(services: Services, task_id: str, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.nack_body, raw)
    result = await services.run_queues.nack(DEFAULT_SCOPE, task_bodies.nack_of(task_id, body))
    return _answer(task_bodies.settled(result))


async def heartbeat(services: Services, task_id: str, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.heartbeat_body, raw)
    result = await services.run_queues.heartbeat(DEFAULT_SCOPE, Lease(task_id, body.token), body.visibilityMs)
    return _answer(task_bodies.settled(result))


async def give_back(services: Services, task_id: str, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.ack_body, raw)
    [result] = await services.run_queues.give_back(DEFAULT_SCOPE, [Lease(task_id, body.token)])
    if isinstance(result, Exception):
        raise result
    return _answer(task_bodies.settled(result))


async def ack_many(services: Services, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.leases_body, raw)
    results = await services.run_queues.ack_many(DEFAULT_SCOPE, task_bodies.leases(body))
    return _answer(task_bodies.outcomes([item.id for item in body.tasks], results))


async def nack_many(services: Services, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.nacks_body, raw)
    nacks = [task_bodies.nack_of(item.id, item) for item in body.tasks]
    results = await services.run_queues.nack_many(DEFAULT_SCOPE, nacks)
    return _answer(task_bodies.outcomes([item.id for item in body.tasks], results))


async def heartbeat_many(services: Services, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.heartbeats_body, raw)
    results = await services.run_queues.heartbeat_many(
        DEFAULT_SCOPE, task_bodies.leases(body), body.visibilityMs
    )
    return _answer(task_bodies.outcomes([item.id for item in body.tasks], results))


async def give_back_many(services: Services, raw: bytes) -> HotResponse:
    body = request_parsing.decode(task_bodies.leases_body, raw)
    results = await services.run_queues.give_back(DEFAULT_SCOPE, task_bodies.leases(body))
    return _answer(task_bodies.outcomes([item.id for item in body.tasks], results))


def _answer(body: Any) -> HotResponse:
    return HotResponse(200, encode(body))


Settling = Callable[[Services, str, bytes], Awaitable[HotResponse]]

SINGLE: dict[str, Settling] = {
    "ack": ack,
    "nack": nack,
    "heartbeat": heartbeat,
    "give-back": give_back,
}
MANY: dict[str, Callable[[Services, bytes], Awaitable[HotResponse]]] = {
    "ack": ack_many,
    "nack": nack_many,
    "heartbeat": heartbeat_many,
    "give-back": give_back_many,
}


@router.get("/{task_id}")
async def get_task(request: Request, task_id: str) -> Response:
    """A task as it is now; 404 once it is finished or expired."""
    task = await get_services(request).run_queues.task(DEFAULT_SCOPE, task_id)
    return json_response(task_bodies.described(task))


@router.post("/{task_id}/ack", openapi_extra=request_body_schema(task_bodies.AckBody))
async def ack_task(request: Request, task_id: str) -> Response:
    """Finish a task under its token: it is done, and gone."""
    return await _single(request, task_id, "ack")


@router.post("/{task_id}/nack", openapi_extra=request_body_schema(task_bodies.NackBody))
async def nack_task(request: Request, task_id: str) -> Response:
    """A failed attempt: tried again with growing delay, or after `delayMs`; dead past its attempts."""
    return await _single(request, task_id, "nack")


@router.post("/{task_id}/heartbeat", openapi_extra=request_body_schema(task_bodies.HeartbeatBody))
async def heartbeat_task(request: Request, task_id: str) -> Response:
    """Hold a task for another `visibilityMs` from now."""
    return await _single(request, task_id, "heartbeat")


@router.post("/{task_id}/give-back", openapi_extra=request_body_schema(task_bodies.AckBody))
async def give_back_task(request: Request, task_id: str) -> Response:
    """Return a task nobody has begun: at its old place, the attempt not counted."""
    return await _single(request, task_id, "give-back")


@router.post("/ack", openapi_extra=request_body_schema(task_bodies.LeasesBody))
async def ack_tasks(request: Request) -> Response:
    """Finish tasks, each on its own; one result each, in order."""
    return await _many(request, "ack")


@router.post("/nack", openapi_extra=request_body_schema(task_bodies.NacksBody))
async def nack_tasks(request: Request) -> Response:
    """Failed attempts, each on its own; one result each, in order."""
    return await _many(request, "nack")


@router.post("/heartbeat", openapi_extra=request_body_schema(task_bodies.HeartbeatsBody))
async def heartbeat_tasks(request: Request) -> Response:
    """Hold tasks for longer, each on its own; one result each, in order."""
    return await _many(request, "heartbeat")


@router.post("/give-back", openapi_extra=request_body_schema(task_bodies.LeasesBody))
async def give_back_tasks(request: Request) -> Response:
    """Return tasks nobody has begun, each on its own; one result each, in order."""
    return await _many(request, "give-back")


async def _single(request: Request, task_id: str, verb: str) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    return (await SINGLE[verb](services, task_id, raw)).to_response()


async def _many(request: Request, verb: str) -> Response:
    services = get_services(request)
    raw = await request_parsing.read_body(request)
    return (await MANY[verb](services, raw)).to_response()
