"""Routes for operators: batching and state of broker processes, and what holds back vacuum in PostgreSQL."""

from __future__ import annotations

import os

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import PLATFORM_ADMIN_ONLY, PlatformAdminAccess, PlatformReadAccess, ReadAccess
from penstock.api.exporter.process_status import describe_batching
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.http.response import json_response
from penstock.api.routes.operations import journal_depth_to_dict
from penstock.api.services import get_services
from penstock.clock import iso

router = APIRouter(prefix="/api/v1", dependencies=[Depends(refuse_unknown_parameters)])


@router.get("/analytics/batching", tags=["analytics"])
async def batching(request: Request, caller: ReadAccess) -> dict[str, object]:
    """Requests, items, batches, average batch size and duration, and pending requests, per operation.

    Operations of run queues start with `task`. Counted since this broker process started; with several
    workers, each one reports only itself.
    """
    services = get_services(request)
    broker = services.broker
    connections = broker.diagnostics.connections
    return {
        "worker": os.getpid(),
        "operations": describe_batching(services),
        "connections": {
            "limit": connections.limit,
            "open": connections.open,
            "busy": connections.busy,
        },
        "parkedPops": broker.parked_pops.count,
    }


@router.get("/status/workers", tags=["status"], openapi_extra=PLATFORM_ADMIN_ONLY)
async def status_workers(request: Request, caller: PlatformReadAccess) -> Response:
    """Describe the broker processes behind this port, and the journal that they share.

    This needs no server, so it works during an outage of PostgreSQL. `recent` has a value per second of the
    last two minutes; its lists are empty with PENSTOCK_WORKER_METRICS=false. Brokers on other machines are in
    /api/v1/analytics/worker-metrics.
    """
    services = get_services(request)
    return json_response(
        {
            "workers": services.worker_aggregate.describe_processes(),
            "journal": journal_depth_to_dict(services.broker.journal),
        }
    )


@router.get("/status/horizon", tags=["status"], openapi_extra=PLATFORM_ADMIN_ONLY)
async def status_horizon(
    request: Request,
    caller: PlatformAdminAccess,
    longer_than_s: float | None = Query(
        None, alias="longerThan", ge=0, le=10**8, description="seconds; PENSTOCK_HORIZON_S if left out"
    ),
) -> dict[str, object]:
    """Sessions, replication slots and prepared transactions that hold back vacuum, the oldest first."""
    services = get_services(request)
    limit_s = services.settings.horizon_s if longer_than_s is None else longer_than_s
    holders = await services.broker.diagnostics.vacuum_horizon_holders(limit_s)
    return {
        "longerThan": limit_s,
        "holders": [
            {
                "kind": holder.kind,
                "name": holder.name,
                "pid": holder.pid,
                "user": holder.user,
                "application": holder.application,
                "client": holder.client,
                "heldSince": iso(holder.held_since),
                "ageSeconds": holder.age_s,
                "transactionsAgo": holder.xmin_age,
                "advice": holder.advice,
            }
            for holder in holders
        ],
    }
