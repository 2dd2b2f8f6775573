"""Push, pop and ack as calls of the SQL functions: arrays in, rows out, one round trip each.

These calls are the hot path. Pops return the driver's rows as they are, and acks build one object per row,
not one per message: an object per message would cost more than the rest of the call.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from penstock.durable.faults import retry_if_queue_deleted
from penstock.durable.pool import Database, Row, fetch_all, fetch_value
from penstock.model import MAX_RESPONSE_BYTES, CreationLimits, DeferralReceipt, Scope


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


BLOCKED_BY_LANE = -1
"""Instead of an offset: deferred operations wait in the partition's lane and come first."""


@dataclass(frozen=True, slots=True)
class PushReceipt:
    """The result of a push.

    `first_offsets` has one entry per segment: the first offset of its partition's messages, BLOCKED_BY_LANE
    where the segment must join the lane, or None where the partition was deleted. `duplicates` maps items
    (from 0) to the ids of the originals. `refused` holds the items whose queue is full.
    """

    first_offsets: list[int | None]
    duplicates: dict[int, uuid.UUID]
    refused: frozenset[int]


REJECTED_OUTCOMES = ("lease_lost", "not_leased")


class AckReceipt(NamedTuple):
    """The result of one ack: a row of `ack_v1`, or the receipt of its deferral."""

    outcome: str
    queue_id: int | None = None
    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    lease_released: bool = False
    run_ms: int | None = None
    deferral: DeferralReceipt | None = None

    @property
    def success(self) -> bool:
        return self.outcome not in REJECTED_OUTCOMES


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """The result of a transaction: duplicates as in PushReceipt, and one receipt per ack."""

    duplicates: dict[int, uuid.UUID]
    acks: list[AckReceipt]

    @property
    def outcomes(self) -> list[str]:
        return [ack.outcome for ack in self.acks]


LeaseId = uuid.UUID | str
"""A lease id as text must be a UUID in its usual form: it is sent without a check."""


class PopRequest(NamedTuple):
    lease_id: LeaseId
    batch: int
    width: int = 1


class Ack(NamedTuple):
    """The ack of one message under a lease. `status` is completed, failed, retry or dlq."""

    partition_id: int
    group_id: int
    lease_id: LeaseId
    transaction_id: str
    status: str
    error: str | None = None


class LeaseAcks(NamedTuple):
    """Acks of messages of one lease in one partition, all completed."""

    partition_id: int
    group_id: int
    lease_id: LeaseId
    transaction_ids: list[str]


class LiveLease(NamedTuple):
    """A lease that holds a partition."""

    partition_id: int
    group_id: int
    lease_id: uuid.UUID


async def ensure_partitions(
    database: Database, scope: Scope, names: Sequence[PartitionName], limits: CreationLimits | None = None
) -> dict[PartitionName, PartitionId]:
    """Return ids for the names and create what is missing.

    Partitions past their queue's maxPartitions, and those beyond the limits of the environment, are left out.
    """
    arguments = (*scope, [name.queue for name in names], [name.partition for name in names])
    if limits is None:
        query = "SELECT * FROM ensure_partitions_v1($1, $2, $3, $4, $5)"
    else:
        query = "SELECT * FROM ensure_partitions_within_quotas_v1($1, $2, $3, $4, $5, $6, $7)"
        arguments = (*arguments, *limits)  # type: ignore[assignment]
    rows = await retry_if_queue_deleted(lambda: database.fetch(query, *arguments))
    return {
        PartitionName(row["queue"], row["partition"]): PartitionId(
            row["queue_id"], row["partition_id"], row["encrypted"]
        )
        for row in rows
    }


async def find_exceeded_quota(
    database: Database, scope: Scope, names: Iterable[PartitionName], limits: CreationLimits
) -> str | None:
    """Return the quota that partitions exceed, `queues` or `partitions`; None if all may be created."""
    queues, partitions = zip(*names, strict=True)
    rows = await database.fetch(
        "SELECT * FROM exceeded_quotas_v1($1, $2, $3, $4, $5, $6, $7)", *scope, queues, partitions, *limits
    )
    return next((row["exceeded"] for row in rows if row["exceeded"] is not None), None)


async def add_partition(database: Database, scope: Scope, name: PartitionName) -> PartitionId:
    """Return the ids of a partition and create it if it is missing, even past its queue's maxPartitions."""
    row = await retry_if_queue_deleted(
        lambda: database.fetchrow(
            "SELECT * FROM add_partition_v1($1, $2, $3, $4, $5)", *scope, name.queue, name.partition
        )
    )
    assert row is not None
    return PartitionId(row["queue_id"], row["partition_id"], row["encrypted"])


async def ensure_group(
    database: Database, scope: Scope, queue: str, group: str, subscription: str = "all"
) -> GroupId | None:
    """Return the ids of a group, and create the group if it is missing; None if its queue does not exist.

    A new group starts at `subscription`: `all`, `new`, or a timestamp in ISO 8601.
    """
    row = await database.fetchrow(
        "SELECT * FROM ensure_group_v1($1, $2, $3, $4, $5, $6)", *scope, queue, group, subscription
    )
    return GroupId(row["queue_id"], row["group_id"], row["lease_ms"], row["encrypted"]) if row else None


def _push_arguments(segments: Sequence[Segment]) -> list[object]:
    """The columns of the segments: one length per partition, then one entry per message."""
    lengths: dict[int, int] = {}
    for s in segments:
        lengths[s.partition_id] = lengths.get(s.partition_id, 0) + len(s.message_ids)
    transaction_ids = [t for s in segments for t in s.transaction_ids]
    trace_ids = [t for s in segments for t in s.trace_ids]
    return [
        list(lengths),
        list(lengths.values()),
        [m for s in segments for m in s.message_ids],
        None if transaction_ids.count(None) == len(transaction_ids) else transaction_ids,
        None if trace_ids.count(None) == len(trace_ids) else trace_ids,
        [p for s in segments for p in s.payloads],
    ]


def _ack_arguments(acks: Sequence[Ack]) -> list[object]:
    return [
        [a.partition_id for a in acks],
        [a.group_id for a in acks],
        [a.lease_id for a in acks],
        [a.transaction_id for a in acks],
        [a.status for a in acks],
        [a.error for a in acks],
    ]


def _duplicates(row: Row) -> dict[int, uuid.UUID]:
    items, originals = row["duplicate_items"] or (), row["duplicate_ids"] or ()
    return {item - 1: original for item, original in zip(items, originals, strict=True)}


async def push(database: Database, segments: Sequence[Segment], now: datetime | None = None) -> PushReceipt:
    """Append the segments, all or none. Segments of one partition become one.

    Segments must be in the order of partition ids: pushes and acks lock positions in that order.
    """
    [row] = await database.fetch(
        "SELECT * FROM push_v1($1, $2, $3, $4, $5, $6, $7)", *_push_arguments(segments), now
    )
    first_offsets = row["first_offsets"]
    if len(first_offsets) < len(segments):
        offsets = dict(zip(dict.fromkeys([s.partition_id for s in segments]), first_offsets, strict=True))
        first_offsets = [offsets[s.partition_id] for s in segments]
    refused = frozenset([item - 1 for item in row["refused_items"] or ()])
    duplicates = _duplicates(row) if row["duplicate_items"] else {}
    return PushReceipt(first_offsets, duplicates, refused)


async def transaction(
    database: Database, segments: Sequence[Segment], acks: Sequence[Ack], now: datetime | None = None
) -> TransactionReceipt:
    """Push and ack, all or nothing. Raises TransactionFailed, which names the item that failed."""
    row = await database.fetchrow(
        "SELECT * FROM transaction_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        *_push_arguments(segments),
        *_ack_arguments(acks),
        now,
    )
    assert row is not None
    columns = ("outcomes", "queue_ids", "queues", "partitions", "groups", "run_ms")
    receipts = [
        AckReceipt(outcome, queue_id, queue, partition, group, False, run_ms)
        for outcome, queue_id, queue, partition, group, run_ms in zip(
            *(row[column] or () for column in columns), strict=True
        )
    ]
    return TransactionReceipt(_duplicates(row), receipts)


async def extend_leases(
    database: Database, leases: Sequence[tuple[int, LeaseId, int]], now: datetime | None = None
) -> list[datetime | None]:
    """Extend leases (group id, lease id, ms); the new expiry of each, or None where the lease is lost."""
    row = await database.fetchrow(
        "SELECT extend_leases_v1($1, $2, $3, $4) AS expiries",
        [group_id for group_id, _, _ in leases],
        [lease_id for _, lease_id, _ in leases],
        [ms for _, _, ms in leases],
        now,
    )
    assert row is not None
    expiries: list[datetime | None] = row["expiries"]
    return expiries


async def pop(
    database: Database,
    group_id: int,
    requests: Sequence[PopRequest],
    *,
    partition_id: int | None = None,
    lease_ms: int,
    auto_ack: bool = False,
    now: datetime | None = None,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> list[Row]:
    """Lease messages for requests of one group; rows as `pop_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM pop_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        group_id,
        [r.lease_id for r in requests],
        [r.batch for r in requests],
        [r.width for r in requests],
        partition_id,
        lease_ms,
        auto_ack,
        now,
        max_bytes,
    )


async def pop_single(
    database: Database,
    group_id: int,
    lease_ids: Sequence[LeaseId],
    *,
    lease_ms: int,
    now: datetime | None = None,
) -> list[Row]:
    """Lease one message for each of several requests of a group; rows as `pop_single_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM pop_single_v1($1, $2, $3, $4)", group_id, list(lease_ids), lease_ms, now
    )


async def ack(database: Database, acks: Sequence[Ack], now: datetime | None = None) -> list[AckReceipt]:
    """Ack messages; one receipt per ack, in their order."""
    rows = await database.fetch(
        "SELECT * FROM ack_v1($1, $2, $3, $4, $5, $6, $7)", *_ack_arguments(acks), now
    )
    receipts: dict[int, AckReceipt] = {}
    for items, *columns in rows:
        receipt = AckReceipt(*columns)
        for item in items:
            receipts[item] = receipt
    return [receipts[item] for item in range(1, len(acks) + 1)]


def group_by_lease(acks: Sequence[Ack]) -> list[LeaseAcks] | None:
    """Group neighbouring acks of a lease, for `ack_completed`.

    Returns None unless all are completed and no position occurs in two groups.
    """
    leases: list[LeaseAcks] = []
    last_partition_id, last_group_id, last_lease_id = 0, 0, None
    transaction_ids: list[str] = []
    for partition_id, group_id, lease_id, transaction_id, status, _ in acks:
        if status != "completed":
            return None
        if lease_id != last_lease_id or partition_id != last_partition_id or group_id != last_group_id:
            last_partition_id, last_group_id, last_lease_id = partition_id, group_id, lease_id
            transaction_ids = []
            leases.append(LeaseAcks(partition_id, group_id, lease_id, transaction_ids))
        transaction_ids.append(transaction_id)
    positions = {(lease.partition_id, lease.group_id) for lease in leases}
    return leases if len(positions) == len(leases) else None


async def ack_completed(
    database: Database, leases: Sequence[LeaseAcks], now: datetime | None = None
) -> list[int | list[AckReceipt]]:
    """Ack completed messages, by lease.

    Returns for each lease the milliseconds for which it was held, if all its messages are acked now and only
    names are missing from their receipt; else a receipt per ack.
    """
    transaction_ids = [transaction_id for lease in leases for transaction_id in lease.transaction_ids]
    ends = list(accumulate([len(lease.transaction_ids) for lease in leases]))
    rows = await database.fetch(
        "SELECT * FROM ack_completed_v1($1, $2, $3, $4, $5, $6)",
        [lease.partition_id for lease in leases],
        [lease.group_id for lease in leases],
        [lease.lease_id for lease in leases],
        ends,
        transaction_ids,
        now,
    )
    run_ms_by_lease: dict[int, int] = {}
    receipts: dict[int, AckReceipt] = {}
    for items, run_ms, outcome, queue_id, queue, partition, group, released in rows:
        if outcome is None:
            run_ms_by_lease.update(zip(items or (), run_ms or (), strict=True))
        else:
            receipt = AckReceipt(outcome, queue_id, queue, partition, group, released, run_ms[0])
            receipts.update(dict.fromkeys(items, receipt))
    if len(run_ms_by_lease) == len(leases):
        return [run_ms_by_lease[number] for number in range(1, len(leases) + 1)]
    results: list[int | list[AckReceipt]] = []
    for number, (lease, end) in enumerate(zip(leases, ends, strict=True), 1):
        if number in run_ms_by_lease:
            results.append(run_ms_by_lease[number])
        else:
            first = end - len(lease.transaction_ids) + 1
            results.append([receipts[item] for item in range(first, end + 1)])
    return results


async def seconds_until_ready(
    database: Database, group_id: int, partition_id: int | None = None
) -> float | None:
    """Return the seconds until the next lease or delay of a group ends, in one partition or in any.

    None if nothing waits.
    """
    row = await database.fetchrow("SELECT * FROM seconds_until_ready_v1($1, $2)", group_id, partition_id)
    return row["delay_s"] if row else None


async def release_lease(
    database: Database, group_id: int, lease_id: LeaseId, partition_ids: Collection[int]
) -> int:
    """Release a lease that no client received; the number of partitions that it still held."""
    return await fetch_value(
        database, int, "SELECT release_lease_v1($1, $2, $3)", group_id, lease_id, sorted(partition_ids)
    )


async def release_leases_of_tokens(database: Database, token_numbers: Collection[int]) -> dict[int, set[int]]:
    """Release the leases taken with access tokens that have ended; the partition ids by queue id."""
    rows = await database.fetch("SELECT * FROM release_leases_of_tokens_v1($1)", sorted(token_numbers))
    partition_ids: dict[int, set[int]] = {}
    for queue_id, partition_id in rows:
        partition_ids.setdefault(queue_id, set()).add(partition_id)
    return partition_ids


async def find_live_leases(
    database: Database, partition_ids: Sequence[int], lease_ids: Sequence[LeaseId]
) -> list[LiveLease]:
    """Return which of the leases hold which of the partitions."""
    return await fetch_all(
        database, LiveLease, "SELECT * FROM live_leases_v1($1, $2)", list(partition_ids), list(lease_ids)
    )
