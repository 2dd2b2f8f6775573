"""Drain and reset a pipeline, and replay what it rejected, on behalf of an operator."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from redis import Redis
from redis.exceptions import RedisError

from penstock.config import Settings, mask_url
from penstock.definitions import DEFINITIONS, MetricDefinition, select_metrics
from penstock.errors import ComponentFailed
from penstock.pipeline.checkpoint import CheckpointInUse, CheckpointLock, checkpoint_path, move_aside
from penstock.pipeline.checkpoint_store import open_checkpoint_stores
from penstock.pipeline.rejected_replay import RejectedReplay, ReplayResult
from penstock.redis_clients import connect_redis
from penstock.streams.drain_target import DrainTarget
from penstock.streams.positions import rewind_position
from penstock.streams.progress import is_pipeline_running, read_progress
from penstock.warehouse.clickhouse_client import connect

POLL_INTERVAL_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The result of a drain. `by` says what counted: `drain`, the `running` pipeline, or `nobody`."""

    complete: bool
    entries: int
    left: int
    by: str
    seconds: float


ProgressCallback = Callable[[int, int, str], None]
"""Called regularly with the total number of entries, the number left, and what counts them (`by`)."""


def drain(
    settings: Settings,
    on_progress: ProgressCallback,
    definitions: Iterable[MetricDefinition] = DEFINITIONS,
) -> DrainResult:
    """Return when all entries that are in the streams now are counted.

    If a pipeline runs, here or on another machine, this waits until it has counted them. Otherwise, or when
    that pipeline ends, this process counts them. A drain that is killed can be started again: the checkpoint
    makes it continue without counting twice.
    """
    started, definitions = time.monotonic(), tuple(definitions)
    keys = [key for definition in definitions for key in definition.stream_keys]
    with _connect(settings) as redis:
        target = _call_redis(settings, lambda: DrainTarget.capture(redis, keys))
        total = _call_redis(settings, lambda: target.count_remaining(redis))
        by = "running"
        while not _call_redis(settings, lambda: target.is_reached(redis)):
            try:
                lock = CheckpointLock(checkpoint_path(settings))
            except CheckpointInUse:
                lock = None
            if lock is None or is_running_elsewhere(settings):
                if lock is not None:
                    lock.close()
                on_progress(total, _call_redis(settings, lambda: target.count_remaining(redis)), by)
                time.sleep(POLL_INTERVAL_S)
                continue
            with lock:
                from penstock.pipeline import job

                by = "drain"
                on_progress(total, _call_redis(settings, lambda: target.count_remaining(redis)), by)
                if not job.drain(
                    settings, target, lambda left: on_progress(total, left, "drain"), definitions
                ):
                    break
        left = _call_redis(settings, lambda: target.count_remaining(redis))
        complete = _call_redis(settings, lambda: target.is_reached(redis))
    on_progress(total, left, by)
    return DrainResult(complete, total - left, left, by if total else "nobody", time.monotonic() - started)


def reset(
    settings: Settings,
    from_beginning: bool = False,
    definitions: Iterable[MetricDefinition] = DEFINITIONS,
) -> Path | None:
    """Move the checkpoint away, also in the object store; returns the directory of its local files, if any.

    The next start continues from the position of the consumer group or, with `from_beginning`, from the
    oldest entry in the streams. Raises CheckpointInUse while a pipeline runs; then nothing has changed.
    """
    with CheckpointLock(checkpoint_path(settings)):
        if is_running_elsewhere(settings):
            raise CheckpointInUse("A pipeline on another machine reads these streams. Stop it first")
        if from_beginning:
            with _connect(settings) as redis:
                for definition in definitions:
                    for key in definition.stream_keys:
                        _call_redis(settings, partial(rewind_position, redis, key))
        checkpoint = checkpoint_path(settings)
        for stored in open_checkpoint_stores(
            settings, checkpoint, [metric.name for metric in definitions]
        ).values():
            stored.move_aside()
        return move_aside(checkpoint)


def replay(settings: Settings, metric: str | None = None, *, dry_run: bool = False) -> list[ReplayResult]:
    """Replay the rejected events of one metric, or of all metrics; see `rejected_replay`.

    A replay that was killed can be started again. Raises WarehouseUnavailable without ClickHouse.
    """
    warehouse = connect(settings.clickhouse_url)
    try:
        with _connect(settings) as redis:
            replays = [RejectedReplay(definition, redis, warehouse) for definition in select_metrics(metric)]
            return [
                _call_redis(settings, partial(rejected_replay.run, dry_run=dry_run))
                for rejected_replay in replays
            ]
    finally:
        warehouse.close()


def is_running_elsewhere(settings: Settings) -> bool:
    """Return whether a pipeline on another machine reported recently. (A local one holds the lock.)"""
    if not settings.redis_url:
        return False  # an embedded Redis that does not run
    try:
        progress = read_progress(settings.redis_url)
    except RedisError:
        return False  # that pipeline cannot reach Redis either
    return is_pipeline_running(progress) and (progress or {}).get("host") != os.uname().nodename


def _connect(settings: Settings) -> Redis:
    return connect_redis(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)


def _call_redis(settings: Settings, call: Callable[[], T]) -> T:
    try:
        return call()
    except RedisError as error:
        raise ComponentFailed(f"Redis at {mask_url(settings.redis_url)} does not answer: {error}") from error
