"""Traces: notes that consumers attach to messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_value
from penstock.model import Scope

MAX_TRACE_COUNT = 1_000
"""The traces of a name are counted up to this number."""
TRACES_PER_PRUNE = 5_000


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace to record."""

    partition_id: int
    transaction_id: str
    group: str
    event: str
    names: Sequence[str]
    data: bytes


class MessageTrace(NamedTuple):
    """A row of `message_traces_v1`."""

    id: int
    group_name: str
    event: str
    names: list[str]
    data: bytes
    created_at: datetime


class NamedTrace(NamedTuple):
    """A row of `traces_by_name_v1`: a trace with its message."""

    id: int
    queue: str
    partition: str
    partition_id: int
    transaction_id: str
    group_name: str
    event: str
    names: list[str]
    data: bytes
    created_at: datetime


class TraceName(NamedTuple):
    """A row of `trace_names_v1`."""

    name: str
    traces: int
    last_at: datetime


class TraceLog:
    """Records and reads traces."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def record(self, scope: Scope, trace: Trace, now: datetime | None = None) -> int | None:
        """Record a trace and return its id; None if the scope has no such partition."""
        row = await self._session.fetchrow(
            "SELECT record_trace_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS id",
            *scope,
            trace.partition_id,
            trace.transaction_id,
            trace.group,
            trace.event,
            list(trace.names),
            trace.data,
            now,
        )
        return row["id"] if row else None

    async def list_of_message(
        self, partition_id: int, transaction_id: str, *, limit: int, offset: int
    ) -> list[MessageTrace]:
        """Return a page of a message's traces, the first one first."""
        return await fetch_all(
            self._session,
            MessageTrace,
            "SELECT * FROM message_traces_v1($1, $2, $3, $4)",
            partition_id,
            transaction_id,
            limit,
            offset,
        )

    async def list_by_name(
        self,
        scope: Scope,
        name: str,
        *,
        start: datetime | None,
        end: datetime | None,
        limit: int,
        offset: int,
    ) -> list[NamedTrace]:
        """Return a page of the traces of a name, the latest first."""
        return await fetch_all(
            self._session,
            NamedTrace,
            "SELECT * FROM traces_by_name_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            name,
            start,
            end,
            limit,
            offset,
        )

    async def list_names(self, scope: Scope, prefix: str, *, limit: int, offset: int) -> list[TraceName]:
        """Return a page of the names that begin with a prefix."""
        return await fetch_all(
            self._session,
            TraceName,
            "SELECT * FROM trace_names_v1($1, $2, $3, $4, $5, $6, $7)",
            *scope,
            prefix,
            limit,
            offset,
            MAX_TRACE_COUNT,
        )

    async def prune(self, before: datetime) -> bool:
        """Delete one batch of traces from before a time; whether there may be more."""
        pruned = await fetch_value(
            self._session, int, "SELECT prune_traces_v1($1, $2)", before, TRACES_PER_PRUNE
        )
        return pruned >= TRACES_PER_PRUNE
