"""Routes for probes: `/health/live` (this process), `/health/ready` (traffic), `/health` (all components)."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request

from penstock.api.access import PUBLIC
from penstock.api.problems import described
from penstock.api.services import get_services

router = APIRouter(tags=["health"], dependencies=[PUBLIC])

NO_CACHE = {"Cache-Control": "no-store"}


@router.get("/health/live")
async def live(request: Request) -> JSONResponse:
    """This process answers. It checks no server: restarting the broker repairs none."""
    return JSONResponse({"status": "ok"}, 200, NO_CACHE)


@router.get("/health/ready", responses=described(503, "send no traffic to this broker", "application/json"))
async def ready(request: Request) -> JSONResponse:
    """Whether this broker may take traffic: 200 if PostgreSQL or the journal takes messages, else 503."""
    reason = await get_services(request).health.find_unready_reason()
    if reason is None:
        return JSONResponse({"status": "ready"}, 200, NO_CACHE)
    return JSONResponse({"status": "not ready", "reasons": [reason]}, 503, NO_CACHE)


@router.get("/health", responses=described(503, "messages cannot be taken", "application/json"))
async def health(request: Request) -> JSONResponse:
    """The state of every component: 200 `ok`, 200 `degraded` with reasons, or 503 `down`.

    `degraded` means that queues work and a component is away; `down` that messages cannot be taken.
    """
    report = await get_services(request).health.report()
    status = "degraded" if report.reasons else "ok"
    body = {
        "status": status if report.takes_messages else "down",
        "reasons": report.reasons,
        "parts": report.components,
        "warnings": report.warnings,
    }
    return JSONResponse(body, 200 if report.takes_messages else 503, NO_CACHE)
