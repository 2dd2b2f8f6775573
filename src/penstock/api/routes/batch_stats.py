"""How the batching engine is doing in this broker process."""

from __future__ import annotations

import os
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from penstock.api.services import get_services
from penstock.batching import BatchStats

router = APIRouter(prefix="/api/v1/analytics", tags=["analytics"])


@router.get("/batching")
async def batching(request: Request) -> dict[str, Any]:
    """Per operation: requests, items, batches, their average size and time, and what waits now.

    Counted since this broker process started; with several workers, each answers for itself.
    """
    services = get_services(request)
    broker = services.broker
    operations = {
        name: _described(batcher.stats, batcher.pending, batcher.in_flight)
        for name, batcher in broker.batchers.items()
    }
    operations["transaction"] = _described(broker.acks.transaction_stats, 0, 0)
    opened, busy = services.database.connections
    return {
        "worker": os.getpid(),
        "operations": operations,
        "connections": {"limit": services.database.size, "open": opened, "busy": busy},
        "parkedPops": broker.parked_pops.count,
    }


def _described(stats: BatchStats, pending: int, in_flight: int) -> dict[str, Any]:
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
