"""Dead letters by other names: a channel is a queue, a consumer a group, a job a dead letter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.auth import get_guards
from penstock.api.http.parameters import Group, Limit, Offset, Queue
from penstock.api.http.response import HotResponse
from penstock.api.routes.dead_letter_jobs import accepted
from penstock.api.routes.dead_letters import LetterId
from penstock.api.schemas.dead_letter_views import change_task, is_task, number, run_queue, status_page
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.clock import iso
from penstock.durable.dead_letters import dead_letter_queries
from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.errors import UnknownGroup
from penstock.model import DEFAULT_SCOPE, QUEUE_MODE

router = APIRouter(tags=["dead letters"])


@router.get("/dlq-status")
async def dlq_status(request: Request, limit: Limit = 1_000, offset: Offset = 0) -> Response:
    """A page of how many dead letters each consumer has, by name. Costs the same at any number of letters."""
    get_guards(request).check(request)
    return (await status(get_services(request), limit, offset)).to_response()


async def status(services: Services, limit: int, offset: int) -> HotResponse:
    """The answer, for a caller who may have it."""
    page = await status_page(services, limit, offset)
    return HotResponse(
        200,
        encode(
            {
                "consumers": [
                    {
                        "channelId": row.queue,
                        "channelName": row.queue,
                        "consumerId": row.group,
                        "consumerName": row.group,
                        "deadCount": row.messages,
                    }
                    for row in page.rows
                ],
                "missing": page.missing,
                "asOf": iso(datetime.now(UTC)),
                "pagination": {"limit": limit, "offset": offset, "total": page.total},
            }
        ),
    )


@router.delete("/channel/{channelId}/consumer/{consumerId}/dlq", status_code=202)
async def purge_consumer(request: Request, channelId: Queue, consumerId: Group) -> Response:
    """Delete all dead letters of a consumer, chunk by chunk. 202 with the job."""
    get_guards(request).check_consumer(request, channelId, consumerId)
    services = get_services(request)
    which = Filter(queue=channelId, group=consumerId)
    if await run_queue(services, channelId, acting=True) is not None:
        return accepted(await services.broker.dead_letters.make_task_job(DEFAULT_SCOPE, "purge", which))
    if not await dead_letter_queries.status(
        services.database, DEFAULT_SCOPE, queue=channelId, group=consumerId, limit=1
    ):
        raise UnknownGroup(
            f"consumer {consumerId!r} of channel {channelId!r} has never had a dead letter", group=consumerId
        )
    return accepted(await services.broker.dead_letters.make_job(DEFAULT_SCOPE, "purge", which))


@router.delete("/channel/{channelId}/consumer/{consumerId}/job/{jobId}")
async def delete_job(
    request: Request, channelId: Queue, consumerId: Group, jobId: LetterId
) -> dict[str, Any]:
    """Delete one dead letter of a consumer, whatever its attempts."""
    get_guards(request).check_consumer(request, channelId, consumerId)
    services = get_services(request)
    if is_task(jobId) and consumerId == QUEUE_MODE:
        await change_task(services, "purge", jobId, channelId)
    else:
        letter_id = 0 if is_task(jobId) else number(jobId)
        await services.broker.dead_letters.delete(DEFAULT_SCOPE, letter_id, queue=channelId, group=consumerId)
    return {"success": True, "deleted": 1, "jobId": jobId}
