"""What the commands do with the archive: rebuild days of the tables from it, and make it compact."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime

from redis import Redis
from redis.exceptions import RedisError

from penstock.config import Settings, mask_url
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.errors import ComponentFailed, ConfigError
from penstock.pipeline.archive.compact import Compacted, Compaction
from penstock.pipeline.archive.event_archive import Archive, archive_root
from penstock.pipeline.archive.rebuild import DayPlan, Rebuild, RebuildRefused, Tell
from penstock.pipeline.session import build_session
from penstock.streams.batch_lock import HoldLostError
from penstock.warehouse.clickhouse_client import connect

Begin = Callable[[list[DayPlan]], None]
"""Called with what is going to be rebuilt, before that begins."""


def metrics_named(
    name: str | None, definitions: Sequence[MetricDefinition] = DEFINITIONS
) -> list[MetricDefinition]:
    """The metric of that name, or all of them. Raises ConfigError naming those there are."""
    found = [definition for definition in definitions if name in (None, definition.name)]
    if not found:
        known = ", ".join(definition.name for definition in definitions)
        raise ConfigError(f"there is no metric {name!r}: there is {known}")
    return found


def rebuild(
    settings: Settings,
    first: date,
    last: date,
    *,
    metric: str | None = None,
    dry_run: bool = False,
    partial: bool = False,
    begin: Begin,
    tell: Tell,
) -> list[DayPlan]:
    """Compute the tables' days from `first` to `last` anew; returns what was found and done, day by day.

    Raises RebuildRefused for a day that would come out wrong, having changed no later one.
    """
    if last < first:
        raise ConfigError(f"the period ends ({last}) before it begins ({first})")
    warehouse = connect(settings.clickhouse_url, timeout_s=300)
    every: list[DayPlan] = []
    with _redis(settings) as redis:
        work = [
            Rebuild(archive, warehouse, redis, partial=partial, cluster=_cluster(settings))
            for archive in _archives(settings, metric)
        ]
        try:
            plans = [rebuilding.plan(first, last) for rebuilding in work]
            every = [plan for some in plans for plan in some]
            begin(every)
            if dry_run or not any(plan.tables for plan in every):
                return every
            scratch = settings.home / "pipeline" / "spark-rebuild"
            if scratch.exists():  # of a run that was killed
                shutil.rmtree(scratch)
            session = build_session(settings.spark_master, scratch, name="penstock rebuild")
            try:
                for rebuilding, some in zip(work, plans, strict=True):
                    with rebuilding.archive.alone(settings.home):
                        rebuilding.run(some, session, tell)
            finally:
                session.stop()
        except HoldLostError:
            raise RebuildRefused(
                "the pipeline could no longer be held back: Redis forgot the hold, or a step took too long. "
                "Rebuild the same days again: what came in meanwhile is in the archive"
            ) from None
        finally:
            warehouse.close()
    return every


def compact(
    settings: Settings, before: date | None, metric: str | None, tell: Callable[[str], None]
) -> list[Compacted]:
    """Make the archive's days before a given one compact; without one, all that are over."""
    limit = before or datetime.now(UTC).date()
    done: list[Compacted] = []
    with _redis(settings) as redis:
        for archive in _archives(settings, metric):
            with archive.alone(settings.home):
                done += Compaction(archive, redis).run(limit, tell)
    return done


def _archives(settings: Settings, metric: str | None) -> list[Archive]:
    root = archive_root(settings)
    if not root:
        raise ConfigError("there is no archive: PENSTOCK_ARCHIVE is not set, so no events are kept")
    return [Archive(root, definition) for definition in metrics_named(metric)]


@contextmanager
def _redis(settings: Settings) -> Iterator[Redis]:
    with Redis.from_url(settings.redis_url, socket_timeout=5, socket_connect_timeout=2) as client:
        try:
            yield client
        except RedisError as error:
            raise ComponentFailed(
                f"Redis at {mask_url(settings.redis_url)} does not answer: {error}"
            ) from error


def _cluster(settings: Settings) -> str:
    return str(getattr(settings, "clickhouse_cluster", ""))
