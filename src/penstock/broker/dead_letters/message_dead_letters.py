"""Dead letters of durable queues."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from penstock.broker.context import BrokerContext
from penstock.broker.dead_letters.dead_letter_source import (
    DeadLetterDetails,
    DeadLetterList,
    DeadLetterTotal,
    ErrorGroup,
    ErrorGroupPage,
    ErrorGroupQuery,
    JobPreview,
    JobRequest,
    PageRequest,
    QueueCount,
    QueueCounts,
    RequeuedDeadLetter,
    unknown_dead_letter,
)
from penstock.broker.overload.deferred import DeferredWrites
from penstock.durable.cluster_lock import ResourceBusy
from penstock.durable.dead_letters.dead_letter_store import (
    MAX_COUNT,
    Audience,
    DeadLetter,
    DeadLetterCursor,
    DeadLetterFilter,
    RequeueOutcome,
)
from penstock.durable.dead_letters.error_group_store import DeadLetterErrorGroup, DeadTaskExample
from penstock.durable.dead_letters.jobs import DeadLetterJob
from penstock.durable.stored_messages import PartitionRecord
from penstock.errors import InvalidRequest, QueueFull, UnknownGroup, WrongState
from penstock.model import Scope

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_DEAD_LETTER_ID = 2**63 - 1
MAX_REQUEUE_ATTEMPTS = 3
"""A dead letter of a queue that became encrypted is encrypted first, and then requeued."""
SAMPLE_SIZE = 5
"""Dead letters that the preview of a job shows."""


class MessageDeadLetters:
    """A `DeadLetterSource` over PostgreSQL. A letter id is the number of the dead letter."""

    def __init__(self, context: BrokerContext, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._store = context.store.dead_letters
        self._jobs = context.store.jobs
        self._deferred_writes = deferred_writes

    async def list_page(self, scope: Scope, selection: DeadLetterFilter, page: PageRequest) -> DeadLetterList:
        """Return a page, the latest first. It has a total unless dead letters must be read to match them."""
        dead_letters, page_end = await self._store.read_page(
            scope,
            selection,
            limit=page.limit,
            offset=page.offset,
            before=_parse_cursor(page.cursor),
            max_bytes=self._context.max_response_bytes,
        )
        total, is_exact = None, False
        if not selection.needs_scan:
            total, is_exact = await self.count(scope, selection)
        if len(dead_letters) == page.limit:
            page_end = DeadLetterCursor(dead_letters[-1].failed_at, dead_letters[-1].id)
        return DeadLetterList(
            [self._details(row) for row in dead_letters],
            _format_cursor(page_end) if page_end else None,
            total,
            is_exact,
            page.offset,
        )

    async def get(self, scope: Scope, letter_id: str) -> DeadLetterDetails:
        row = await self._store.get(scope, _parse_id(letter_id))
        if row is None:
            raise unknown_dead_letter(letter_id)
        return self._details(row)

    async def count(self, scope: Scope, selection: DeadLetterFilter) -> DeadLetterTotal:
        """Count dead letters, without regard to `error`, `error_key` and `payload`."""
        total = await self._store.count(scope, selection)
        return DeadLetterTotal(total, selection.has_exact_count or total < MAX_COUNT)

    async def count_by_queue(
        self, scope: Scope, selection: DeadLetterFilter, page: PageRequest, *, ages: bool
    ) -> QueueCounts:
        queue, group = selection.queue, selection.group
        counts = await self._store.list_counts(
            scope, queue=queue, group=group, limit=page.limit, offset=page.offset, ages=ages
        )
        rows = [QueueCount(c.queue, "durable", c.group_name, c.messages, c.oldest_at) for c in counts]
        if not counts and page.offset:  # a page past the end does not know the total
            counts = await self._store.list_counts(scope, queue=queue, group=group, limit=1)
        return QueueCounts(rows, counts[0].total if counts else 0)

    async def list_error_groups(
        self, scope: Scope, query: ErrorGroupQuery, *, limit: int, offset: int
    ) -> ErrorGroupPage:
        rows = await self._context.store.error_groups.list_error_groups(
            scope,
            queue=query.queue,
            group=query.group,
            states=query.states,
            error_key=query.error_key,
            hours=query.hours,
            limit=limit,
            offset=offset,
        )
        return ErrorGroupPage([_error_group(row) for row in rows], rows[0].total if rows else 0, True)

    async def find_error_example(
        self, scope: Scope, queue: str | None, error_key: uuid.UUID
    ) -> DeadTaskExample | None:
        return None

    async def requeue(self, scope: Scope, letter_id: str) -> RequeuedDeadLetter:
        """Push one dead message again for the group that gave up on it."""
        dead_letter = await self.get(scope, letter_id)
        requeued = await self._requeue(scope, dead_letter.queue, [int(letter_id)], "group")
        if requeued is None:
            raise unknown_dead_letter(letter_id)
        return RequeuedDeadLetter(dead_letter, requeued.message_id, requeued.message_offset)

    async def retry(
        self, scope: Scope, partition: PartitionRecord, transaction_id: str, group: str | None
    ) -> uuid.UUID:
        """Push a dead message again for all groups of its queue, and return its new id.

        Deletes its dead letters; with a group, only the dead letter of that group. Raises WrongState if the
        message is not dead.
        """
        rows = await self._store.list_of_message(partition.partition_id, transaction_id)
        ids = [
            row.id
            for row in rows
            # A message that was pushed again after retention dropped the first one may be dead too.
            if row.message_offset == rows[0].message_offset and group in (None, row.group_name)
        ]
        requeued = await self._requeue(scope, partition.queue, ids, "all") if ids else None
        if requeued is None:
            raise WrongState(
                f"Message {transaction_id!r} is not a dead letter. Only dead letters can be retried."
            )
        assert requeued.message_id is not None
        return requeued.message_id

    async def delete(
        self, scope: Scope, letter_id: str, *, queue: str | None = None, group: str | None = None
    ) -> None:
        if not await self._store.delete(scope, _parse_id(letter_id), queue=queue, group=group):
            raise unknown_dead_letter(letter_id)

    async def check_group(self, scope: Scope, queue: str, group: str) -> None:
        """Raise UnknownGroup if the group never had a dead letter."""
        if not await self._store.list_counts(scope, queue=queue, group=group, limit=1):
            raise UnknownGroup(
                f"Consumer group {group!r} of queue {queue!r} has never had a dead letter.", group=group
            )

    async def preview_job(self, scope: Scope, request: JobRequest) -> JobPreview:
        job = await self._create_job(scope, request, dry_run=True)
        latest: list[DeadLetter] = []
        if request.letter_ids is None:
            latest = (await self._store.read_page(scope, request.selection, limit=SAMPLE_SIZE)).dead_letters
        return JobPreview(
            replace(request.selection, end=job.failed_before),
            DeadLetterTotal(job.total, job.total_is_exact),
            [self._details(row) for row in latest],
        )

    async def create_job(self, scope: Scope, request: JobRequest) -> DeadLetterJob:
        return await self._create_job(scope, request, dry_run=False)

    async def advance_job(
        self, job: DeadLetterJob, owner: uuid.UUID, limit: int, max_scanned: int
    ) -> DeadLetterJob:
        """Execute one chunk. Encrypts dead letters that the next chunk needs encrypted."""
        advanced = await self._jobs.advance(job.id, owner, limit, max_scanned, job.kind == "requeue")
        for scope, queue_id, queue in await self._jobs.find_queue_owners(advanced.requeued):
            self._notify_requeued(scope, queue_id, queue, advanced.requeued[queue_id])
        if advanced.unencrypted:
            await self._encrypt(advanced.unencrypted)
        return advanced.job

    async def _requeue(
        self, scope: Scope, queue: str, dead_letter_ids: list[int], audience: Audience
    ) -> RequeueOutcome | None:
        """Push the message of the dead letters again once the lane of its partition is empty.

        Returns None if no dead letter exists any more. Raises QueueFull, Overloaded or ResourceBusy.
        """

        async def attempt() -> list[RequeueOutcome] | None:
            outcomes = await self._store.requeue(dead_letter_ids, audience=audience)
            return None if outcomes and outcomes[0].outcome == "operations_waiting" else outcomes

        for _ in range(MAX_REQUEUE_ATTEMPTS):
            outcomes = await self._deferred_writes.execute_after_lanes(attempt)
            if not outcomes:
                return None
            match outcomes[0].outcome:
                case "queued":
                    self._notify_requeued(scope, outcomes[0].queue_id, queue, 1)
                    return outcomes[0]
                case "queue_full":
                    raise QueueFull(
                        f"Queue {queue!r} is full: it has reached its maxSize. "
                        "Retry when consumers have acked messages.",
                        queue=queue,
                    )
                case "unsealed":
                    await self._encrypt(dead_letter_ids)
        raise ResourceBusy("The dead letter changed during each attempt. Retry shortly.")

    async def _encrypt(self, dead_letter_ids: Sequence[int]) -> None:
        """Encrypt stored payloads. Raises KeyMissing without a key."""
        payloads = await self._store.read_payloads(dead_letter_ids)
        cipher = self._context.cipher
        # Another process may have encrypted a payload in the meantime, so each one is decrypted first.
        encrypted = {
            dead_letter_id: cipher.encrypt(cipher.decrypt(payload))
            for dead_letter_id, payload in payloads.items()
        }
        await self._store.replace_payloads(encrypted, payloads)

    async def _create_job(self, scope: Scope, request: JobRequest, *, dry_run: bool) -> DeadLetterJob:
        letter_ids = request.letter_ids
        return await self._jobs.create(
            scope,
            request.kind,
            request.selection,
            dead_letter_ids=None if letter_ids is None else [int(letter_id) for letter_id in letter_ids],
            rate=request.rate,
            sample=request.sample,
            created_by=request.created_by,
            dry_run=dry_run,
        )

    def _notify_requeued(self, scope: Scope, queue_id: int, queue: str, messages: int) -> None:
        self._context.metrics.count_pushed(scope, queue_id, queue, messages)
        self._context.wakeups.notify(queue_id, messages)

    def _details(self, row: DeadLetter) -> DeadLetterDetails:
        return DeadLetterDetails(
            letter_id=str(row.id),
            kind="durable",
            queue=row.queue,
            group=row.group_name,
            message_id=str(row.message_id),
            transaction_id=row.transaction_id,
            partition_id=row.partition_id,
            partition=row.partition,
            offset=row.message_offset,
            trace_id=row.trace_id,
            error=row.error,
            error_key=row.error_key,
            attempts=row.attempts,
            total_attempts=row.earlier_attempts + row.attempts,
            deaths=row.deaths,
            created_at=row.created_at,
            failed_at=row.failed_at,
            first_created_at=row.first_created_at or row.created_at,
            first_transaction_id=row.first_transaction_id or row.transaction_id,
            payload=self._context.cipher.try_decrypt(row.payload),
        )


def _error_group(row: DeadLetterErrorGroup) -> ErrorGroup:
    return ErrorGroup(
        row.error_key,
        row.pattern,
        row.queues or [],
        [name for name in row.groups or [] if name is not None],
        row.example,
        row.hours,
        row.messages,
        row.first_at,
        row.last_at,
        row.status,
    )


def _parse_id(letter_id: str) -> int:
    """Return the number of a dead letter, capped at the largest bigint, which no dead letter has."""
    return min(int(letter_id), MAX_DEAD_LETTER_ID)


def _format_cursor(cursor: DeadLetterCursor) -> str:
    return f"{(cursor.failed_at - EPOCH) // timedelta(microseconds=1)}.{cursor.dead_letter_id}"


def _parse_cursor(text: str | None) -> DeadLetterCursor | None:
    if text is None:
        return None
    microseconds, _, dead_letter_id = text.partition(".")
    try:
        cursor = DeadLetterCursor(EPOCH + timedelta(microseconds=int(microseconds)), int(dead_letter_id))
        if 0 <= cursor.dead_letter_id <= MAX_DEAD_LETTER_ID:
            return cursor
    except (ValueError, OverflowError):
        pass  # reported below
    raise InvalidRequest("cursor is not valid. Use the nextCursor of a page.", field="cursor")
