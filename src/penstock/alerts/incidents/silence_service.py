"""Silences as the API manages them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.alerts.incidents.silences import Silence, parse_silence, silence_state
from penstock.clock import Clock, system_clock
from penstock.durable.alerts.silence_store import SilenceStore, StoredSilence
from penstock.durable.pool import Session
from penstock.errors import PenstockError
from penstock.ids import new_id
from penstock.model import Scope


class UnknownSilence(PenstockError):
    code = "unknown_alert_silence"
    status = 404
    title = "Unknown silence"


@dataclass(frozen=True, slots=True)
class SilenceDescription:
    """A silence, and whether it applies now."""

    id: uuid.UUID
    silence: Silence
    state: str
    created_at: datetime


class AlertSilences:
    """Creates, changes, lists and deletes silences."""

    def __init__(self, session: Session, clock: Clock = system_clock) -> None:
        self._store = SilenceStore(session)
        self._clock = clock

    async def list_silences(self, scope: Scope, *, limit: int, offset: int) -> list[SilenceDescription]:
        """Return a page of silences, the latest first."""
        rows = await self._store.list_silences(scope, limit=limit, offset=offset)
        return [self._describe(row) for row in rows]

    async def get(self, scope: Scope, silence_id: uuid.UUID) -> SilenceDescription:
        rows = await self._store.list_silences(scope, silence_id)
        if not rows:
            raise _unknown_silence(silence_id)
        return self._describe(rows[0])

    async def create(self, scope: Scope, fields: Mapping[str, object]) -> SilenceDescription:
        """Create the silence that the fields describe. Raises InvalidRequest."""
        return await self._put(scope, new_id(), fields)

    async def replace(
        self, scope: Scope, silence_id: uuid.UUID, fields: Mapping[str, object]
    ) -> SilenceDescription:
        """Replace a silence. Raises UnknownSilence or InvalidRequest."""
        await self.get(scope, silence_id)
        return await self._put(scope, silence_id, fields)

    async def delete(self, scope: Scope, silence_id: uuid.UUID) -> None:
        """Delete a silence: queues that still fire are notified by the next evaluation."""
        if not await self._store.delete(scope, silence_id):
            raise _unknown_silence(silence_id)

    async def _put(
        self, scope: Scope, silence_id: uuid.UUID, fields: Mapping[str, object]
    ) -> SilenceDescription:
        text = msgspec.json.encode(parse_silence(fields)).decode()
        row = await self._store.put(scope, silence_id, text)
        if row is None:
            raise _unknown_silence(silence_id)
        return self._describe(row)

    def _describe(self, row: StoredSilence) -> SilenceDescription:
        silence = msgspec.json.decode(row.silence, type=Silence)
        return SilenceDescription(row.id, silence, silence_state(silence, self._clock()), row.created_at)


def _unknown_silence(silence_id: uuid.UUID) -> UnknownSilence:
    return UnknownSilence(f"The silence {silence_id} does not exist. GET /api/v1/alert-silences lists them.")
