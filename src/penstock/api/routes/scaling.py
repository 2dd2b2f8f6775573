"""The route that says how many workers a queue needs, for autoscalers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request

from penstock.api.access import ReadAccess
from penstock.api.http.parameters import Group, Queue, refuse_unknown_parameters
from penstock.api.problems import problem_responses
from penstock.api.scaling.queue_work import ScaledQueue, read_scaled_queue
from penstock.api.scaling.service_rate import MeasuredRate
from penstock.api.scaling.wanted_workers import ScalingTarget, compute_wanted_workers
from penstock.api.services import get_services
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import InvalidRequest, RedisUnavailable, UnknownQueue

router = APIRouter(prefix="/api/v1", tags=["metrics"], dependencies=[Depends(refuse_unknown_parameters)])

DEFAULT_WAIT_TARGET_S = 30.0
MAX_WORKERS = 100_000

WaitTarget = Annotated[
    float, Query(alias="waitTarget", gt=0, le=86_400, description="longest time work should wait, in seconds")
]
MinWorkers = Annotated[int, Query(alias="minWorkers", ge=0, le=MAX_WORKERS, description="fewest workers")]
MaxWorkers = Annotated[
    int | None, Query(alias="maxWorkers", ge=1, le=MAX_WORKERS, description="most workers; default: no limit")
]
WorkerRate = Annotated[
    float | None,
    Query(
        alias="workerRate",
        gt=0,
        le=1_000_000,
        description="messages or tasks that one worker finishes per second; default: as measured",
    ),
]


@router.get("/queues/{queue}/scaling", responses=problem_responses(UnknownQueue, RedisUnavailable))
async def queue_scaling(
    request: Request,
    caller: ReadAccess,
    queue: Queue,
    wait_target_s: WaitTarget = DEFAULT_WAIT_TARGET_S,
    min_workers: MinWorkers = 0,
    max_workers: MaxWorkers = None,
    worker_rate: WorkerRate = None,
    group: Annotated[
        Group | None, Query(description="consumer group of the workers; default: queue mode")
    ] = None,
) -> dict[str, object]:
    """Say how many workers a durable or run queue needs so that work waits no longer than the target.

    `wantedWorkers` is null if work waits and how long it takes cannot be read: keep the workers that run.
    """
    if max_workers is not None and min_workers > max_workers:
        raise InvalidRequest(
            "minWorkers is larger than maxWorkers. Lower it, or raise maxWorkers.", field="minWorkers"
        )
    services = get_services(request)
    target = ScalingTarget(wait_s=wait_target_s, min_workers=min_workers, max_workers=max_workers)
    scaled = await read_scaled_queue(services, caller.environment, queue, group)
    measured = await services.service_rates.get(caller.environment, queue, scaled.group)
    rate = worker_rate or _rate_per_worker(scaled, measured)
    wanted = compute_wanted_workers(scaled.work, target, rate, is_rate_known=measured.is_known)
    work = scaled.work
    return {
        "queue": queue,
        "kind": scaled.kind,
        "group": scaled.group or None,
        "groupExists": scaled.does_group_exist,
        "wantedWorkers": wanted.workers,
        "basis": wanted.basis,
        "limitedBy": wanted.limited_by,
        "waitTarget": wait_target_s,
        "minWorkers": min_workers,
        "maxWorkers": max_workers,
        "backlog": work.backlog,
        "running": work.running,
        "busyWorkers": work.busy_workers,
        "paused": work.paused,
        "expectedWaitSeconds": _expected_wait_s(scaled, rate),
        "rate": _rate_to_dict(rate, worker_rate, measured),
        "asOf": iso(to_utc(system_clock())),
    }


def _rate_per_worker(scaled: ScaledQueue, measured: MeasuredRate) -> float | None:
    """Return what one worker finishes per second: the messages it holds at once, by how long each takes."""
    times = measured.service_time
    if times is None:
        return None
    # Run times are whole milliseconds: work that takes less counts as half of one.
    return scaled.messages_per_worker * times.finished * 1000 / max(times.run_ms, times.finished / 2)


def _expected_wait_s(scaled: ScaledQueue, rate: float | None) -> float | None:
    """Return how long the last waiting message waits with the workers that are busy; None if unknown."""
    if not scaled.work.backlog:
        return 0.0
    if rate is None or not scaled.work.busy_workers:
        return None
    return round(scaled.work.backlog / (rate * scaled.work.busy_workers), 3)


def _rate_to_dict(rate: float | None, worker_rate: float | None, measured: MeasuredRate) -> dict[str, object]:
    times = measured.service_time
    until_s, now_s = measured.counted_until_s, system_clock()
    return {
        "perWorker": None if rate is None else round(rate, 4),
        "source": _rate_source(worker_rate, measured),
        "finished": times.finished if times else 0,
        "windowSeconds": times.window_s if times else None,
        "measuredUntil": iso(to_utc(times.end_s)) if times else None,
        "metricsLagSeconds": None if until_s is None else round(max(0.0, now_s - until_s), 1),
        "problem": measured.problem,
    }


def _rate_source(worker_rate: float | None, measured: MeasuredRate) -> str:
    if worker_rate:
        return "parameter"
    if measured.service_time:
        return "measured"
    return "none" if measured.is_known else "unknown"
