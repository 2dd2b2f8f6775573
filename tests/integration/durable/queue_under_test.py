"""One queue with a clock that the test controls."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.durable import log
from penstock.durable.log import Ack, AckReceipt, PartitionName, PopRequest, PushReceipt, Segment
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope

START = datetime(2030, 1, 1, tzinfo=UTC)


async def create_group(
    database: Database,
    queue: str,
    group: str = "g",
    subscription: str = "all",
    scope: Scope = DEFAULT_SCOPE,
) -> log.GroupId:
    """Return the ids of a group; create its queue, without partitions, and the group if they are missing."""
    await database.fetch("SELECT ensure_queues_v1($1, $2, $3, $4)", *scope, [queue])
    ids = await log.ensure_group(database, scope, queue, group, subscription)
    assert ids is not None
    return ids


@dataclass
class Delivery:
    """The messages of one pop: (partition id, offset, transaction id, payload, attempts), in order."""

    lease_id: uuid.UUID
    messages: list[tuple[int, int, str, bytes, int]]
    expired: int = 0

    @property
    def payloads(self) -> list[str]:
        return [payload.decode() for _, _, _, payload, _ in self.messages]


class QueueUnderTest:
    """Pushes to, pops from and acks one queue at the time `now`."""

    def __init__(self, database: Database, name: str = "orders", scope: Scope = DEFAULT_SCOPE) -> None:
        self.database = database
        self.scope = scope
        self.name = name
        self.now = START
        self.lease_ms = 1_000

    def later(self, ms: int) -> None:
        self.now += timedelta(milliseconds=ms)

    async def partition(self, name: str = "Default") -> log.PartitionId:
        key = PartitionName(self.name, name)
        return (await log.ensure_partitions(self.database, self.scope, [key]))[key]

    async def partitions(self, *names: str) -> list[str]:
        """Create the partitions; return those that exist, without those past the limit."""
        keys = [PartitionName(self.name, name) for name in names]
        return [key.partition for key in await log.ensure_partitions(self.database, self.scope, keys)]

    async def group(self, name: str = "g", subscription: str = "all") -> log.GroupId:
        return await create_group(self.database, self.name, name, subscription, self.scope)

    async def configure(self, **options: object) -> None:
        await self.group()
        for column, value in options.items():
            await self.database.fetch(f"UPDATE queues SET {column} = $1 WHERE name = $2", value, self.name)

    async def push(
        self, *payloads: str, partition: str = "Default", keys: list[str | None] | None = None
    ) -> PushReceipt:
        return await log.push(self.database, [await self.segment(payloads, partition, keys)], self.now)

    async def segment(
        self, payloads: Sequence[str], partition: str, keys: Sequence[str | None] | None
    ) -> Segment:
        ids = await self.partition(partition)
        count = len(payloads)
        return Segment(
            ids.partition_id,
            [str(new_id()) for _ in range(count)],
            list(keys) if keys else [None] * count,
            [None] * count,
            [p.encode() for p in payloads],
        )

    async def pop(
        self,
        batch: int = 1,
        group: str = "g",
        *,
        partition: str | None = None,
        width: int = 1,
        auto_ack: bool = False,
    ) -> Delivery:
        ids = await self.group(group)
        partition_id = (await self.partition(partition)).partition_id if partition else None
        lease_id = new_id()
        rows: list[Any]
        if batch == width == 1 and partition is None and not auto_ack:  # the broker uses pop_single then too
            single_rows = await log.pop_single(
                self.database, ids.group_id, [lease_id], lease_ms=self.lease_ms, now=self.now
            )
            rows = [single_pop_row_as_segment(row) for row in single_rows]
        else:
            rows = await log.pop(
                self.database,
                ids.group_id,
                [PopRequest(lease_id, batch, width)],
                partition_id=partition_id,
                lease_ms=self.lease_ms,
                auto_ack=auto_ack,
                now=self.now,
            )
        expired = sum(row["leased_to"] - row["leased_from"] for row in rows if row["request"] == 0)
        messages = [message for row in rows if row["request"] for message in delivered_messages(row)]
        return Delivery(lease_id, messages, expired)

    async def extend(self, delivery: Delivery, ms: int, group: str = "g") -> datetime | None:
        ids = await self.group(group)
        [end] = await log.extend_leases(self.database, [(ids.group_id, delivery.lease_id, ms)], self.now)
        return end

    async def transaction(
        self, payloads: list[str], delivery: Delivery, *, partition: str, keys: list[str | None] | None = None
    ) -> log.TransactionReceipt:
        """Push to a partition and complete a delivery in one step."""
        ids = await self.group()
        segment = await self.segment(payloads, partition, keys)
        acks = [
            Ack(partition_id, ids.group_id, delivery.lease_id, transaction_id, "completed", None)
            for partition_id, _, transaction_id, _, _ in delivery.messages
        ]
        return await log.transaction(self.database, [segment], acks, self.now)

    async def ack(
        self,
        delivery: Delivery,
        status: str = "completed",
        *indexes: int,
        group: str = "g",
        error: str | None = None,
    ) -> list[AckReceipt]:
        """Ack all messages of a delivery, or those at `indexes`."""
        ids = await self.group(group)
        messages = [delivery.messages[i] for i in indexes] if indexes else delivery.messages
        acks = [
            Ack(partition_id, ids.group_id, delivery.lease_id, transaction_id, status, error)
            for partition_id, _, transaction_id, _, _ in messages
        ]
        return await log.ack(self.database, acks, self.now)

    async def depth(self, group: str = "g") -> tuple[int, int]:
        """Return the waiting and running messages of a group."""
        ids = await self.group(group)
        rows = await self.database.fetch("SELECT * FROM queue_gauges_v1($1, $2)", [ids.queue_id], self.now)
        row = next(row for row in rows if row["group_name"] == group)
        return row["depth"], row["running"]

    async def dead(self) -> list[tuple[str, str | None, int]]:
        """Return payload, error and attempts of the dead letters."""
        rows = await self.database.fetch("SELECT payload, error, attempts FROM dead_letters ORDER BY id")
        return [(row["payload"].decode(), row["error"], row["attempts"]) for row in rows]


def single_pop_row_as_segment(row: Any) -> dict[str, Any]:
    """Convert a row of pop_single_v1 to the shape of a row of pop_v1."""
    offset = row["leased_from"]
    return {
        **{name: row[name] for name in ("request", "partition_id", "leased_from", "leased_to")},
        "first_offset": offset,
        "message_ids": [row["message_id"]] if row["message_id"] else [],
        "transaction_ids": [row["transaction_id"]],
        "payloads": [row["payload"]],
        "finished": [],
        "attempts": json.dumps({offset: row["attempts"]}),
    }


def delivered_messages(row: Any) -> list[tuple[int, int, str, bytes, int]]:
    """Return the messages of a row of pop_v1 without those finished earlier."""
    attempts = json.loads(row["attempts"])
    messages = []
    for index, message_id in enumerate(row["message_ids"]):
        offset = row["first_offset"] + index
        if any(r.lower <= offset < r.upper for r in row["finished"]):
            continue
        keys = row["transaction_ids"]
        key = (keys[index] if keys else None) or str(message_id)
        payload = row["payloads"][index]
        messages.append((row["partition_id"], offset, key, payload, attempts.get(str(offset), 0)))
    return messages
