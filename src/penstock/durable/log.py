"""Push, pop and ack as calls of the SQL functions: arrays in, rows out, one round trip each."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.durable.faults import unless_deleted
from penstock.durable.pool import Database
from penstock.model import Scope


class PartitionName(NamedTuple):
    queue: str
    partition: str


class PartitionId(NamedTuple):
    queue_id: int
    partition_id: int
    encrypted: bool


class GroupId(NamedTuple):
    queue_id: int
    group_id: int
    lease_ms: int | None
    encrypted: bool


@dataclass(slots=True)
class Segment:
    """Messages for one partition, in push order; the lists have equal length."""

    partition_id: int
    message_ids: list[str]
    transaction_ids: list[str | None]
    trace_ids: list[uuid.UUID | None]
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push: first offset per segment (BEHIND where it must join a lane, None where its
    partition is gone), original ids by duplicate item (0-based), and the items refused because their queue is
    full."""

    first_offsets: list[int | None]
    duplicates: dict[int, uuid.UUID]
    refused: frozenset[int]


@dataclass(frozen=True, slots=True)
class Transacted:
    """What became of a transaction: duplicates as in Pushed, and a result per ack."""

    duplicates: dict[int, uuid.UUID]
    acked: list[Acked]

    @property
    def outcomes(self) -> list[str]:
        return [ack.outcome for ack in self.acked]


BEHIND = -1
"""In place of an offset: operations of the partition's lane come first."""

LeaseId = uuid.UUID | str
"""As text it must be one, in its usual form: it is not looked at before it is sent."""


class PopRequest(NamedTuple):
    lease_id: LeaseId
    batch: int
    width: int = 1


class Ack(NamedTuple):
    partition_id: int
    group_id: int
    lease_id: LeaseId
    transaction_id: str
    status: str
    error: str | None


class Acked(NamedTuple):
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
    """Ids for the names, made where missing; without those past their queue's number of partitions."""
    rows = await unless_deleted(
        lambda: database.fetch(
            "SELECT * FROM ensure_partitions_v1($1, $2, $3, $4, $5)",
            scope.organization,
            scope.project,
            scope.environment,
            [name.queue for name in names],
            [name.partition for name in names],
        )
    )
    return {
        PartitionName(row["queue"], row["partition"]): PartitionId(
            row["queue_id"], row["partition_id"], row["encrypted"]
        )
        for row in rows
    }


async def add_partition(database: Database, scope: Scope, name: PartitionName) -> PartitionId:
    """The ids of a partition, made where missing even past its queue's number of partitions."""
    row = await unless_deleted(
        lambda: database.fetchrow(
            "SELECT * FROM add_partition_v1($1, $2, $3, $4, $5)",
            scope.organization,
            scope.project,
            scope.environment,
            name.queue,
            name.partition,
        )
    )
    assert row is not None
    return PartitionId(row["queue_id"], row["partition_id"], row["encrypted"])


async def ensure_group(
    database: Database, scope: Scope, queue: str, group: str, subscription: str = "all"
) -> GroupId:
    """The group's id; the group, and its queue, are made where missing.

    A new group starts at `subscription`: `all`, `new`, or a moment in ISO 8601.
    """
    row = await unless_deleted(
        lambda: database.fetchrow(
            "SELECT * FROM ensure_group_v1($1, $2, $3, $4, $5, $6)",
            scope.organization,
            scope.project,
            scope.environment,
            queue,
            group,
            subscription,
        )
    )
    assert row is not None
    return GroupId(row["queue_id"], row["group_id"], row["lease_ms"], row["encrypted"])


def _push_arguments(segments: Sequence[Segment]) -> list[Any]:
    keyed = any(t is not None for s in segments for t in s.transaction_ids)
    traced = any(t is not None for s in segments for t in s.trace_ids)
    return [
        [s.partition_id for s in segments],
        [len(s.message_ids) for s in segments],
        [m for s in segments for m in s.message_ids],
        [t for s in segments for t in s.transaction_ids] if keyed else None,
        [t for s in segments for t in s.trace_ids] if traced else None,
        [p for s in segments for p in s.payloads],
    ]


def _ack_arguments(acks: Sequence[Ack]) -> list[Any]:
    return [
        [a.partition_id for a in acks],
        [a.group_id for a in acks],
        [a.lease_id for a in acks],
        [a.transaction_id for a in acks],
        [a.status for a in acks],
        [a.error for a in acks],
    ]


def _duplicates(row: Any) -> dict[int, uuid.UUID]:
    items, originals = row["duplicate_items"] or (), row["duplicate_ids"] or ()
    return {item - 1: original for item, original in zip(items, originals, strict=True)}


async def push(database: Database, segments: Sequence[Segment], now: datetime | None = None) -> Pushed:
    """Append the segments, all or none. A partition may appear once."""
    row = await database.fetchrow(
        "SELECT * FROM push_v1($1, $2, $3, $4, $5, $6, $7)", *_push_arguments(segments), now
    )
    assert row is not None
    refused = frozenset(item - 1 for item in row["refused_items"] or ())
    return Pushed(row["first_offsets"], _duplicates(row), refused)


async def transaction(
    database: Database, segments: Sequence[Segment], acks: Sequence[Ack], now: datetime | None = None
) -> Transacted:
    """Push and settle, all or nothing. Raises TransactionFailed naming what could not be done."""
    row = await database.fetchrow(
        "SELECT * FROM transaction_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        *_push_arguments(segments),
        *_ack_arguments(acks),
        now,
    )
    assert row is not None
    columns = ("outcomes", "queue_ids", "queues", "partitions", "groups", "run_ms")
    acked = [
        Acked(outcome, queue_id, queue, partition, group, False, run_ms)
        for outcome, queue_id, queue, partition, group, run_ms in zip(
            *(row[column] or () for column in columns), strict=True
        )
    ]
    return Transacted(_duplicates(row), acked)


async def extend(
    database: Database, leases: Sequence[tuple[int, LeaseId, int]], now: datetime | None = None
) -> list[datetime | None]:
    """Let leases (group id, lease id, ms) run longer; the new end of each, or None where it is lost."""
    row = await database.fetchrow(
        "SELECT extend_leases_v1($1, $2, $3, $4) AS ends",
        [group_id for group_id, _, _ in leases],
        [lease_id for _, lease_id, _ in leases],
        [ms for _, _, ms in leases],
        now,
    )
    assert row is not None
    ends: list[datetime | None] = row["ends"]
    return ends


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


async def pop_single(
    database: Database,
    group_id: int,
    lease_ids: Sequence[LeaseId],
    *,
    lease_ms: int,
    now: datetime | None = None,
) -> list[Any]:
    """Lease one message for each of several requests of a group; rows as `pop_single_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM pop_single_v1($1, $2, $3, $4)", group_id, list(lease_ids), lease_ms, now
    )


async def ack(database: Database, acks: Sequence[Ack], now: datetime | None = None) -> list[Acked]:
    """Settle messages; one result per ack, in the order given."""
    rows = await database.fetch(
        "SELECT * FROM ack_v1($1, $2, $3, $4, $5, $6, $7)", *_ack_arguments(acks), now
    )
    results: dict[int, Acked] = {}
    for items, *outcome in rows:
        acked = Acked(*outcome)
        for item in items:
            results[item] = acked
    return [results[item] for item in range(1, len(acks) + 1)]


async def ack_completed(
    database: Database, acks: Sequence[Ack], now: datetime | None = None
) -> list[int | Acked]:
    """Settle messages that are all completed. For each, in the order given: for how many milliseconds it was
    held, if all there is to tell beside that are names, or else what became of it."""
    rows = await database.fetch(
        "SELECT * FROM ack_completed_v1($1, $2, $3, $4, $5)",
        [a.partition_id for a in acks],
        [a.group_id for a in acks],
        [a.lease_id for a in acks],
        [a.transaction_id for a in acks],
        now,
    )
    results: dict[int, int | Acked] = {}
    for items, run_ms, *told in rows:
        outcome, queue_id, queue, partition, group, released = told
        if outcome is None:
            results.update(zip(items or (), run_ms or (), strict=True))
        else:
            acked = Acked(outcome, queue_id, queue, partition, group, released, run_ms[0])
            results.update(dict.fromkeys(items, acked))
    return [results[item] for item in range(1, len(acks) + 1)]


async def gauges(database: Database, queue_ids: Sequence[int]) -> list[Any]:
    """Depth, running and oldest waiting message per queue and group; rows as `queue_gauges_v1` describes them."""
    return await database.fetch("SELECT * FROM queue_gauges_v1($1)", list(queue_ids))


async def named_gauges(database: Database, scope: Scope, limit: int) -> list[Any]:
    """The same for the queues of an environment, the oldest ones first, with their names."""
    return await database.fetch(
        """WITH chosen AS (SELECT q.id, q.name FROM queues q
                           WHERE q.environment_id = environment_id_v1($1, $2, $3) ORDER BY q.id LIMIT $4)
           SELECT c.name AS queue, m.group_name, m.depth, m.running, m.oldest_at
           FROM queue_gauges_v1(array(SELECT id FROM chosen)) m JOIN chosen c ON c.id = m.queue_id
           ORDER BY m.queue_id, m.group_name""",
        scope.organization,
        scope.project,
        scope.environment,
        limit,
    )


async def environment_gauges(database: Database, scopes: Sequence[Scope]) -> list[Any]:
    """The same for environments as a whole; rows as `environment_gauges_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM environment_gauges_v1($1, $2, $3)",
        [scope.organization for scope in scopes],
        [scope.project for scope in scopes],
        [scope.environment for scope in scopes],
    )


async def next_ready(database: Database, group_id: int, partition_id: int | None = None) -> float | None:
    """Seconds until the next lease or delay of a group ends, in one partition or any; None if none does."""
    positions = "group_id = $1 AND ready_at IS NOT NULL"
    arguments = [group_id]
    if partition_id is not None:
        positions += " AND partition_id = $2"
        arguments.append(partition_id)
    # What is ready already may be so since ever, from which older servers cannot subtract.
    row = await database.fetchrow(
        f"""SELECT extract(epoch FROM greatest(first.ready_at, now()) - now())::float8 AS delay_s
            FROM (SELECT min(ready_at) AS ready_at FROM positions WHERE {positions}) first
            WHERE first.ready_at IS NOT NULL""",
        *arguments,
    )
    return row["delay_s"] if row else None


async def release(
    database: Database, group_id: int, lease_id: LeaseId, partition_ids: Collection[int]
) -> int:
    """Give back a lease that nobody received; the number of partitions that were still held."""
    row = await database.fetchrow(
        "SELECT release_lease_v1($1, $2, $3) AS released", group_id, lease_id, sorted(partition_ids)
    )
    assert row is not None
    released: int = row["released"]
    return released


async def leases_in_force(
    database: Database, partition_ids: Sequence[int], lease_ids: Sequence[LeaseId]
) -> list[Any]:
    """Which of the leases hold which of the partitions: rows of partition_id, group_id, lease_id."""
    return await database.fetch(
        "SELECT partition_id, group_id, lease_id FROM positions "
        "WHERE partition_id = ANY ($1) AND lease_id = ANY ($2)",
        list(partition_ids),
        list(lease_ids),
    )
