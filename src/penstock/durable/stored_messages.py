"""Single messages: list, find and read them; delete one, declare it dead."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import MAX_RESPONSE_BYTES, Scope


class PartitionRecord(NamedTuple):
    """A partition and its queue, as a row of `find_partition_v1`."""

    partition_id: int
    partition: str
    queue_id: int
    queue: str
    encrypted: bool


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages to list; see `messages_v1`."""

    group_ids: Mapping[int, int | None]
    """The queues by id, each with the group whose status is shown."""
    partition_id: int | None = None
    status: str | None = None
    start: tuple[int, int] | None = None
    """A partition id and the offset below which the page starts."""
    skip: int = 0
    limit: int = 100
    max_bytes: int = MAX_RESPONSE_BYTES


class ListedMessage(NamedTuple):
    """A row of `messages_v1`. `total` counts the messages of all pages; 0 in a search."""

    queue_id: int
    partition_id: int
    partition: str
    message_offset: int
    message_id: uuid.UUID
    transaction_id: str
    trace_id: uuid.UUID | None
    payload: bytes
    created_at: datetime
    status: str
    attempts: int
    lease_expires_at: datetime | None
    total: int


class MessageContent(NamedTuple):
    """A row of `read_message_v1`."""

    message_id: uuid.UUID
    trace_id: uuid.UUID | None
    payload: bytes
    created_at: datetime


class MessageState(NamedTuple):
    """A row of `message_states_v1`: the state of a message for one group."""

    group_name: str
    status: str
    attempts: int
    lease_expires_at: datetime | None
    error: str | None
    failed_at: datetime | None


class MessageEvent(NamedTuple):
    """A row of `message_events_v1`."""

    event: str
    group_name: str
    began_at: datetime
    happened_at: datetime
    attempts: int | None
    error: str | None
    new_message_id: uuid.UUID | None


class StoredMessages:
    """Reads and changes single messages of the log."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def find_partition(self, scope: Scope, partition_id: int) -> PartitionRecord | None:
        """Return the partition with an id, if it belongs to the scope."""
        return await fetch_one(
            self._session,
            PartitionRecord,
            "SELECT * FROM find_partition_v1($1, $2, $3, $4)",
            *scope,
            partition_id,
        )

    async def find_partition_id(self, queue_id: int, partition: str) -> int | None:
        """Return the id of a queue's partition by name."""
        row = await self._session.fetchrow("SELECT * FROM partition_id_v1($1, $2)", queue_id, partition)
        return row["partition_id"] if row else None

    async def list_messages(self, query: MessageQuery, now: datetime | None = None) -> list[ListedMessage]:
        """Return a page of messages, newest first within each partition.

        A page whose payloads are larger than `max_bytes` ends early, with at least one message.
        """
        start_partition, start_offset = query.start or (None, None)
        return await fetch_all(
            self._session,
            ListedMessage,
            "SELECT * FROM messages_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            list(query.group_ids),
            list(query.group_ids.values()),
            query.partition_id,
            query.status,
            start_partition,
            start_offset,
            query.skip,
            query.limit,
            query.max_bytes,
            now,
        )

    async def find_offset(self, partition_id: int, transaction_id: str) -> int | None:
        """Return the offset of a message; None if there is none or it was deleted."""
        row = await self._session.fetchrow(
            "SELECT * FROM find_stored_message_v1($1, $2)", partition_id, transaction_id
        )
        return row["message_offset"] if row else None

    async def read(self, partition_id: int, offset: int) -> MessageContent | None:
        """Return the message at an offset, or None if it is not stored any more."""
        return await fetch_one(
            self._session, MessageContent, "SELECT * FROM read_message_v1($1, $2)", partition_id, offset
        )

    async def list_states(self, partition_id: int, offset: int) -> list[MessageState]:
        """Return the state of a message for each group of its queue."""
        return await fetch_all(
            self._session, MessageState, "SELECT * FROM message_states_v1($1, $2)", partition_id, offset
        )

    async def list_events(self, partition_id: int, offset: int) -> list[MessageEvent]:
        """Return what is recorded of a message besides its push, its traces and its dead letters."""
        return await fetch_all(
            self._session, MessageEvent, "SELECT * FROM message_events_v1($1, $2)", partition_id, offset
        )

    async def delete(self, partition_id: int, transaction_id: str, now: datetime | None = None) -> bool:
        """Delete a message from the log and from the dead letters; whether it existed."""
        return await fetch_value(
            self._session, bool, "SELECT delete_message_v1($1, $2, $3)", partition_id, transaction_id, now
        )

    async def declare_dead(
        self, partition_id: int, group_id: int, offset: int, error: str, now: datetime | None = None
    ) -> str:
        """Declare a message dead for a group; the outcome as `declare_dead_v1` returns it."""
        return await fetch_value(
            self._session,
            str,
            "SELECT declare_dead_v1($1, $2, $3, $4, $5)",
            partition_id,
            group_id,
            offset,
            error,
            now,
        )
