"""`GET /health`: check every component now, each with a timeout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import NotRequired, TypedDict

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from redis.exceptions import RedisError
from starlette.requests import Request

from penstock.api.problems import described
from penstock.api.services import Services, get_services
from penstock.errors import PenstockError
from penstock.streams.progress import find_problem, read_progress_async

router = APIRouter(tags=["health"])

TIMEOUT_S = 2.0


class ComponentHealth(TypedDict):
    status: str
    """up or down"""
    detail: str
    ms: NotRequired[float]


@router.get("/health", responses=described(503, "at least one component is down", "application/json"))
async def health(request: Request) -> JSONResponse:
    """The state of every component: 200 if all are up, 503 otherwise."""
    services = get_services(request)
    checks = {
        "postgres": _check_postgres(services),
        "redis": _check_redis(services),
        "clickhouse": _check_clickhouse(services),
        "pipeline": _check_pipeline(services),
    }
    results, warnings = await asyncio.gather(
        asyncio.gather(*(_run_check(check) for check in checks.values())), _warnings(services)
    )
    components: dict[str, ComponentHealth] = {"broker": {"status": "up", "detail": "answering"}}
    components.update(zip(checks, results, strict=True))
    is_healthy = all(component["status"] == "up" for component in components.values())
    body = {"status": "ok" if is_healthy else "degraded", "parts": components, "warnings": warnings}
    return JSONResponse(body, 200 if is_healthy else 503, {"Cache-Control": "no-store"})


async def _warnings(services: Services) -> list[str]:
    """Problems that do not stop the platform yet, in sentences that say what to do."""
    work = services.broker.diagnostics.vacuum_horizon_holders(services.settings.horizon_s)
    try:
        holders = await asyncio.wait_for(work, TIMEOUT_S)
    except (TimeoutError, PenstockError):
        return []  # PostgreSQL is unreachable or slow; its own check reports it
    return [holder.summary for holder in holders]


async def _run_check(check: Awaitable[str]) -> ComponentHealth:
    started = time.perf_counter()
    try:
        detail = await asyncio.wait_for(check, TIMEOUT_S)
    except TimeoutError:
        return {"status": "down", "detail": f"no response within {TIMEOUT_S:g} s"}
    except PenstockError as error:
        return {"status": "down", "detail": error.detail}
    except (RedisError, OSError) as error:
        return {"status": "down", "detail": str(error) or type(error).__name__}
    return {"status": "up", "detail": detail, "ms": round((time.perf_counter() - started) * 1000, 1)}


async def _check_postgres(services: Services) -> str:
    await services.broker.diagnostics.ping()
    return "answering"


async def _check_redis(services: Services) -> str:
    await services.redis.ping()
    return "answering"


async def _check_clickhouse(services: Services) -> str:
    await asyncio.to_thread(services.warehouse.ping)
    return "answering"


async def _check_pipeline(services: Services) -> str:
    progress = await read_progress_async(services.redis)
    if problem := find_problem(progress):
        raise PenstockError(problem)
    return str((progress or {})["state"])
