"""What there is: queues."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from penstock.api.services import services
from penstock.clock import iso
from penstock.durable import catalog
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/resources", tags=["resources"])


@router.get("/queues")
async def list_queues(
    request: Request,
    search: str | None = Query(None, description="part of the name", max_length=255),
    limit: int = Query(100, ge=1, le=1000),
    offset: int = Query(0, ge=0),
) -> dict[str, Any]:
    """A page of the queues by name, with their depth."""
    rows = await catalog.queues(
        services(request).database, DEFAULT_SCOPE, search=search, limit=limit, offset=offset
    )
    return {
        "queues": [
            {
                "id": str(row["id"]),
                "name": row["name"],
                "namespace": row["namespace"],
                "task": row["task"],
                "partitions": row["partitions"],
                "consumerGroups": row["groups"],
                "depth": row["depth"] or 0,
                "running": row["running"] or 0,
                "createdAt": iso(row["created_at"]),
            }
            for row in rows
        ],
        "total": rows[0]["total"] if rows else 0,
        "limit": limit,
        "offset": offset,
    }
