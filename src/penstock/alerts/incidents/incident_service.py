"""Incidents as the API shows them: list, details, acknowledgement, notes and chart."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.durable.alerts.incident_store import (
    AlertFigure,
    IncidentFilter,
    IncidentNote,
    IncidentRecord,
    IncidentStore,
)
from penstock.durable.alerts.notice_outbox import NoticeFilter, NoticeOutbox, NoticeRecord
from penstock.durable.pool import Session
from penstock.errors import PenstockError, WrongState
from penstock.model import Scope

__all__ = ["IncidentFilter", "IncidentNote", "IncidentRecord"]

LISTED_QUEUES = 3
"""Queues per incident in a list."""
MAX_QUEUES = 1_000
"""Queues in the details of an incident; its counts include all."""
MAX_NOTICES = 1_000


class UnknownIncident(PenstockError):
    code = "unknown_incident"
    status = 404
    title = "Unknown incident"


class NoChart(PenstockError):
    code = "no_incident_chart"
    status = 404
    title = "No chart"


@dataclass(frozen=True, slots=True)
class IncidentDetails:
    """An incident with its queues, notes and notices."""

    incident: IncidentRecord
    notes: list[IncidentNote]
    notices: list[NoticeRecord]


class AlertIncidents:
    """Lists, acknowledges and annotates the incidents of an environment."""

    def __init__(self, session: Session) -> None:
        self._store = IncidentStore(session)
        self._outbox = NoticeOutbox(session)

    async def read_figures(self, scope: Scope) -> list[AlertFigure]:
        """Return the figures of the evaluator, the open incidents and the notices."""
        return await self._store.read_figures(scope)

    async def list_incidents(
        self, scope: Scope, incident_filter: IncidentFilter, *, limit: int, offset: int
    ) -> list[IncidentRecord]:
        """Return a page of incidents, the latest first, each with its first queues."""
        return await self._store.list_incidents(
            scope, incident_filter, queue_limit=LISTED_QUEUES, limit=limit, offset=offset
        )

    async def get(self, scope: Scope, incident_id: uuid.UUID) -> IncidentDetails:
        incident = await self._find(scope, incident_id)
        notices = await self._outbox.list_notices(
            scope, NoticeFilter(incident_id=incident_id), limit=MAX_NOTICES
        )
        return IncidentDetails(incident, await self._store.list_notes(incident_id), notices)

    async def acknowledge(
        self, scope: Scope, incident_id: uuid.UUID, acknowledged_by: str
    ) -> IncidentDetails:
        """Acknowledge an incident; once more changes nothing. Raises WrongState if it is resolved."""
        if not await self._store.acknowledge(scope, incident_id, acknowledged_by):
            incident = await self._find(scope, incident_id)
            if incident.resolved_at is not None:
                raise WrongState(
                    f"The incident {incident_id} is resolved. Only an open one can be acknowledged."
                )
        return await self.get(scope, incident_id)

    async def add_note(self, scope: Scope, incident_id: uuid.UUID, author: str, note: str) -> IncidentNote:
        added = await self._store.add_note(scope, incident_id, author, note)
        if added is None:
            raise _unknown_incident(incident_id)
        return added

    async def read_chart(self, scope: Scope, incident_id: uuid.UUID) -> bytes:
        """Return the chart as PNG. Raises NoChart if none was drawn."""
        chart = await self._store.read_chart(scope, incident_id)
        if chart is None:
            await self._find(scope, incident_id)
            raise NoChart(f"The incident {incident_id} has no chart: its rule measures nothing over time.")
        return chart

    async def _find(self, scope: Scope, incident_id: uuid.UUID) -> IncidentRecord:
        incidents = await self._store.list_incidents(
            scope, IncidentFilter(incident_id=incident_id), queue_limit=MAX_QUEUES, limit=1, offset=0
        )
        if not incidents:
            raise _unknown_incident(incident_id)
        return incidents[0]


def _unknown_incident(incident_id: uuid.UUID) -> UnknownIncident:
    return UnknownIncident(f"The incident {incident_id} does not exist. GET /api/v1/incidents lists them.")
