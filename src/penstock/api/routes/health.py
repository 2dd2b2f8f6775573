"""Is it well: every part, asked now, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from redis.exceptions import RedisError
from starlette.requests import Request

from penstock.api.services import Services, get_services
from penstock.durable.storage.vacuum_horizon import horizon
from penstock.errors import PenstockError
from penstock.streams.progress import STALE_AFTER_S, read_progress_async

router = APIRouter(tags=["health"])

DEADLINE_S = 2.0


@router.get("/health", responses={503: {"description": "at least one part is down"}})
async def health(request: Request) -> JSONResponse:
    """Every part with its state: 200 when all are up, 503 otherwise."""
    services = get_services(request)
    names = ("postgres", "redis", "clickhouse", "pipeline")
    checks = (_postgres(services), _redis(services), _clickhouse(services), _pipeline(services))
    found, warnings = await asyncio.gather(
        asyncio.gather(*(_checked(check) for check in checks)), _warnings(services)
    )
    parts: dict[str, dict[str, Any]] = {"broker": {"status": "up", "detail": "answering"}}
    parts.update(zip(names, found, strict=True))
    healthy = all(part["status"] == "up" for part in parts.values())
    body = {"status": "ok" if healthy else "degraded", "parts": parts, "warnings": warnings}
    return JSONResponse(body, 200 if healthy else 503, {"Cache-Control": "no-store"})


async def _warnings(services: Services) -> list[str]:
    """What does not stop the platform yet, in sentences that say what to do."""
    limit = timedelta(seconds=services.settings.horizon_s)
    try:
        holders = await asyncio.wait_for(horizon(services.database, limit), DEADLINE_S)
    except (TimeoutError, PenstockError):
        return []  # the database is away or slow: its part says so
    return [holder.sentence for holder in holders]


async def _checked(check: Awaitable[str]) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        detail = await asyncio.wait_for(check, DEADLINE_S)
    except TimeoutError:
        return {"status": "down", "detail": f"no answer within {DEADLINE_S:g} s"}
    except PenstockError as error:
        return {"status": "down", "detail": error.detail}
    except (RedisError, OSError) as error:
        return {"status": "down", "detail": str(error) or type(error).__name__}
    return {"status": "up", "detail": detail, "ms": round((time.perf_counter() - started) * 1000, 1)}


async def _postgres(services: Services) -> str:
    await services.database.ping()
    return "answering"


async def _redis(services: Services) -> str:
    await services.redis.ping()
    return "answering"


async def _clickhouse(services: Services) -> str:
    await asyncio.to_thread(services.warehouse.query, "SELECT 1")
    return "answering"


async def _pipeline(services: Services) -> str:
    progress = await read_progress_async(services.redis)
    if progress is None:
        raise PenstockError("the pipeline has not reported yet")
    age_s = time.time() - float(progress["at"])
    if age_s > STALE_AFTER_S:
        raise PenstockError(f"the pipeline's last report is {age_s:.0f} s old")
    return str(progress["state"])
