"""Search the log: which offsets to read next, and the messages among them that match."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_one
from penstock.durable.stored_messages import ListedMessage


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Which messages a search returns. None matches every message."""

    group_ids: Mapping[int, int | None]
    """The queues by id, each with the group whose status counts."""
    partition_id: int | None = None
    status: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    message_id: uuid.UUID | None = None
    transaction_id: str | None = None
    texts: tuple[str, ...] | None = None
    """The payload contains one of these texts, which are in lower case."""
    key: str | None = None
    value: str | None = None
    """The payload has this value under this index key."""


class SearchPosition(NamedTuple):
    """Where reading goes on: at a partition id, below an offset of that partition."""

    partition_id: int = 0
    below: int | None = None


class OffsetRange(NamedTuple):
    """Offsets of a partition that a search reads, and the group whose status counts."""

    partition_id: int
    group_id: int | None
    start: int
    end: int
    """Exclusive."""


class RangePage(NamedTuple):
    """The next ranges in reading order, and the partitions that were looked at for them."""

    ranges: list[OffsetRange]
    last_partition_id: int | None
    partitions: int


class SearchTotal(NamedTuple):
    """A row of `search_total_v1`: messages to read in `counted` partitions, of all partitions."""

    messages: int
    counted: int
    partitions: int


class MatchPage(NamedTuple):
    """Messages that match. `stop` is where reading stopped early, because the payloads were large."""

    matches: list[ListedMessage]
    stop: SearchPosition | None


class MessageSearchStore:
    """Reads the log for searches, in small statements."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def next_ranges(
        self,
        search: SearchFilter,
        position: SearchPosition,
        *,
        key: str | None = None,
        partitions: int,
        messages: int,
    ) -> RangePage:
        """Return the next offsets to read. `key` is a transaction id that a client chose."""
        rows = await self._session.fetch(
            "SELECT * FROM search_ranges_v1($1, $2, $3, $4, $5, $6, md5($7)::uuid, $8, $9, $10, $11)",
            *_candidate_arguments(search),
            key,
            *position,
            partitions,
            messages,
        )
        ranges = [OffsetRange(*row[:4]) for row in rows if row["partition_id"] is not None]
        return RangePage(ranges, rows[0]["last_partition_id"], rows[0]["partitions"])

    async def next_indexed(
        self, search: SearchFilter, position: SearchPosition, *, limit: int
    ) -> list[OffsetRange]:
        """Return the next messages that the index has for the filter's key and value, one range each."""
        [(queue_id, group_id)] = search.group_ids.items()
        rows = await self._session.fetch(
            "SELECT * FROM search_index_v1($1, $2, $3, $4, $5, $6, $7)",
            queue_id,
            search.key,
            search.value,
            search.partition_id,
            *position,
            limit,
        )
        return [OffsetRange(partition_id, group_id, offset, offset + 1) for partition_id, offset in rows]

    async def count(self, search: SearchFilter, *, key: str | None = None, partitions: int) -> SearchTotal:
        """Count the messages to read in the first partitions."""
        total = await fetch_one(
            self._session,
            SearchTotal,
            "SELECT * FROM search_total_v1($1, $2, $3, $4, $5, $6, md5($7)::uuid, $8)",
            *_candidate_arguments(search),
            key,
            partitions,
        )
        assert total is not None
        return total

    async def read(
        self,
        search: SearchFilter,
        ranges: Sequence[OffsetRange],
        *,
        max_bytes: int,
        limit: int,
    ) -> MatchPage:
        """Return up to `limit` messages of the ranges that match; encrypted payloads match any text."""
        rows = await self._session.fetch(
            """SELECT * FROM search_messages_v1(
                   $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)""",
            *([getattr(r, column) for r in ranges] for column in OffsetRange._fields),
            search.message_id,
            search.transaction_id,
            search.texts,
            search.key,
            search.value,
            search.status,
            search.start,
            search.end,
            max_bytes,
            limit,
        )
        stop = None
        if not rows[0]["is_complete"]:
            stop = SearchPosition(rows[0]["stop_partition_id"], rows[0]["stop_offset"])
        matches = [ListedMessage._make([*row[3:], 0]) for row in rows if row["message_id"] is not None]
        return MatchPage(matches, stop)


def _candidate_arguments(search: SearchFilter) -> list[object]:
    return [
        list(search.group_ids),
        list(search.group_ids.values()),
        search.partition_id,
        search.status,
        search.start,
        search.end,
    ]
