"""The audit log in PostgreSQL. The table refuses every change except the retention."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope

ENTRIES_PER_PRUNE = 5_000
START_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)
END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
MAX_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A call to record. `object`, `before` and `after` are JSON."""

    environment: Scope | None
    """None: the caller is unknown."""
    subject: str
    token_id: uuid.UUID | None = None
    address: str
    action: str
    object: str = "{}"
    status: int
    denied: bool
    before: str | None = None
    after: str | None = None
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """An entry as it is stored; `environment` is organization/project/environment, or empty."""

    id: int
    recorded_at: datetime
    environment_id: int | None
    environment: str
    subject: str
    token_id: uuid.UUID | None
    address: str
    action: str
    object: str
    status: int
    denied: bool
    before: str | None
    after: str | None
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries a search returns; None selects all."""

    environment: Scope | None
    """None: every environment."""
    environment_name: str | None = None
    """Only entries of environments with this name, also of deleted ones."""
    request_id: str | None = None
    subject: str | None = None
    action: str | None = None
    object_text: str | None = None
    status: int | None = None
    denied: bool | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditCursor:
    """A page has the entries before this one, in the order of their time and id."""

    recorded_at: datetime = END_OF_TIME
    id: int = MAX_ID


class AuditStore:
    """Appends and reads entries."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def record(self, entry: AuditEntry) -> None:
        await self._session.fetch(
            "SELECT record_audit_entry_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            entry.environment,
            entry.subject,
            entry.token_id,
            entry.address,
            entry.action,
            entry.object,
            entry.status,
            entry.denied,
            entry.before,
            entry.after,
            entry.request_id,
        )

    async def list_entries(
        self, audit_filter: AuditFilter, cursor: AuditCursor, *, limit: int
    ) -> list[AuditRow]:
        """Return a page of entries, the latest first."""
        return await fetch_all(
            self._session,
            AuditRow,
            "SELECT * FROM audit_entries_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            audit_filter.environment,
            audit_filter.environment_name,
            audit_filter.request_id,
            audit_filter.subject,
            audit_filter.action,
            audit_filter.object_text,
            audit_filter.status,
            audit_filter.denied,
            audit_filter.start or START_OF_TIME,
            cursor.recorded_at,
            cursor.id,
            limit,
        )

    async def find(self, environment: Scope | None, entry_id: int) -> AuditRow | None:
        """Return an entry of an environment, or of any if it is None."""
        return await fetch_one(
            self._session, AuditRow, "SELECT * FROM find_audit_entry_v1($1, $2)", environment, entry_id
        )

    async def prune(self, before: datetime) -> bool:
        """Delete one batch of entries from before a time; whether there may be more."""
        pruned = await fetch_value(
            self._session, int, "SELECT prune_audit_entries_v1($1, $2)", before, ENTRIES_PER_PRUNE
        )
        return pruned >= ENTRIES_PER_PRUNE
