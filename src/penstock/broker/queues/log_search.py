"""Search messages in steps: each step reads a bounded part of the log and returns where the next one goes on.

A search has no state in the broker. The caller repeats the step with the cursor of the last one until there
is none; a caller that stops has cancelled the search. Steps run one at a time per broker process, in
statements that take milliseconds, so a search slows no push, pop or ack noticeably.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from penstock.durable.message_search_store import (
    MessageSearchStore,
    OffsetRange,
    RangePage,
    SearchFilter,
    SearchPosition,
)
from penstock.durable.stored_messages import ListedMessage
from penstock.encryption import ENCRYPTED_MARK, PayloadCipher
from penstock.errors import InvalidRequest, Overloaded

T = TypeVar("T")

ID_TIME_SLACK = timedelta(minutes=1)
"""A message is stored close to the time in its id: clocks differ, and deferred pushes wait."""
MAX_ID_TIME_S = 2**37
"""In the year 6325; `datetime` cannot hold every time that an id can."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much a step and its statements read."""

    step_s: float = 0.4
    statement_s: float = 5.0
    """A statement that takes longer is cancelled."""
    wait_s: float = 10.0
    """How long a step waits for the steps of other searches."""
    partitions: int = 200
    messages: int = 2_000
    max_bytes: int = 8 * 1024 * 1024
    response_bytes: int = 4 * 1024 * 1024
    """A step ends when the payloads that match have this size together."""
    counted_partitions: int = 2_000
    """With more partitions than this, the total is estimated."""


class SearchCursor(NamedTuple):
    """Where a search goes on, and what it has done so far."""

    phase: int = 0
    partition_id: int = 0
    below: int = -1
    """An offset; -1 if the partition is read from its end."""
    examined: int = 0
    total: int = -1
    """Messages that this phase reads; -1 if that is not known."""
    is_exact: int = 1
    has_matches: int = 0

    @property
    def position(self) -> SearchPosition:
        return SearchPosition(self.partition_id, None if self.below < 0 else self.below)

    def to_text(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> SearchCursor:
        """Return the cursor of a step. Raises InvalidRequest."""
        try:
            fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (ValueError, binascii.Error):
            fields = None
        is_valid = isinstance(fields, list) and len(fields) == len(cls._fields)
        if not is_valid or not all(type(field) is int and -1 <= field < 2**63 for field in fields):
            raise InvalidRequest("cursor is not valid. Use the nextCursor of a search.", field="cursor")
        return cls(*fields)


class SearchStep(NamedTuple):
    """The matches of a step, and the cursor of the next step; `progress` is that of this step."""

    matches: list[ListedMessage]
    next_cursor: SearchCursor | None
    progress: SearchCursor


class _Phase(NamedTuple):
    """One pass over the log: which part of it, and how its messages are selected."""

    search: SearchFilter
    transaction_key: str | None = None
    """A transaction id to look up among those that clients chose."""
    uses_index: bool = False


class _Progress(NamedTuple):
    matches: list[ListedMessage]
    position: SearchPosition | None
    """Where reading goes on; None at the end of the phase."""
    examined: int


def payload_texts(text: str) -> tuple[str, ...]:
    """Return the forms in which JSON may hold a text: as typed, and with characters escaped."""
    forms = (text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1])
    return tuple(dict.fromkeys(form.encode().lower().decode() for form in forms))


class MessageSearch:
    """Searches of one broker process."""

    def __init__(
        self, store: MessageSearchStore, cipher: PayloadCipher, limits: SearchLimits | None = None
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._limits = limits or SearchLimits()
        self._turn = asyncio.Semaphore(1)

    async def step(self, search: SearchFilter, cursor: SearchCursor | None, limit: int) -> SearchStep:
        """Read on until `limit` messages match, the step's time is over, or the search ends.

        Raises Overloaded if other searches, or PostgreSQL, take too long.
        """
        try:
            await asyncio.wait_for(self._turn.acquire(), self._limits.wait_s)
        except TimeoutError:
            raise Overloaded(1.0) from None
        try:
            return await self._step(search, cursor or SearchCursor(), limit)
        finally:
            self._turn.release()

    async def _step(self, search: SearchFilter, cursor: SearchCursor, limit: int) -> SearchStep:
        phases = _plan_phases(search)
        if cursor.phase >= len(phases):
            raise InvalidRequest("cursor is that of another search. Use its nextCursor.", field="cursor")
        matches: list[ListedMessage] = []
        matched_bytes = 0
        deadline = time.monotonic() + self._limits.step_s
        while True:
            phase = phases[cursor.phase]
            if cursor.position == SearchPosition() and cursor.examined == 0:
                cursor = await self._count(phase, cursor)
            progress = await self._read_on(phase, cursor.position, limit - len(matches))
            matches += progress.matches
            examined = cursor.examined + progress.examined
            cursor = cursor._replace(
                examined=examined,
                total=-1 if cursor.total < 0 else max(cursor.total, examined),
                has_matches=int(bool(cursor.has_matches or matches)),
            )
            if progress.position is not None:
                partition_id, below = progress.position
                next_cursor = cursor._replace(partition_id=partition_id, below=-1 if below is None else below)
            elif cursor.phase + 1 < len(phases) and not cursor.has_matches:
                next_cursor = SearchCursor(cursor.phase + 1)
            else:
                return SearchStep(matches, None, cursor)
            matched_bytes += sum(len(match.payload) for match in progress.matches)
            is_full = len(matches) >= limit or matched_bytes >= self._limits.response_bytes
            if is_full or time.monotonic() > deadline:
                return SearchStep(matches, next_cursor, cursor)
            cursor = next_cursor

    async def _count(self, phase: _Phase, cursor: SearchCursor) -> SearchCursor:
        """Set the total of a phase: exact, or estimated from the first partitions."""
        if phase.uses_index:
            return cursor
        total = await self._execute(
            self._store.count(
                phase.search, key=phase.transaction_key, partitions=self._limits.counted_partitions
            )
        )
        is_exact = total.counted >= total.partitions
        messages = total.messages if is_exact else round(total.messages * total.partitions / total.counted)
        return cursor._replace(total=messages, is_exact=int(is_exact))

    async def _read_on(self, phase: _Phase, position: SearchPosition, limit: int) -> _Progress:
        """Read the next ranges of a phase."""
        ranges, end = await self._next_ranges(phase, position)
        if not ranges:
            return _Progress([], end, 0)
        page = await self._execute(
            self._store.read(phase.search, ranges, max_bytes=self._limits.max_bytes, limit=limit)
        )
        stop = page.stop
        if len(page.matches) == limit:
            stop = SearchPosition(page.matches[-1].partition_id, page.matches[-1].message_offset)
        matches = await self._compare_decrypted(phase.search, page.matches)
        if stop is None:
            return _Progress(matches, end, sum(r.end - r.start for r in ranges))
        return _Progress(matches, stop, _count_read(ranges, stop))

    async def _next_ranges(
        self, phase: _Phase, position: SearchPosition
    ) -> tuple[list[OffsetRange], SearchPosition | None]:
        """Return the next ranges, and the position after them; None if they are the last."""
        limits = self._limits
        if phase.uses_index:
            ranges = await self._execute(
                self._store.next_indexed(phase.search, position, limit=limits.messages)
            )
            is_last = len(ranges) < limits.messages
            return ranges, None if is_last else SearchPosition(ranges[-1].partition_id, ranges[-1].start)
        page = await self._execute(
            self._store.next_ranges(
                phase.search,
                position,
                key=phase.transaction_key,
                partitions=limits.partitions,
                messages=limits.messages,
            )
        )
        return page.ranges, _position_after(page, limits)

    async def _compare_decrypted(
        self, search: SearchFilter, matches: list[ListedMessage]
    ) -> list[ListedMessage]:
        """Return the messages without those whose encrypted payload does not contain the text."""
        if search.texts is None or not any(_is_encrypted(match) for match in matches):
            return matches
        texts = [text.encode() for text in search.texts]
        return await asyncio.to_thread(
            lambda: [m for m in matches if not _is_encrypted(m) or self._contains(m.payload, texts)]
        )

    def _contains(self, payload: bytes, texts: list[bytes]) -> bool:
        decrypted = self._cipher.try_decrypt(payload).payload
        return decrypted is not None and any(text in decrypted.lower() for text in texts)

    async def _execute(self, statement: Awaitable[T]) -> T:
        """Execute a statement; cancel it in the database if it takes too long."""
        try:
            async with asyncio.timeout(self._limits.statement_s):
                return await statement
        except TimeoutError:
            raise Overloaded(1.0) from None


def _plan_phases(search: SearchFilter) -> list[_Phase]:
    """Return the passes of a search; the next one starts only if the ones before had no match.

    An id that a broker made contains its time, so messages that were stored near that time are read first.
    """
    if search.key is not None:
        return [_Phase(search, uses_index=True)]
    phases = []
    made_at = None
    if search.message_id is not None:
        made_at = _time_of_id(search.message_id)
    elif search.transaction_id is not None:
        phases = [_Phase(search, transaction_key=search.transaction_id)]
        made_at = _time_of_id(_parse_uuid(search.transaction_id))
        if made_at is None:  # a broker makes UUIDs only
            return phases
    if made_at is None:
        return [_Phase(search)]
    near, later = made_at - ID_TIME_SLACK, made_at + ID_TIME_SLACK
    near_filter = replace(search, start=max(near, search.start or near), end=min(later, search.end or later))
    return [*phases, _Phase(near_filter), _Phase(replace(search, start=max(later, search.start or later)))]


def _parse_uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _time_of_id(message_id: uuid.UUID | None) -> datetime | None:
    """Return the time in an id of version 7; None for other ids."""
    if message_id is None or message_id.version != 7:
        return None
    return datetime.fromtimestamp(min((message_id.int >> 80) / 1_000, MAX_ID_TIME_S), UTC)


def _position_after(page: RangePage, limits: SearchLimits) -> SearchPosition | None:
    if sum(r.end - r.start for r in page.ranges) >= limits.messages:
        return SearchPosition(page.ranges[-1].partition_id, page.ranges[-1].start)
    if page.last_partition_id is None or page.partitions < limits.partitions:
        return None
    return SearchPosition(page.last_partition_id + 1)


def _count_read(ranges: Sequence[OffsetRange], stop: SearchPosition) -> int:
    """Count the messages from the start of the ranges to a position."""
    assert stop.below is not None
    count = 0
    for r in ranges:
        if r.partition_id < stop.partition_id:
            count += r.end - r.start
        elif r.partition_id == stop.partition_id:
            count += max(0, r.end - max(r.start, stop.below))
    return count


def _is_encrypted(match: ListedMessage) -> bool:
    return match.payload[:1] == bytes((ENCRYPTED_MARK,))
