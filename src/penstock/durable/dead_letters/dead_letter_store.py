"""Dead letters: page through them, count them, group them by error, requeue and delete single ones."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from penstock.durable.cluster_lock import translate_lock_timeouts
from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.ids import new_id
from penstock.model import MAX_RESPONSE_BYTES, Scope

Audience = Literal["group", "all"]
"""The consumer groups that receive a requeued message: the group that gave up on it, or all of its queue."""
MAX_COUNT = 10_000
"""A total without a running count is counted up to this number."""
MAX_SCANNED = 10_000
"""Dead letters of a queue that a page reads to search for a text."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters; None matches all. `end` is exclusive."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    error: str | None = None
    """A substring of the error, ignoring case."""
    error_key: uuid.UUID | None = None
    payload: str | None = None
    """A substring of the stored payload; an encrypted payload never matches."""

    @property
    def has_exact_count(self) -> bool:
        """Whether a running count gives the exact total."""
        return self.partition is None and self.start is None and self.end is None and not self.needs_scan

    @property
    def needs_scan(self) -> bool:
        """Whether dead letters must be read to decide whether they match."""
        return self.error is not None or self.payload is not None or self.error_key is not None


class DeadLetterCursor(NamedTuple):
    """The last dead letter of a page; the next page has those that failed before it."""

    failed_at: datetime
    dead_letter_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A message and how a group gave up on it."""

    id: int
    group_name: str | None
    message_offset: int
    message_id: uuid.UUID
    trace_id: uuid.UUID | None
    payload: bytes
    error: str | None
    attempts: int
    created_at: datetime
    failed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(DeadMessage):
    """A row of `dead_letters_v1` or `find_dead_letter_v1`: with its queue and its earlier deaths."""

    queue: str
    partition_id: int
    partition: str | None
    transaction_id: str
    error_key: uuid.UUID | None
    deaths: int
    earlier_attempts: int
    first_created_at: datetime | None
    first_transaction_id: str | None


class DeadLetterPage(NamedTuple):
    """A page of dead letters. `scanned_to` is the last one read, if the page ends early: at the bound of a
    search or of its size."""

    dead_letters: list[DeadLetter]
    scanned_to: DeadLetterCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeadLetter(DeadMessage):
    """A row of `message_dead_letters_v1`: the dead letter of one message for one group."""

    group_id: int


class DeadLetterCount(NamedTuple):
    """A row of `dead_letter_status_v1`: the dead letters of one queue and group. `total` counts all rows."""

    queue_id: int
    queue: str
    group_id: int
    group_name: str | None
    messages: int
    oldest_at: datetime | None
    total: int


class RequeueOutcome(NamedTuple):
    """A row of `requeue_dead_letters_v1`."""

    id: int
    outcome: str
    queue_id: int
    partition_id: int
    message_offset: int | None
    message_id: uuid.UUID | None


class DeadLetterDrift(NamedTuple):
    """By how many dead letters recounts found counts wrong, and when the last recount ended."""

    drift: int
    recounted_at: datetime | None


class DeadLetterStore:
    """Reads dead letters and changes single ones."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read_page(
        self,
        scope: Scope,
        selection: DeadLetterFilter,
        *,
        limit: int,
        offset: int = 0,
        before: DeadLetterCursor | None = None,
        max_scanned: int = MAX_SCANNED,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> DeadLetterPage:
        """Return a page, the latest first. One with more than `max_bytes` of payload ends early."""
        before_time, before_id = before or (None, None)
        rows = await self._session.fetch(
            "SELECT * FROM dead_letters_v1"
            "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
            *_arguments(scope, selection),
            selection.error,
            selection.error_key,
            selection.payload,
            before_time,
            before_id,
            max_scanned,
            limit,
            offset,
            max_bytes,
        )
        # A row without a message is the point that a page which ends early has reached.
        ends = [DeadLetterCursor(row["failed_at"], row["id"]) for row in rows if row["message_id"] is None]
        dead_letters = [DeadLetter(**row) for row in rows if row["message_id"] is not None]
        return DeadLetterPage(dead_letters, ends[0] if ends else None)

    async def count(self, scope: Scope, selection: DeadLetterFilter) -> int:
        """Count dead letters: exactly if `selection.has_exact_count`, else up to MAX_COUNT.

        Ignores `error`, `error_key` and `payload`.
        """
        return await fetch_value(
            self._session,
            int,
            "SELECT count_matching_dead_letters_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *_arguments(scope, selection),
            MAX_COUNT,
        )

    async def get(self, scope: Scope, dead_letter_id: int) -> DeadLetter | None:
        """Return one dead letter with the names of its queue, partition and group."""
        return await fetch_one(
            self._session,
            DeadLetter,
            "SELECT * FROM find_dead_letter_v1($1, $2, $3, $4)",
            *scope,
            dead_letter_id,
        )

    async def count_by_queue(self, scope: Scope, dead_letter_ids: Sequence[int]) -> dict[str, int]:
        """Return how many of the dead letters each queue has."""
        rows = await self._session.fetch(
            "SELECT * FROM dead_letter_queues_v1($1, $2, $3, $4)", *scope, list(dead_letter_ids)
        )
        return {row["queue"]: row["dead_letters"] for row in rows}

    async def list_of_message(self, partition_id: int, transaction_id: str) -> list[GroupDeadLetter]:
        """Return the dead letters of one message, one per group that gave up on it."""
        return await fetch_all(
            self._session,
            GroupDeadLetter,
            "SELECT * FROM message_dead_letters_v1($1, $2)",
            partition_id,
            transaction_id,
        )

    async def list_counts(
        self,
        scope: Scope,
        *,
        queue: str | None = None,
        group: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        ages: bool = False,
    ) -> list[DeadLetterCount]:
        """Return the number of dead letters per queue and group; with `ages`, also when the oldest failed."""
        return await fetch_all(
            self._session,
            DeadLetterCount,
            "SELECT * FROM dead_letter_status_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            queue,
            group,
            limit,
            offset,
            ages,
        )

    async def find_error_patterns(self, errors: Sequence[str]) -> dict[str, tuple[uuid.UUID, str]]:
        """Return the key and the pattern of the error group of each error."""
        rows = await self._session.fetch("SELECT * FROM error_patterns_v1($1)", sorted(set(errors)))
        return {row["error"]: (row["key"], row["pattern"]) for row in rows}

    async def read_drift(self) -> DeadLetterDrift:
        """Return what the recounts of the last 31 days found wrong."""
        drift = await fetch_one(self._session, DeadLetterDrift, "SELECT * FROM dead_letter_drift_v1()")
        assert drift is not None
        return drift

    async def requeue(
        self, dead_letter_ids: Sequence[int], now: datetime | None = None, *, audience: Audience = "group"
    ) -> list[RequeueOutcome]:
        """Push dead messages again for an audience and delete their dead letters; one outcome each."""
        with translate_lock_timeouts():
            return await fetch_all(
                self._session,
                RequeueOutcome,
                "SELECT * FROM requeue_dead_letters_v1($1, $2, $3, $4)",
                list(dead_letter_ids),
                [new_id() for _ in dead_letter_ids],
                audience,
                now,
            )

    async def delete(
        self,
        scope: Scope,
        dead_letter_id: int,
        *,
        queue: str | None = None,
        group: str | None = None,
    ) -> bool:
        """Delete one dead letter, whatever its attempts; whether it existed in the named queue and group."""
        with translate_lock_timeouts():
            return await fetch_value(
                self._session,
                bool,
                "SELECT delete_dead_letter_v1($1, $2, $3, $4, $5, $6)",
                *scope,
                dead_letter_id,
                queue,
                group,
            )

    async def read_payloads(self, dead_letter_ids: Sequence[int]) -> dict[int, bytes]:
        """Return the stored payloads by dead letter id."""
        rows = await self._session.fetch("SELECT * FROM dead_letter_payloads_v1($1)", list(dead_letter_ids))
        return {row["id"]: row["payload"] for row in rows}

    async def replace_payloads(self, payloads: Mapping[int, bytes], expected: Mapping[int, bytes]) -> None:
        """Replace the payloads that still are what `expected` has."""
        ids = sorted(payloads)
        with translate_lock_timeouts():
            await self._session.fetch(
                "SELECT replace_dead_letter_payloads_v1($1, $2, $3)",
                ids,
                [payloads[dead_letter_id] for dead_letter_id in ids],
                [expected[dead_letter_id] for dead_letter_id in ids],
            )


def _arguments(scope: Scope, selection: DeadLetterFilter) -> list[object]:
    return [*scope, selection.queue, selection.group, selection.partition, selection.start, selection.end]
