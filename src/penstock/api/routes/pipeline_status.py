"""Routes for the state of the metrics pipeline: stream lag, batches, freshness, losses, Spark's tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any

from fastapi import APIRouter, Depends
from redis.exceptions import RedisError
from starlette.requests import Request

from penstock.api.access import PLATFORM_ADMIN_ONLY, PlatformReadAccess
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.problems import problem_responses
from penstock.api.services import Services, get_services
from penstock.clock import iso, to_utc
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.errors import RedisUnavailable, WarehouseUnavailable
from penstock.streams.batch_history import BatchRecord, read_batches_async
from penstock.streams.positions import read_lags_async
from penstock.streams.progress import (
    ProgressDocument,
    SparkStatus,
    find_problem,
    is_pipeline_running,
    read_progress_async,
)

router = APIRouter(
    prefix="/api/v1/pipeline", tags=["pipeline"], dependencies=[Depends(refuse_unknown_parameters)]
)

REDIS_TIMEOUT_S = 3.0


@router.get("", responses=problem_responses(RedisUnavailable), openapi_extra=PLATFORM_ADMIN_ONLY)
async def get_pipeline(request: Request, caller: PlatformReadAccess) -> dict[str, object]:
    """Report the state of the pipeline: its last report, its streams, its last batches, Spark's tasks.

    `problem` says why it does not read its streams, and what to do; null if it does. The lag is read from
    Redis now, so it grows while the pipeline is down. Rates, `freshness` and `spark` are of the last report.
    """
    services = get_services(request)
    progress, lags, batches = await _read_redis(services)
    reports: dict[str, Any] = (progress or {}).get("metrics", {})
    freshness = (progress or {}).get("freshness")
    return {
        "state": progress["state"] if progress else None,
        "isRunning": is_pipeline_running(progress),
        "problem": find_problem(progress),
        "reportedAt": _iso_seconds(progress["at"]) if progress else None,
        "startedAt": _iso_seconds(progress["started_at"]) if progress else None,
        "hostname": progress["host"] if progress else None,
        "pid": progress["pid"] if progress else None,
        "triggerMs": services.settings.trigger_ms,
        "inputPerSecond": progress["input_rows_per_s"] if progress else None,
        "processedPerSecond": progress["processed_rows_per_s"] if progress else None,
        "lag": _sum_lags(lags.values()),
        "freshness": _iso_seconds(freshness),
        "freshnessAgeSeconds": None if freshness is None else max(0.0, round(time.time() - freshness, 3)),
        "rejected": progress["rejected"] if progress else None,
        "lost": progress["lost"] if progress else None,
        "metrics": [
            _metric_to_dict(definition, reports.get(definition.name, {}), lags, batches[definition.name])
            for definition in DEFINITIONS
        ],
        "spark": _spark_to_dict((progress or {}).get("spark")),
    }


@router.get("/losses", responses=problem_responses(WarehouseUnavailable), openapi_extra=PLATFORM_ADMIN_ONLY)
async def list_losses(request: Request, caller: PlatformReadAccess) -> dict[str, object]:
    """List the events that are not counted in the last 31 days, by metric and reason, the newest first.

    `trimmed` counts stream entries, each of one event or of many; all other reasons count events. `replayed`
    counts rejected events that were counted later.
    """
    rows = await asyncio.to_thread(get_services(request).warehouse.read_uncounted_events)
    return {
        "losses": [
            {
                "metric": row.metric,
                "reason": row.reason,
                "events": row.events,
                "first": _iso_seconds(row.first_s),
                "last": _iso_seconds(row.last_s),
                "stream": row.stream,
                "example": row.example,
            }
            for row in rows
        ]
    }


async def _read_redis(
    services: Services,
) -> tuple[ProgressDocument | None, dict[str, int | None], dict[str, list[BatchRecord]]]:
    keys = [key for definition in DEFINITIONS for key in definition.stream_keys]
    names = [definition.name for definition in DEFINITIONS]
    try:
        async with asyncio.timeout(REDIS_TIMEOUT_S):
            return (
                await read_progress_async(services.redis),
                await read_lags_async(services.redis, keys),
                await read_batches_async(services.redis, names),
            )
    except (RedisError, OSError, TimeoutError) as error:
        raise RedisUnavailable(
            f"Redis does not answer ({error or 'timeout'}), so the state of the pipeline is unknown."
            " Check Redis with GET /health."
        ) from error


def _metric_to_dict(
    definition: MetricDefinition,
    report: Mapping[str, Any],
    lags: Mapping[str, int | None],
    batches: list[BatchRecord],
) -> dict[str, object]:
    metric_lags = {key: lags[key] for key in definition.stream_keys}
    return {
        "metric": definition.name,
        "state": report.get("state"),
        "failures": report.get("failures"),
        "restarts": report.get("restarts"),
        "lastFailure": report.get("last_failure"),
        "inputPerSecond": report.get("input_rows_per_s"),
        "processedPerSecond": report.get("processed_rows_per_s"),
        "freshness": _iso_seconds(report.get("freshness")),
        "rejected": report.get("rejected"),
        "lost": report.get("lost"),
        "lag": _sum_lags(metric_lags.values()),
        "streams": [
            {"stream": stream, "shard": shard, "lag": lag}
            for shard, (stream, lag) in enumerate(metric_lags.items())
        ],
        "batches": [_batch_to_dict(batch) for batch in batches],
    }


def _batch_to_dict(batch: BatchRecord) -> dict[str, object]:
    return {
        "batchId": batch["batch_id"],
        "startedAt": _iso_seconds(batch["started_at"]),
        "durationMs": batch["duration_ms"],
        "planMs": batch["plan_ms"],
        "readMs": batch["read_ms"],
        "insertMs": batch["insert_ms"],
        "checkpointMs": batch["checkpoint_ms"],
        "entries": batch["entries"],
        "rows": batch["rows"],
    }


def _spark_to_dict(spark: SparkStatus | None) -> dict[str, object] | None:
    if spark is None:
        return None
    return {
        "master": spark["master"],
        "cores": spark["cores"],
        "heapBytes": spark["heap_bytes"],
        "heapLimitBytes": spark["heap_limit_bytes"],
        "stages": spark["stages"],
        "executors": [
            {
                "id": executor["id"],
                "address": executor["address"],
                "cores": executor["cores"],
                "activeTasks": executor["active_tasks"],
                "completedTasks": executor["completed_tasks"],
                "failedTasks": executor["failed_tasks"],
                "taskSeconds": executor["task_s"],
                "gcSeconds": executor["gc_s"],
            }
            for executor in spark["executors"]
        ],
    }


def _sum_lags(lags: Collection[int | None]) -> int | None:
    """Return the entries that are not counted yet; None if Redis does not know the lag of a stream."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None


def _iso_seconds(seconds: float | None) -> str | None:
    return None if seconds is None else iso(to_utc(seconds))
