"""Incidents as the API reads and changes them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope

MAX_NOTES = 1_000
"""Notes of an incident that are returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecord:
    """An incident with its first queues; `rule`, `cause` and `queues` are JSON texts."""

    id: uuid.UUID
    state: str
    rule_id: uuid.UUID | None
    rule: str
    severity: str
    opened_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    resolved_at: datetime | None
    resolution: str | None
    cause: str | None
    has_chart: bool
    inhibited_by: uuid.UUID | None
    silenced: bool
    notified_at: datetime | None
    queue_count: int
    firing_count: int
    queues: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentNote:
    """What a person wrote about an incident."""

    at: datetime
    author: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFilter:
    """Which incidents to list. None does not filter."""

    incident_id: uuid.UUID | None = None
    state: str | None = None
    queue: str | None = None
    rule: str | None = None
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class AlertFigure:
    """A figure of the evaluator, the incidents or the notices, with its labels."""

    figure: str
    labels: list[str]
    value: float


class IncidentStore:
    """Reads incidents, acknowledges them and adds notes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list_incidents(
        self, scope: Scope, incident_filter: IncidentFilter, *, queue_limit: int, limit: int, offset: int
    ) -> list[IncidentRecord]:
        """Return a page of incidents, the latest first, each with up to `queue_limit` queues."""
        return await fetch_all(
            self._session,
            IncidentRecord,
            "SELECT * FROM alert_incidents_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            *scope,
            incident_filter.incident_id,
            incident_filter.state,
            incident_filter.queue,
            incident_filter.rule,
            incident_filter.severity,
            queue_limit,
            limit,
            offset,
        )

    async def list_notes(self, incident_id: uuid.UUID) -> list[IncidentNote]:
        return await fetch_all(
            self._session,
            IncidentNote,
            "SELECT * FROM alert_incident_notes_v1($1, $2)",
            incident_id,
            MAX_NOTES,
        )

    async def read_chart(self, scope: Scope, incident_id: uuid.UUID) -> bytes | None:
        """Return the PNG of an incident; None if it has none."""
        row = await self._session.fetchrow(
            "SELECT alert_incident_chart_v1($1, $2, $3, $4) AS chart", *scope, incident_id
        )
        return None if row is None else row["chart"]

    async def acknowledge(self, scope: Scope, incident_id: uuid.UUID, acknowledged_by: str) -> bool:
        """Acknowledge an incident; False if it is not open or already acknowledged."""
        return await fetch_value(
            self._session,
            bool,
            "SELECT acknowledge_alert_incident_v1($1, $2, $3, $4, $5)",
            *scope,
            incident_id,
            acknowledged_by,
        )

    async def add_note(
        self, scope: Scope, incident_id: uuid.UUID, author: str, note: str
    ) -> IncidentNote | None:
        """Add a note; None if the incident does not exist."""
        return await fetch_one(
            self._session,
            IncidentNote,
            "SELECT * FROM add_alert_incident_note_v1($1, $2, $3, $4, $5, $6)",
            *scope,
            incident_id,
            author,
            note,
        )

    async def read_figures(self, scope: Scope) -> list[AlertFigure]:
        """Return the figures that the exporter shows."""
        return await fetch_all(
            self._session, AlertFigure, "SELECT * FROM alert_figures_v1($1, $2, $3)", *scope
        )

    async def prune(self, days: float, limit: int) -> int:
        """Delete up to `limit` incidents that were resolved this long ago, and return how many."""
        return await fetch_value(self._session, int, "SELECT prune_alert_incidents_v1($1, $2)", days, limit)
