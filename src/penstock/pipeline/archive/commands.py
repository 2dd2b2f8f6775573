"""The archive operations that CLI commands call: rebuild days of the tables, and compact the archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime

from redis import Redis
from redis.exceptions import RedisError

from penstock.config import Settings, mask_url
from penstock.definitions import select_metrics
from penstock.errors import ComponentFailed, ConfigError
from penstock.pipeline.archive.compact import MAX_FILES_PER_STREAM, CompactedDay, Compaction
from penstock.pipeline.archive.event_archive import Archive, archive_root
from penstock.pipeline.archive.rebuild import (
    DayPlan,
    ProgressCallback,
    Rebuild,
    RebuildRefused,
    check_has_one_shard,
)
from penstock.pipeline.session import build_session
from penstock.redis_clients import connect_redis
from penstock.streams.batch_lock import BatchLockLostError
from penstock.warehouse.clickhouse_client import connect

PlanCallback = Callable[[list[DayPlan]], None]
"""Called with the plan of every day, before the rebuild begins."""


def rebuild(
    settings: Settings,
    first: date,
    last: date,
    *,
    metric: str | None = None,
    dry_run: bool = False,
    partial: bool = False,
    on_plan: PlanCallback,
    on_progress: ProgressCallback,
) -> list[DayPlan]:
    """Rebuild the days from `first` to `last` of the tables from the archive; returns the plan of every day.

    Raises RebuildRefused for a day that would become wrong; that day and later ones are unchanged. A rebuild
    that was killed can be started again.
    """
    if last < first:
        raise ConfigError(f"The period ends ({last}) before it begins ({first})")
    warehouse = connect(settings.clickhouse_url, timeout_s=300)
    all_plans: list[DayPlan] = []
    with _connect(settings) as redis:
        rebuilds = [
            Rebuild(archive, warehouse, redis, partial=partial, cluster=_cluster(settings))
            for archive in _open_archives(settings, metric)
        ]
        try:
            if _cluster(settings):
                check_has_one_shard(warehouse)
            plans = [metric_rebuild.plan(first, last) for metric_rebuild in rebuilds]
            all_plans = [plan for metric_plans in plans for plan in metric_plans]
            on_plan(all_plans)
            if dry_run or not any(plan.tables for plan in all_plans):
                return all_plans
            scratch = settings.home / "pipeline" / "spark-rebuild"
            if scratch.exists():  # left by a run that was killed
                shutil.rmtree(scratch)
            session = build_session(settings.spark_master, scratch, name="penstock rebuild")
            try:
                for metric_rebuild, metric_plans in zip(rebuilds, plans, strict=True):
                    with metric_rebuild.archive.exclusive_lock(settings.home):
                        metric_rebuild.run(metric_plans, session, on_progress)
            finally:
                session.stop()
        except BatchLockLostError:
            raise RebuildRefused(
                "The hold on the pipeline was lost: Redis lost its data, or a step took too long. "
                "Rebuild the same days again; the archive has the events that arrived meanwhile"
            ) from None
        finally:
            warehouse.close()
    return all_plans


def compact(
    settings: Settings,
    before: date | None,
    metric: str | None,
    on_day: Callable[[str], None],
    *,
    max_files_per_stream: int = MAX_FILES_PER_STREAM,
) -> list[CompactedDay]:
    """Compact the days of the archive before `before`, or before today; calls `on_day` with each day.

    A compaction that was killed can be started again.
    """
    limit = before or datetime.now(UTC).date()
    compacted: list[CompactedDay] = []
    with _connect(settings) as redis:
        for archive in _open_archives(settings, metric):
            with archive.exclusive_lock(settings.home):
                compaction = Compaction(archive, redis, max_files_per_stream=max_files_per_stream)
                compacted += compaction.run(limit, on_day)
    return compacted


def _open_archives(settings: Settings, metric: str | None) -> list[Archive]:
    root = archive_root(settings)
    if not root:
        raise ConfigError("There is no archive. Set PENSTOCK_ARCHIVE to archive events")
    return [Archive(root, definition) for definition in select_metrics(metric)]


@contextmanager
def _connect(settings: Settings) -> Iterator[Redis]:
    with connect_redis(settings.redis_url, socket_timeout=5, socket_connect_timeout=2) as client:
        try:
            yield client
        except RedisError as error:
            raise ComponentFailed(
                f"Redis at {mask_url(settings.redis_url)} does not answer: {error}"
            ) from error


def _cluster(settings: Settings) -> str:
    """Return the ClickHouse cluster of the settings, empty if there is no such setting."""
    return str(getattr(settings, "clickhouse_cluster", ""))
