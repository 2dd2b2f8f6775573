"""Deferred operations: pushes and acks that are accepted now and executed later, in order per lane."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import asyncpg

from penstock.durable.log import Ack, Segment
from penstock.durable.pool import Row, Session, fetch_all, fetch_one, fetch_value
from penstock.errors import PenstockError
from penstock.model import Scope

PUSH, ACK = "push", "ack"
PRIORITIES = {PUSH: 5, ACK: 3}
"""Lower is more urgent: an ack ends a lease that other consumers wait for."""

NIL = uuid.UUID(int=0)


class DrainFailed(PenstockError):
    """An operation of a batch raised an error, so none of the batch was executed."""

    code = "undrainable"
    title = "Drain failed"


@dataclass(slots=True)
class LanePush:
    """The messages of one request for one partition."""

    id: uuid.UUID
    segment: Segment


@dataclass(slots=True)
class LaneAcks:
    """The acks of one request for one partition."""

    id: uuid.UUID
    partition_id: int
    acks: list[Ack]


class PushDeferral(NamedTuple):
    """The result of deferring pushes.

    `places` has one entry per operation: its position in its lane from 1, 0 if none of its items was
    accepted, or None where the partition was deleted. `duplicates` maps items, from 0 over all operations, to
    the ids of the originals. `refused` holds the items whose queue is full.
    """

    places: list[int | None]
    duplicates: dict[int, uuid.UUID]
    refused: frozenset[int]


class DrainedPartition(NamedTuple):
    """What a drain did to one partition, as a row of `drain_v1`."""

    operations: int
    scope: Scope
    queue_id: int
    queue: str
    partition_id: int
    group: str
    outcome: str
    messages: int
    run_ms: list[int] | None


class LaneDepth(NamedTuple):
    """How many operations wait, and how many have ever left their lanes."""

    waiting: int
    finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSummary:
    """A row of `operations_v1`."""

    id: uuid.UUID
    kind: str
    status: str
    reason: str
    priority: int
    queue: str
    partition: str
    partition_id: int
    items: int
    accepted_at: datetime
    finished_at: datetime | None
    attempts: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord(OperationSummary):
    """A row of `operation_v1`: an operation with its items, its result and the operations ahead of it."""

    sequence: int
    transaction_ids: list[str | None]
    message_ids: list[uuid.UUID] | None
    trace_ids: list[uuid.UUID | None] | None
    statuses: list[str] | None
    result: str | None
    """JSON, once the operation is completed."""
    ahead: int | None


class OperationStatistics(NamedTuple):
    """A row of `operation_statistics_v1`."""

    kind: str
    priority: int
    status: str
    operations: int
    oldest: datetime
    newest: datetime
    average_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A row of `lanes_v1`: the waiting operations of one kind and partition.

    The last four fields are of the first operation. They are None if it was executed just now.
    """

    queue: str
    partition: str
    partition_id: int
    kind: str
    operations: int
    blocked: bool
    retry_at: datetime | None
    total: int
    operation_id: uuid.UUID | None
    accepted_at: datetime | None
    attempts: int | None
    error: str | None


class DeferredOperations:
    """Accepts, drains, reads and deletes deferred operations."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def defer_pushes(
        self, operations: Sequence[LanePush], reason: str, now: datetime | None = None
    ) -> PushDeferral:
        """Accept pushes, without duplicates and items that do not fit into their queue."""
        row = await self._session.fetchrow(
            "SELECT * FROM defer_new_pushes_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            *_push_arguments(operations, reason),
            now,
        )
        assert row is not None
        duplicates = zip(row["duplicate_items"] or (), row["duplicate_ids"] or (), strict=True)
        return PushDeferral(
            row["places"],
            {item - 1: original_id for item, original_id in duplicates},
            frozenset(item - 1 for item in row["refused_items"] or ()),
        )

    async def take_over_journal(
        self, journal_id: uuid.UUID, position: int, operations: Sequence[LanePush], reason: str
    ) -> list[int]:
        """Accept the pushes of a journal up to `position`, once: a repeated call does nothing.

        Raises QueueDeleted, and accepts nothing, if a partition was deleted.
        """
        row = await self._session.fetchrow(
            "SELECT take_over_journal_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS positions",
            journal_id,
            position,
            *_push_arguments(operations, reason),
        )
        assert row is not None
        positions: list[int] = row["positions"]
        return positions

    async def journal_position(self, journal_id: uuid.UUID) -> int:
        """Return the position up to which a journal was taken over; 0 if nothing of it was."""
        row = await self._session.fetchrow("SELECT * FROM journal_position_v1($1)", journal_id)
        return int(row["position"]) if row else 0

    async def defer_acks(
        self, operations: Sequence[LaneAcks], reason: str, hold_ms: int, now: datetime | None = None
    ) -> tuple[list[int | None], set[int]]:
        """Accept acks and hold their leases for `hold_ms`.

        Returns the position of each operation in its lane, or None if none of its acks was accepted; and the
        acks, from 0 over all operations, that were refused because their lease has ended.
        """
        acks = [ack for operation in operations for ack in operation.acks]
        row = await self._session.fetchrow(
            "SELECT * FROM defer_acks_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            [operation.id for operation in operations],
            [operation.partition_id for operation in operations],
            reason,
            PRIORITIES[ACK],
            [len(operation.acks) for operation in operations],
            [ack.group_id for ack in acks],
            [ack.lease_id for ack in acks],
            [ack.transaction_id for ack in acks],
            [ack.status for ack in acks],
            [ack.error for ack in acks],
            hold_ms,
            now,
        )
        assert row is not None
        return row["places"], {item - 1 for item in row["refused_items"] or ()}

    async def drain(
        self, kind: str, *, lanes: int, operations: int, now: datetime | None = None
    ) -> list[DrainedPartition]:
        """Execute the most urgent operations, all or nothing: up to `operations` of each of `lanes` lanes.

        Raises DrainFailed if one of them cannot be executed.
        """
        try:
            rows = await self._session.fetch(
                "SELECT * FROM drain_v1($1, $2, $3, $4)", kind, lanes, operations, now
            )
        except asyncpg.PostgresError as error:
            raise DrainFailed(f"Deferred operations cannot be executed: {error}") from error
        return [_drained_partition(row) for row in rows]

    async def drain_one_by_one(
        self,
        kind: str,
        *,
        lanes: int,
        attempts: int,
        backoff_ms: int,
        hold: bool,
        now: datetime | None = None,
    ) -> list[DrainedPartition]:
        """Execute operations one by one: one that fails is retried later, and parked after `attempts`."""
        rows = await self._session.fetch(
            "SELECT * FROM drain_one_by_one_v1($1, $2, $3, $4, $5, $6)",
            kind,
            lanes,
            attempts,
            backoff_ms,
            hold,
            now,
        )
        return [_drained_partition(row) for row in rows]

    async def depths(self) -> dict[str, LaneDepth]:
        """Return the depth per kind, at the same cost however many operations wait."""
        rows = await self._session.fetch("SELECT * FROM operation_depths_v1()")
        depths = {row["kind"]: LaneDepth(row["waiting"], row["finished"]) for row in rows}
        return {kind: depths.get(kind, LaneDepth(0, 0)) for kind in (PUSH, ACK)}

    async def seconds_until_due(self) -> float | None:
        """Return the seconds until a lane may be drained, 0 if one may be now; None if no lane waits."""
        row = await self._session.fetchrow("SELECT * FROM seconds_until_due_v1()")
        return row["delay_s"] if row else None

    async def get(self, scope: Scope, operation_id: uuid.UUID) -> OperationRecord | None:
        """Return the operation of an id, or None."""
        return await fetch_one(
            self._session,
            OperationRecord,
            "SELECT * FROM operation_v1($1, $2, $3, $4)",
            *scope,
            operation_id,
        )

    async def list_operations(
        self,
        scope: Scope,
        *,
        queue: str | None,
        status: str | None,
        after: uuid.UUID | None,
        limit: int,
    ) -> list[OperationSummary]:
        """Return a page of operations, the oldest first."""
        return await fetch_all(
            self._session,
            OperationSummary,
            "SELECT * FROM operations_v1($1, $2, $3, $4, $5, $6, $7)",
            *scope,
            queue,
            status,
            after or NIL,
            limit,
        )

    async def list_lanes(self, scope: Scope, *, queue: str | None, limit: int) -> list[Lane]:
        """Return the lanes with waiting operations, the most urgent first."""
        return await fetch_all(
            self._session, Lane, "SELECT * FROM lanes_v1($1, $2, $3, $4, $5)", *scope, queue, limit
        )

    async def statistics(self, scope: Scope) -> list[OperationStatistics]:
        """Return counts, ages and average durations of an environment per kind, priority and status."""
        return await fetch_all(
            self._session, OperationStatistics, "SELECT * FROM operation_statistics_v1($1, $2, $3)", *scope
        )

    async def retry(self, operation_id: uuid.UUID) -> str:
        """Retry a failed operation: `retried`; or without an effect `unknown` or `not_failed`."""
        return await fetch_value(self._session, str, "SELECT retry_operation_v1($1)", operation_id)

    async def delete(self, operation_id: uuid.UUID) -> str:
        """Delete an operation; the status it had, or `unknown`."""
        return await fetch_value(self._session, str, "SELECT delete_operation_v1($1)", operation_id)

    async def prune_completed(self, age_s: float, limit: int) -> int:
        """Delete up to `limit` operations that completed more than `age_s` ago; how many were deleted."""
        return await fetch_value(self._session, int, "SELECT prune_operations_v1($1, $2)", age_s, limit)


def _push_arguments(operations: Sequence[LanePush], reason: str) -> list[object]:
    segments = [operation.segment for operation in operations]
    return [
        [operation.id for operation in operations],
        [segment.partition_id for segment in segments],
        reason,
        PRIORITIES[PUSH],
        [len(segment.message_ids) for segment in segments],
        [m for segment in segments for m in segment.message_ids],
        [t for segment in segments for t in segment.transaction_ids],
        [t for segment in segments for t in segment.trace_ids],
        [p for segment in segments for p in segment.payloads],
    ]


def _drained_partition(row: Row) -> DrainedPartition:
    operations, organization, project, environment, *rest = row
    return DrainedPartition(operations, Scope(organization, project, environment), *rest)
