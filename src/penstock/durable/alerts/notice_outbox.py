"""The outbox of notices: the evaluator writes them with its decision, senders lease and record them."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from penstock.durable.pool import Session, fetch_all, fetch_value
from penstock.ids import new_id
from penstock.model import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedNotice:
    """A notice to send now, with the channel it goes to."""

    id: uuid.UUID
    transition: str
    message: str
    attempts: int
    """Including the attempt that follows."""
    created_at: datetime
    channel_id: uuid.UUID
    channel_name: str
    kind: str
    settings: str
    secrets: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """A notice and the state of its delivery."""

    id: uuid.UUID
    incident_id: uuid.UUID | None
    transition: str
    channel: str
    kind: str
    rule: str
    state: str
    attempts: int
    next_attempt_at: datetime
    last_error: str | None
    created_at: datetime
    sent_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeFilter:
    """Which notices to list. None does not filter."""

    notice_id: uuid.UUID | None = None
    state: str | None = None
    channel: str | None = None
    incident_id: uuid.UUID | None = None


class NoticeOutbox:
    """Leases, records and lists notices."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def lease(
        self, owner: uuid.UUID, limit: int, lease_ms: int, busy_channels: Collection[uuid.UUID]
    ) -> list[LeasedNotice]:
        """Lease the next due notice of up to `limit` channels that are not busy."""
        return await fetch_all(
            self._session,
            LeasedNotice,
            "SELECT * FROM lease_notices_v1($1, $2, $3, $4)",
            owner,
            limit,
            lease_ms,
            list(busy_channels),
        )

    async def record_sent(self, notice_id: uuid.UUID, owner: uuid.UUID, remark: str | None = None) -> bool:
        """Record that the receiver accepted the notice; whether the owner still held the lease."""
        return await self._record(notice_id, owner, "sent", None, remark)

    async def record_failure(
        self, notice_id: uuid.UUID, owner: uuid.UUID, error: str, next_delay_s: float | None
    ) -> bool:
        """Record a failed attempt. Without a delay until the next one, the notice has failed for good."""
        state = "failed" if next_delay_s is None else "pending"
        return await self._record(notice_id, owner, state, next_delay_s, error)

    async def _record(
        self, notice_id: uuid.UUID, owner: uuid.UUID, state: str, delay_s: float | None, error: str | None
    ) -> bool:
        return await fetch_value(
            self._session,
            bool,
            "SELECT record_notice_attempt_v1($1, $2, $3, $4, $5)",
            notice_id,
            owner,
            state,
            delay_s,
            error,
        )

    async def release(self, notice_id: uuid.UUID, owner: uuid.UUID) -> None:
        """End the lease of an interrupted attempt, so that another sender starts one at once."""
        await self._session.fetch("SELECT release_notice_v1($1, $2)", notice_id, owner)

    async def write_test(self, channel_id: uuid.UUID, message: msgspec.Struct) -> uuid.UUID:
        """Add a notice without an incident, and return its id."""
        notice_id = new_id()
        text = msgspec.json.encode(message).decode()
        await self._session.fetch("SELECT write_test_notice_v1($1, $2, $3)", notice_id, channel_id, text)
        return notice_id

    async def list_notices(
        self, scope: Scope, notice_filter: NoticeFilter, *, limit: int = 1, offset: int = 0
    ) -> list[NoticeRecord]:
        """Return a page of notices, the latest first."""
        return await fetch_all(
            self._session,
            NoticeRecord,
            "SELECT * FROM alert_notices_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *scope,
            notice_filter.notice_id,
            notice_filter.state,
            notice_filter.channel,
            notice_filter.incident_id,
            limit,
            offset,
        )

    async def retry(self, scope: Scope, notice_id: uuid.UUID) -> bool:
        """Send a failed notice again; whether it was failed."""
        return await fetch_value(
            self._session, bool, "SELECT retry_notice_v1($1, $2, $3, $4)", *scope, notice_id
        )

    async def prune(self, days: int, limit: int) -> int:
        """Delete up to `limit` old notices of resolved incidents, and return how many."""
        return await fetch_value(self._session, int, "SELECT prune_notices_v1($1, $2)", days, limit)
