"""Silences in PostgreSQL, as JSON."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSilence:
    """A silence; `silence` is its JSON text."""

    id: uuid.UUID
    silence: str
    created_at: datetime


class SilenceStore:
    """Reads and writes the silences of an environment."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list_silences(
        self, scope: Scope, silence_id: uuid.UUID | None = None, *, limit: int = 1, offset: int = 0
    ) -> list[StoredSilence]:
        """Return a page of silences, the latest first, or the one with this id."""
        return await fetch_all(
            self._session,
            StoredSilence,
            "SELECT * FROM alert_silences_v1($1, $2, $3, $4, $5, $6)",
            *scope,
            silence_id,
            limit,
            offset,
        )

    async def put(self, scope: Scope, silence_id: uuid.UUID, silence: str) -> StoredSilence | None:
        """Create or replace a silence; None if the id belongs to another environment."""
        return await fetch_one(
            self._session,
            StoredSilence,
            "SELECT * FROM put_alert_silence_v1($1, $2, $3, $4, $5)",
            *scope,
            silence_id,
            silence,
        )

    async def delete(self, scope: Scope, silence_id: uuid.UUID) -> bool:
        """Delete a silence; whether it existed."""
        return await fetch_value(
            self._session, bool, "SELECT delete_alert_silence_v1($1, $2, $3, $4)", *scope, silence_id
        )

    async def prune(self, days: float, limit: int) -> int:
        """Delete up to `limit` silences that ended this long ago, and return how many."""
        return await fetch_value(self._session, int, "SELECT prune_alert_silences_v1($1, $2)", days, limit)
