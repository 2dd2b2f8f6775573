"""Record calls in the audit log and search it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict

import msgspec

from penstock.access.audit.unknown_callers import UnknownCallerLimit
from penstock.background import BackgroundTask
from penstock.durable.access.audit_store import (
    AuditCursor,
    AuditEntry,
    AuditFilter,
    AuditRow,
    AuditStore,
)
from penstock.durable.pool import Session
from penstock.errors import PenstockError
from penstock.ids import new_id
from penstock.model import Scope

__all__ = ["AuditCursor", "AuditEntry", "AuditFilter", "AuditLog", "AuditRow", "UnknownAuditEntry"]

logger = logging.getLogger(__name__)

WRITE_TIMEOUT_S = 5.0
"""How long a call waits for its entry."""
SUMMARY_INTERVAL_S = 60.0
"""Interval at which the calls of unknown callers that got no entry are recorded as a number."""
UNRECORDED_CALLS = "further calls of unknown callers"
"""The action of an entry that stands for many calls."""
ENTRIES_PER_PAGE = 200
"""Entries that an export holds in memory."""


class UnknownAuditEntry(PenstockError):
    code = "unknown_audit_entry"
    status = 404
    title = "Unknown audit entry"


class AuditLog(BackgroundTask):
    """The audit log. Its loop records how many calls of unknown callers got no entry of their own."""

    task_name = "audit log"

    def __init__(
        self,
        session: Session,
        *,
        summary_interval_s: float = SUMMARY_INTERVAL_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._store = AuditStore(session)
        self._write_timeout_s = write_timeout_s
        self._summary_interval_s = summary_interval_s
        self._limit = UnknownCallerLimit()
        self.written = 0
        self.failed = 0
        """Entries that are in the broker's log only."""
        self.unrecorded = 0
        """Calls of unknown callers that were only counted."""

    async def record(self, entry: AuditEntry) -> None:
        """Append an entry. It never fails: an entry that cannot be stored goes to the broker's log.

        Of unknown callers a bounded number of entries is kept, the others are counted.
        """
        if entry.subject or self._limit.admit(entry.address):
            await self._write(entry)
        else:
            self.unrecorded += 1

    async def get(self, environment: Scope | None, entry_id: int) -> AuditRow:
        """Return an entry of an environment, or of any if it is None. Raises UnknownAuditEntry."""
        row = await self._store.find(environment, entry_id)
        if row is None:
            raise UnknownAuditEntry(
                f"There is no audit entry {entry_id}. Its retention may be over.", id=str(entry_id)
            )
        return row

    async def list_entries(
        self, audit_filter: AuditFilter, cursor: AuditCursor, *, limit: int
    ) -> list[AuditRow]:
        """Return a page of entries, the latest first."""
        return await self._store.list_entries(audit_filter, cursor, limit=limit)

    async def read_pages(
        self, audit_filter: AuditFilter, cursor: AuditCursor
    ) -> AsyncIterator[list[AuditRow]]:
        """Read all entries in pages, the latest first. Entries that are recorded meanwhile are left out."""
        rows = await self._store.list_entries(audit_filter, cursor, limit=ENTRIES_PER_PAGE)
        while rows:
            yield rows
            if len(rows) < ENTRIES_PER_PAGE:
                return
            cursor = AuditCursor(rows[-1].recorded_at, rows[-1].id)
            rows = await self._store.list_entries(audit_filter, cursor, limit=ENTRIES_PER_PAGE)

    async def stop(self) -> None:
        await super().stop()
        await self._record_counted_calls()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._summary_interval_s)
            await self._record_counted_calls()

    async def _record_counted_calls(self) -> None:
        for unrecorded in self._limit.take_unrecorded():
            await self._write(
                AuditEntry(
                    environment=None,
                    subject="",
                    address=unrecorded.address,
                    action=UNRECORDED_CALLS,
                    object=msgspec.json.encode({"calls": unrecorded.calls}).decode(),
                    status=401,
                    denied=True,
                    request_id=str(new_id()),
                )
            )

    async def _write(self, entry: AuditEntry) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await self._store.record(entry)
        except asyncio.CancelledError:
            self.log_entry(entry, "the broker stops")
            raise
        except Exception as error:  # noqa: BLE001 - the call has happened, so its response must not fail
            self.log_entry(entry, error.detail if isinstance(error, PenstockError) else repr(error))
        else:
            self.written += 1

    def log_entry(self, entry: AuditEntry, reason: str) -> None:
        """Write an entry that the table may not have to the broker's log, with all its fields."""
        self.failed += 1
        fields = msgspec.json.encode(asdict(entry)).decode()
        logger.error("The audit log cannot be written (%s). The entry: %s", reason, fields)
