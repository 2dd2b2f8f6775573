"""Routes for the pages of the console: the overview of an environment and the list of its queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import NamedReadAccess, ReadAccess
from penstock.api.http.parameters import Queue, Search, refuse_unknown_parameters
from penstock.api.http.response import json_response
from penstock.api.live.live_topics import LiveRequest, LiveTopic, read_topic
from penstock.api.live.queue_rows import ListedKind
from penstock.api.live.queue_selection import QueuePageRequest, QueueProblem, QueueSort, SortOrder
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.errors import RedisUnavailable

router = APIRouter(
    prefix="/api/v1/console", tags=["console"], dependencies=[Depends(refuse_unknown_parameters)]
)

MAX_PAGE_SIZE = 500


def parse_queue_page(
    search: Search = None,
    kind: Annotated[ListedKind | None, Query(description="`durable` or `run` queues; default: both")] = None,
    problem: Annotated[
        QueueProblem | None,
        Query(description="queues with this problem; `any`: with at least one of them"),
    ] = None,
    sort: Annotated[QueueSort, Query(description="column to sort by")] = QueueSort.NAME,
    order: Annotated[
        SortOrder | None, Query(description="default: names ascending, figures descending")
    ] = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=MAX_PAGE_SIZE)] = 50,
) -> QueuePageRequest:
    return QueuePageRequest(search, kind, problem, sort, order, page, page_size)


QueuePageParameter = Annotated[QueuePageRequest, Depends(parse_queue_page)]


@router.get("/overview")
async def get_overview(request: Request, caller: ReadAccess) -> Response:
    """Say what needs attention in an environment, where and since when; its totals and its last hour.

    `status` is `ok`, `info`, `warning` or `critical`. Figures that come from the metrics are null while
    ClickHouse is away; `metricsAvailable` and `metricsProblem` say so.
    """
    return json_response(await read_topic(get_services(request), caller, LiveRequest(LiveTopic.OVERVIEW)))


@router.get("/queues")
async def list_console_queues(
    request: Request, caller: NamedReadAccess, selection: QueuePageParameter
) -> Response:
    """List durable queues and run queues together, with their figures and what limits each of them.

    `cappedBy` is `paused`, `own_limit`, `environment_limit`, `no_consumers`, `blocked_partition` or null.
    `depthHistory` has the depth at the end of each of the last 30 minutes. The list is at most two seconds
    old. A token that is limited to queues gets those alone. Unknown figures are null.
    """
    page = LiveRequest(LiveTopic.QUEUES, selection=selection)
    return json_response(await read_topic(get_services(request), caller, page))


@router.get("/queues/{queue}/kind", responses=problem_responses(RedisUnavailable))
async def get_queue_kind(request: Request, caller: ReadAccess, queue: Queue) -> dict[str, str]:
    """Say whether a name belongs to a run queue: `kind` is `run`, or `durable` for all other names.

    The routes of a durable queue say whether it exists.
    """
    is_run_queue = await get_services(request).run_queues.has_queue(caller.environment, queue)
    return {"queue": queue, "kind": "run" if is_run_queue else "durable"}
