"""Who keeps PostgreSQL from removing dead rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from penstock.api.services import get_services
from penstock.clock import iso
from penstock.durable.storage.vacuum_horizon import horizon

router = APIRouter(prefix="/api/v1/status", tags=["status"])


@router.get("/horizon")
async def status_horizon(
    request: Request,
    longer_than_s: float | None = Query(
        None, alias="longerThan", ge=0, le=10**8, description="seconds; PENSTOCK_HORIZON_S if left out"
    ),
) -> dict[str, Any]:
    """Sessions, slots and prepared transactions that hold the vacuum horizon, the oldest first."""
    services = get_services(request)
    limit_s = services.settings.horizon_s if longer_than_s is None else longer_than_s
    holders = await horizon(services.database, timedelta(seconds=limit_s))
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
