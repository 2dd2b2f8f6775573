"""Looking at single messages, and taking one out of the ordinary way: delete, declare dead, push again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.durable.pool import Database
from penstock.model import Scope


@dataclass(frozen=True, slots=True)
class Place:
    """A partition and the queue it belongs to."""

    partition_id: int
    partition: str
    queue_id: int
    queue: str
    encrypted: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Which messages of a queue to list: see `messages_v1`."""

    queue_id: int
    partition_id: int | None = None
    group_id: int | None = None
    status: str | None = None
    start: tuple[int, int] | None = None
    """partition id and the offset below which the page starts"""
    skip: int = 0
    limit: int = 100


async def place(database: Database, scope: Scope, partition_id: int) -> Place | None:
    """The partition with an id, if it belongs to the scope."""
    row = await database.fetchrow(
        """SELECT t.name AS partition, q.id AS queue_id, q.name AS queue, q.encrypted
           FROM partitions t JOIN queues q ON q.id = t.queue_id
           WHERE t.id = $4 AND q.environment_id = environment_id_v1($1, $2, $3)""",
        scope.organization,
        scope.project,
        scope.environment,
        partition_id,
    )
    if row is None:
        return None
    return Place(partition_id, row["partition"], row["queue_id"], row["queue"], row["encrypted"])


async def partition_id(database: Database, queue_id: int, partition: str) -> int | None:
    row = await database.fetchrow(
        "SELECT id FROM partitions WHERE queue_id = $1 AND name = $2", queue_id, partition
    )
    return row["id"] if row else None


async def messages(database: Database, page: Page, now: datetime | None = None) -> list[Any]:
    """A page of a queue's messages; rows as `messages_v1` describes them."""
    start = page.start or (None, None)
    return await database.fetch(
        "SELECT * FROM messages_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        page.queue_id,
        page.partition_id,
        page.group_id,
        page.status,
        *start,
        page.skip,
        page.limit,
        now,
    )


async def find(database: Database, partition_id: int, transaction_id: str) -> int | None:
    """The offset of a message, None if there is none or it was deleted."""
    row = await database.fetchrow(
        """SELECT f.message_offset FROM (SELECT find_message_v1($1, $2) AS message_offset) f
           WHERE NOT EXISTS (SELECT 1 FROM deleted_messages d
                             WHERE d.partition_id = $1 AND d.message_offset = f.message_offset)""",
        partition_id,
        transaction_id,
    )
    return row["message_offset"] if row else None


async def message(database: Database, partition_id: int, offset: int) -> Any | None:
    """The message at an offset: a row of message_id, trace_id, payload, created_at."""
    return await database.fetchrow(
        """SELECT s.message_ids[1] AS message_id, s.trace_ids[1] AS trace_id, s.payloads[1] AS payload,
                  s.created_at
           FROM segments_v1($1, $2::bigint, $2::bigint + 1) s""",
        partition_id,
        offset,
    )


async def states(database: Database, partition_id: int, offset: int) -> list[Any]:
    """What a message is to each group; rows as `message_states_v1` describes them."""
    return await database.fetch("SELECT * FROM message_states_v1($1, $2)", partition_id, offset)


async def delete(
    database: Database, partition_id: int, transaction_id: str, now: datetime | None = None
) -> bool:
    """Take a message out of the log and of the dead letters; whether there was one."""
    row = await database.fetchrow(
        "SELECT delete_message_v1($1, $2, $3) AS existed", partition_id, transaction_id, now
    )
    assert row is not None
    existed: bool = row["existed"]
    return existed


async def bury(
    database: Database,
    partition_id: int,
    group_id: int,
    offset: int,
    error: str,
    now: datetime | None = None,
) -> str:
    """Declare a message dead for a group; the outcome as `declare_dead_v1` has it."""
    row = await database.fetchrow(
        "SELECT declare_dead_v1($1, $2, $3, $4, $5) AS outcome", partition_id, group_id, offset, error, now
    )
    assert row is not None
    outcome: str = row["outcome"]
    return outcome


async def retry(
    database: Database,
    partition_id: int,
    transaction_id: str,
    group_id: int | None,
    message_id: uuid.UUID,
    payload: bytes,
    now: datetime | None = None,
) -> str:
    """Push a dead message again and delete its dead letters; the outcome as `retry_dead_message_v1` has it."""
    row = await database.fetchrow(
        "SELECT * FROM retry_dead_message_v1($1, $2, $3, $4, $5, $6)",
        partition_id,
        transaction_id,
        group_id,
        message_id,
        payload,
        now,
    )
    assert row is not None
    outcome: str = row["outcome"]
    return outcome
