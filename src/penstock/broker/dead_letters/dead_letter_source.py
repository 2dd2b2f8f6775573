"""The interface of dead letters, which durable queues and run queues implement, and its types."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.durable.dead_letters.error_group_store import DeadTaskExample, ErrorGroupStatus
from penstock.durable.dead_letters.jobs import DeadLetterJob, JobSample
from penstock.encryption import DecryptedPayload
from penstock.errors import UnknownMessage
from penstock.model import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetails:
    """A dead message or a dead task. `kind` is durable or run; a task has no partition, offset or deaths."""

    letter_id: str
    kind: str
    queue: str
    group: str | None
    message_id: str
    transaction_id: str
    partition_id: int | None = None
    partition: str | None = None
    offset: int | None = None
    trace_id: uuid.UUID | None = None
    error: str | None
    error_key: uuid.UUID | None = None
    attempts: int
    total_attempts: int
    deaths: int | None = None
    created_at: datetime
    failed_at: datetime
    first_created_at: datetime
    first_transaction_id: str
    payload: DecryptedPayload


@dataclass(frozen=True, slots=True)
class DeadLetterList:
    """A page of dead letters. `total` is None if it would have to be counted by a search."""

    dead_letters: list[DeadLetterDetails]
    next_cursor: str | None
    total: int | None = None
    total_is_exact: bool = False
    offset: int = 0


class QueueCount(NamedTuple):
    """How many dead letters one queue and group have. `kind` is durable or run."""

    queue: str
    kind: str
    group: str | None
    messages: int
    oldest_at: datetime | None = None


class QueueCounts(NamedTuple):
    """A page of counts by name of the queue. `total` is the number of counts on all pages."""

    rows: list[QueueCount]
    total: int


class DeadLetterTotal(NamedTuple):
    total: int
    is_exact: bool


@dataclass(slots=True)
class ErrorGroup:
    """Dead letters with the same error pattern; the pattern is None for errors not grouped yet."""

    key: uuid.UUID
    pattern: str | None
    queues: list[str]
    groups: list[str]
    example: str | None
    hours: list[int]
    """Dead letters by the hour of their death, the current hour last."""
    count: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    status: ErrorGroupStatus = field(default_factory=ErrorGroupStatus)


class ErrorGroupQuery(NamedTuple):
    """Selects error groups; None matches all. `hours` is the length of the trend."""

    queue: str | None = None
    group: str | None = None
    states: Sequence[str] | None = None
    error_key: uuid.UUID | None = None
    hours: int = 24


class ErrorGroupPage(NamedTuple):
    """A page of error groups. `is_complete`: all dead letters were read."""

    groups: list[ErrorGroup]
    total: int
    is_complete: bool


class RequeuedDeadLetter(NamedTuple):
    """A dead letter that was requeued, with its new message id and offset; a task keeps its id."""

    dead_letter: DeadLetterDetails
    message_id: uuid.UUID | None = None
    offset: int | None = None


class PageRequest(NamedTuple):
    """A page of dead letters: after `cursor`, the `next_cursor` of the page before, or from `offset`."""

    limit: int
    offset: int = 0
    cursor: str | None = None


class JobRequest(NamedTuple):
    """A job to create: `requeue` or `purge` dead letters of a filter, or those of one kind with these ids.

    `rate` is the maximum number of dead letters per second. A `sample` is requeued before the rest.
    """

    kind: str
    selection: DeadLetterFilter
    letter_ids: Sequence[str] | None = None
    rate: int | None = None
    sample: JobSample | None = None
    created_by: str = "local"


class JobPreview(NamedTuple):
    """What a job would change, with the latest dead letters of its filter."""

    selection: DeadLetterFilter
    total: DeadLetterTotal
    latest: list[DeadLetterDetails]


class DeadLetterSource(Protocol):
    """The dead letters of one kind of queue. Ids that do not exist raise UnknownMessage or UnknownTask."""

    async def list_page(
        self, scope: Scope, selection: DeadLetterFilter, page: PageRequest
    ) -> DeadLetterList: ...

    async def get(self, scope: Scope, letter_id: str) -> DeadLetterDetails: ...

    async def count(self, scope: Scope, selection: DeadLetterFilter) -> DeadLetterTotal: ...

    async def count_by_queue(
        self, scope: Scope, selection: DeadLetterFilter, page: PageRequest, *, ages: bool
    ) -> QueueCounts:
        """Count the dead letters of each queue and group; with `ages`, also say when the oldest died."""
        ...

    async def list_error_groups(
        self, scope: Scope, query: ErrorGroupQuery, *, limit: int, offset: int
    ) -> ErrorGroupPage:
        """Return dead letters grouped by error pattern, the most frequent first, with their states."""
        ...

    async def find_error_example(
        self, scope: Scope, queue: str | None, error_key: uuid.UUID
    ) -> DeadTaskExample | None:
        """Return an error of a group that PostgreSQL does not know: that of a run queue."""
        ...

    async def requeue(self, scope: Scope, letter_id: str) -> RequeuedDeadLetter:
        """Deliver one dead letter again to the group that gave up on it."""
        ...

    async def delete(
        self, scope: Scope, letter_id: str, *, queue: str | None = None, group: str | None = None
    ) -> None:
        """Delete one dead letter, which must belong to the named queue and group."""
        ...

    async def check_group(self, scope: Scope, queue: str, group: str) -> None:
        """Raise UnknownGroup if the group of a queue cannot have dead letters."""
        ...

    async def preview_job(self, scope: Scope, request: JobRequest) -> JobPreview:
        """Return what a job would change."""
        ...

    async def create_job(self, scope: Scope, request: JobRequest) -> DeadLetterJob: ...

    async def advance_job(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk and return the job afterwards."""
        ...


def unknown_dead_letter(letter_id: str) -> UnknownMessage:
    return UnknownMessage(
        f"Dead letter {letter_id} does not exist: it was requeued or deleted, or never existed.",
        letterId=letter_id,
    )
