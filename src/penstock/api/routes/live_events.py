"""The route of live streams: server-sent events for the pages of the console."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.api.access import NamedReadAccess, check_access, header_fields
from penstock.api.http.parameters import Queue, refuse_unknown_parameters
from penstock.api.live.event_stream import HEADERS, MEDIA_TYPE, BrokerStopping, TooManyStreams
from penstock.api.live.live_topics import LiveRequest, LiveTopic, read_topic
from penstock.api.problems import described, problem_responses
from penstock.api.routes.console_pages import QueuePageParameter
from penstock.api.services import get_services
from penstock.caller import AccessScope
from penstock.errors import DatabaseUnavailable, UnknownQueue

router = APIRouter(prefix="/api/v1", tags=["console"], dependencies=[Depends(refuse_unknown_parameters)])

Topic = Annotated[LiveTopic, Query(description="what to show")]
QueueName = Annotated[Queue | None, Query(description="the queue of the topic `queue`")]


@router.get(
    "/live",
    response_class=Response,
    responses={
        **described(200, "a stream of events that ends with the access of the caller", MEDIA_TYPE),
        **problem_responses(UnknownQueue, TooManyStreams, BrokerStopping),
    },
)
async def stream_live(
    request: Request,
    caller: NamedReadAccess,
    selection: QueuePageParameter,
    topic: Topic,
    name: QueueName = None,
) -> Response:
    """Stream a document as server-sent events: at once, and again when it has changed.

    The topic `overview` has the document of `/api/v1/console/overview`, `queues` that of
    `/api/v1/console/queues` with the same parameters, and `queue` one entry of that list. Events are at least
    two seconds apart: `snapshot` has the document, `problem` says why there is none now. `end` says why the
    stream ends: the token was revoked, the session has ended, or the broker stops. A comment comes after 15
    seconds without an event.
    """
    services = get_services(request)
    live_request = LiveRequest(topic, name, selection)
    services.live_streams.check(caller.subject)
    await read_topic(services, caller, live_request)  # errors before the first event have a status
    fields = header_fields(request)

    async def read() -> Mapping[str, object]:
        current = caller
        # The session or token may have ended since, and the caller may have lost scopes. While PostgreSQL is
        # away, the access of before holds.
        with suppress(DatabaseUnavailable):
            current = await services.authentication.authenticate(fields, is_unsafe=False)
        check_access(current, AccessScope.READ)
        return await read_topic(services, current, live_request)

    events = services.live_streams.events(caller.subject, read)
    return StreamingResponse(events, headers=HEADERS, media_type=MEDIA_TYPE)
