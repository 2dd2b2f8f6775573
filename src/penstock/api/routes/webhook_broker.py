"""Dead-letter routes in the terms of a webhook broker.

A channel is a queue, a consumer is a consumer group, and a job is a dead letter.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import ConsumerTokensAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Group, Limit, Offset, Queue
from penstock.api.http.response import HotResponse
from penstock.api.problems import problem_responses
from penstock.api.routes.dead_letter_jobs import accepted
from penstock.api.routes.dead_letters import LetterId
from penstock.api.schemas.dead_letter_views import summarize_dead_letter
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import Services, get_services
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import (
    Forbidden,
    Unauthorized,
    UnknownGroup,
    UnknownMessage,
    UnknownQueue,
    UnknownTask,
    WrongState,
)

router = APIRouter(responses=problem_responses(Unauthorized, Forbidden), tags=["dead letters"])


@router.get("/dlq-status", responses=problem_responses(UnknownQueue, UnknownGroup))
async def dlq_status(
    request: Request, caller: ReadAccess, limit: Limit = 1_000, offset: Offset = 0
) -> Response:
    """A page of dead-letter counts per consumer, by name. The cost does not grow with the counts."""
    return (await status(get_services(request), caller, limit, offset)).to_response()


async def status(services: Services, caller: Caller, limit: int, offset: int) -> HotResponse:
    """The response of `dlq_status`, after the caller was checked."""
    page = await services.broker.dead_letters.count_page(caller.environment, limit, offset)
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


@router.delete(
    "/channel/{channelId}/consumer/{consumerId}/dlq",
    responses=problem_responses(UnknownQueue, UnknownGroup, WrongState),
    status_code=202,
)
async def purge_consumer(
    request: Request, caller: ConsumerTokensAccess, channelId: Queue, consumerId: Group
) -> Response:
    """Delete all dead letters of a consumer, in steps. 202 with the job that does it."""
    dead_letters = get_services(request).broker.dead_letters
    return accepted(request, await dead_letters.purge_group(caller.environment, channelId, consumerId))


@router.delete(
    "/channel/{channelId}/consumer/{consumerId}/job/{jobId}",
    responses=problem_responses(UnknownMessage, UnknownTask),
)
async def delete_job(
    request: Request, caller: ConsumerTokensAccess, channelId: Queue, consumerId: Group, jobId: LetterId
) -> dict[str, object]:
    """Delete one dead letter of a consumer, regardless of its attempts."""
    source = get_services(request).broker.dead_letters.source_of_letter(jobId)
    before = await state_before(source.get(caller.environment, jobId), summarize_dead_letter)
    await source.delete(caller.environment, jobId, queue=channelId, group=consumerId)
    audit_change(request, before=before)
    return {"success": True, "deleted": 1, "jobId": jobId}
