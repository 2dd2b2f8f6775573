"""Routes for operators: the batching of this process, and what holds back vacuum in PostgreSQL."""

from __future__ import annotations

import os

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request

from penstock.api.access import PLATFORM_ADMIN_ONLY, PlatformAdminAccess, ReadAccess
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.services import get_services
from penstock.batching import BatchStats
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
    batchers = broker.batchers | {f"task {name}": b for name, b in services.run_queues.batchers.items()}
    operations = {
        name: _batch_stats_to_dict(batcher.stats, batcher.pending, batcher.in_flight)
        for name, batcher in batchers.items()
    }
    operations["transaction"] = _batch_stats_to_dict(broker.acks.transaction_stats, 0, 0)
    connections = broker.diagnostics.connections
    return {
        "worker": os.getpid(),
        "operations": operations,
        "connections": {
            "limit": connections.limit,
            "open": connections.open,
            "busy": connections.busy,
        },
        "parkedPops": broker.parked_pops.count,
    }


def _batch_stats_to_dict(stats: BatchStats, pending: int, in_flight: int) -> dict[str, float]:
    batches = max(stats.batches, 1)
    return {
        "requests": stats.requests,
        "items": stats.items,
        "batches": stats.batches,
        "averageBatchRequests": round(stats.requests / batches, 2),
        "averageBatchItems": round(stats.items / batches, 2),
        "averageMs": round(stats.busy_s / batches * 1000, 3),
        "failures": stats.failures,
        "pending": pending,
        "inFlight": in_flight,
    }


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
