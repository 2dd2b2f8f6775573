"""Push, pop and ack as calls of the SQL functions: arrays in, rows out, one round trip each."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.durable.pool import Database
from penstock.model import Scope


class PartitionName(NamedTuple):
    queue: str
    partition: str


class PartitionId(NamedTuple):
    queue_id: int
    partition_id: int


class GroupId(NamedTuple):
    queue_id: int
    group_id: int
    lease_ms: int | None


@dataclass(slots=True)
class Segment:
    """Messages for one partition, in push order; the lists have equal length."""

    partition_id: int
    message_ids: list[uuid.UUID]
    transaction_ids: list[str | None]
    trace_ids: list[uuid.UUID | None]
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push: first offset per segment, and original ids by duplicate item (0-based)."""

    first_offsets: list[int | None]
    duplicates: dict[int, uuid.UUID]


@dataclass(frozen=True, slots=True)
class PopRequest:
    lease_id: uuid.UUID
    batch: int
    width: int = 1


class Ack(NamedTuple):
    partition_id: int
    group_id: int
    lease_id: uuid.UUID
    transaction_id: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Acked:
    outcome: str
    queue_id: int | None
    queue: str | None
    partition: str | None
    group: str | None
    lease_released: bool
    run_ms: int | None


async def ensure_partitions(
    database: Database, scope: Scope, names: Sequence[PartitionName]
) -> dict[PartitionName, PartitionId]:
    """Ids for the names, made where missing."""
    rows = await database.fetch(
        "SELECT * FROM ensure_partitions_v1($1, $2, $3, $4, $5)",
        scope.organization,
        scope.project,
        scope.environment,
        [name.queue for name in names],
        [name.partition for name in names],
    )
    return {
        PartitionName(row["queue"], row["partition"]): PartitionId(row["queue_id"], row["partition_id"])
        for row in rows
    }


async def ensure_group(database: Database, scope: Scope, queue: str, group: str) -> GroupId:
    """The group's id; the group, and its queue, are made where missing."""
    row = await database.fetchrow(
        "SELECT * FROM ensure_group_v1($1, $2, $3, $4, $5)",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
        group,
    )
    assert row is not None
    return GroupId(row["queue_id"], row["group_id"], row["lease_ms"])


async def push(database: Database, segments: Sequence[Segment], now: datetime | None = None) -> Pushed:
    """Append the segments, all or none. A partition may appear once."""
    keyed = any(t is not None for s in segments for t in s.transaction_ids)
    traced = any(t is not None for s in segments for t in s.trace_ids)
    row = await database.fetchrow(
        "SELECT * FROM push_v1($1, $2, $3, $4, $5, $6, $7)",
        [s.partition_id for s in segments],
        [len(s.message_ids) for s in segments],
        [m for s in segments for m in s.message_ids],
        [t for s in segments for t in s.transaction_ids] if keyed else None,
        [t for s in segments for t in s.trace_ids] if traced else None,
        [p for s in segments for p in s.payloads],
        now,
    )
    assert row is not None
    items: list[int] = row["duplicate_items"] or []
    originals: list[uuid.UUID] = row["duplicate_ids"] or []
    duplicates = {item - 1: original for item, original in zip(items, originals, strict=True)}
    return Pushed(row["first_offsets"], duplicates)


async def pop(
    database: Database,
    group_id: int,
    requests: Sequence[PopRequest],
    *,
    partition_id: int | None = None,
    lease_ms: int,
    auto_ack: bool = False,
    now: datetime | None = None,
) -> list[Any]:
    """Lease messages for requests of one group; rows as `pop_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM pop_v1($1, $2, $3, $4, $5, $6, $7, $8)",
        group_id,
        [r.lease_id for r in requests],
        [r.batch for r in requests],
        [r.width for r in requests],
        partition_id,
        lease_ms,
        auto_ack,
        now,
    )


async def ack(database: Database, acks: Sequence[Ack], now: datetime | None = None) -> list[Acked]:
    """Settle messages; one result per ack, in the order given."""
    rows = await database.fetch(
        "SELECT * FROM ack_v1($1, $2, $3, $4, $5, $6, $7)",
        [a.partition_id for a in acks],
        [a.group_id for a in acks],
        [a.lease_id for a in acks],
        [a.transaction_id for a in acks],
        [a.status for a in acks],
        [a.error for a in acks],
        now,
    )
    results: dict[int, Acked] = {
        row["item"]: Acked(
            row["outcome"],
            row["queue_id"],
            row["queue"],
            row["partition"],
            row["group_name"],
            row["lease_released"],
            row["run_ms"],
        )
        for row in rows
    }
    return [results[item] for item in range(1, len(acks) + 1)]


async def gauges(database: Database, queue_ids: Sequence[int]) -> list[Any]:
    """Depth, running and oldest waiting message per queue and group; rows as `gauges_v1` describes them."""
    return await database.fetch("SELECT * FROM gauges_v1($1)", list(queue_ids))
