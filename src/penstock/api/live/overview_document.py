"""The overview of an environment: what needs attention, totals, and the last hour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.alerts.incidents.incident_service import AlertIncidents, IncidentFilter
from penstock.api.health_checks import HealthChecks
from penstock.api.live.attention import (
    AttentionSection,
    component_section,
    incident_section,
    queue_sections,
    worst_severity,
)
from penstock.api.live.environment_snapshot import EnvironmentSnapshot, EnvironmentSnapshots
from penstock.api.live.queue_rows import ListedKind, QueueRow
from penstock.api.live.queue_selection import snapshot_fields
from penstock.api.live.shared_read import EnvironmentReads
from penstock.api.warehouse_access import WarehouseAccess
from penstock.broker.durable_store import DurableStore
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import PenstockError
from penstock.model import Scope

if TYPE_CHECKING:
    from penstock.warehouse.series.series_response import SeriesResponse

MAX_AGE_S = 2.0
SERIES_AGE_S = 5.0
SERIES_WAIT_S = 1.0
MAX_INCIDENTS = 100
MINUTE = timedelta(minutes=1)
SERIES_MINUTES = 60

Document = dict[str, object]


@dataclass(slots=True)
class Overviews:
    """The overviews of the environments that have readers in this process."""

    snapshots: EnvironmentSnapshots
    incidents: AlertIncidents
    health: HealthChecks
    store: DurableStore
    warehouse: WarehouseAccess
    _down_since_s: dict[str, float] = field(default_factory=dict)
    """When this process first noticed that a component is down."""
    _documents: EnvironmentReads[Document] = field(init=False)
    _series: EnvironmentReads[SeriesResponse | str] = field(init=False)

    def __post_init__(self) -> None:
        self._documents = EnvironmentReads(self._read, MAX_AGE_S)
        self._series = EnvironmentReads(self._read_series, SERIES_AGE_S)

    async def get(self, scope: Scope) -> Document:
        """Return an overview that is at most two seconds old, or older if a read takes long."""
        return await self._documents.get(scope)

    async def stop(self) -> None:
        await self._documents.stop()
        await self._series.stop()

    async def _read(self, scope: Scope, previous: Document | None) -> Document:
        snapshot, incidents, components, series, processes = await asyncio.gather(
            self.snapshots.get(scope),
            self._read_incidents(scope),
            self._read_components(),
            self._series.get_within(scope, SERIES_WAIT_S),
            self._count_processes(),
        )
        known_series = None if series is None or isinstance(series, str) else series
        return await asyncio.to_thread(
            _build_document, snapshot, [incidents, components(snapshot)], known_series, processes
        )

    async def _read_incidents(self, scope: Scope) -> AttentionSection:
        try:
            unresolved = await self.incidents.list_incidents(
                scope, IncidentFilter(state="unresolved"), limit=MAX_INCIDENTS, offset=0
            )
        except PenstockError:
            unresolved = []  # PostgreSQL is away, which is an item of its own
        return incident_section(unresolved)

    async def _read_components(self) -> Callable[[EnvironmentSnapshot], AttentionSection]:
        """Return the section of components, once the snapshot is known."""
        report = await self.health.report()
        now_s = system_clock()
        down = {
            name: component["detail"]
            for name, component in report.components.items()
            if component["status"] != "up"
        }
        self._down_since_s = {name: self._down_since_s.get(name, now_s) for name in down}
        since_s = self._down_since_s
        return lambda snapshot: component_section(down, since_s, snapshot.metrics.counted_until_s, now_s)

    async def _read_series(self, scope: Scope, previous: SeriesResponse | str | None) -> SeriesResponse | str:
        """Return the environment's last hour in minutes, or why it is unknown."""
        try:
            return await asyncio.to_thread(
                lambda: (
                    self.warehouse.series()
                    .environment(
                        scope, period="1h", resolution="1m", fields=["throughput", "queue_depth", "latency"]
                    )
                    .to_response()
                )
            )
        except PenstockError as error:
            return error.detail

    async def _count_processes(self) -> int | None:
        """Return the broker processes that reported in the last full minute or since."""
        now = to_utc(system_clock())
        try:
            buckets = await self.store.worker_minutes.read_throughput(now - MINUTE, now + MINUTE, MINUTE)
        except PenstockError:
            return None
        return max((bucket.workers for bucket in buckets), default=0)


def _build_document(
    snapshot: EnvironmentSnapshot,
    first_sections: Sequence[AttentionSection],
    series: SeriesResponse | None,
    processes: int | None,
) -> Document:
    sections = [*first_sections, *queue_sections(snapshot.rows, snapshot.read_at_s)]
    last_hour = None if series is None else series_columns(series)
    return {
        **snapshot_fields(snapshot),
        "status": worst_severity(sections),
        "attention": [section.to_dict() for section in sections if section.items],
        "totals": {
            **_sum_rows(snapshot.rows),
            "waitP95Ms": None if last_hour is None else _last_known(last_hour["waitP95Ms"]),
            "workers": processes,
        },
        "series": None
        if series is None or last_hour is None
        else {"start": series["period"]["start"], "stepSeconds": 60, **last_hour},
    }


def series_columns(series: SeriesResponse) -> dict[str, list[float | None]]:
    """Return a list per figure. The rate of a minute that is not counted completely is unknown."""
    points = series["timeseries"]

    def rates(counter: str) -> list[float | None]:
        return [
            None if point["complete"] is False else round(point["throughput"][counter] / 60, 3)
            for point in points[:-1]
        ] + [None] * len(points[-1:])

    return {
        "depth": [point["queue_depth"]["last"] for point in points],
        "rateIn": rates("enqueued"),
        "rateOut": rates("completed"),
        "waitP95Ms": [point["latency"]["p95_wait_ms"] for point in points],
    }


def _sum_rows(rows: Sequence[QueueRow]) -> Document:
    known = [row for row in rows if row.is_known]
    activities = [row.activity for row in rows if row.activity is not None]
    oldest_s = min((row.oldest_s for row in known if row.oldest_s is not None), default=None)
    return {
        "queues": len(rows),
        "durableQueues": sum(row.kind is ListedKind.DURABLE for row in rows),
        "runQueues": sum(row.kind is ListedKind.RUN for row in rows),
        "pausedQueues": sum(bool(row.paused) for row in known),
        "depth": sum(row.depth or 0 for row in known),
        "running": sum(row.running or 0 for row in known),
        "delayed": sum(row.delayed or 0 for row in known),
        "dead": sum(row.dead or 0 for row in known),
        "deadLastHour": sum(activity.dead for activity in activities) if activities else None,
        "rateIn": _round_sum(activity.enqueued_per_s for activity in activities) if activities else None,
        "rateOut": _round_sum(activity.acked_per_s for activity in activities) if activities else None,
        "oldestAt": None if oldest_s is None else iso(to_utc(oldest_s)),
    }


def _round_sum(values: Iterable[float]) -> float:
    return round(sum(values), 3)


def _last_known(values: Sequence[float | None]) -> float | None:
    """Return the newest of the last five values that is known."""
    return next((value for value in reversed(values[-5:]) if value is not None), None)
