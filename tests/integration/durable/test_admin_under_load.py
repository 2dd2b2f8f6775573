"""Operator actions under traffic cause no deadlock, and every count is right afterwards."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from penstock.durable import log
from penstock.durable.catalog import QueueCatalog
from penstock.durable.consumer_groups import ConsumerGroups
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.dead_letters.jobs import JobStore
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.durable.stored_messages import StoredMessages
from penstock.errors import GroupDeleted
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE

SECONDS = 4.0
QUEUES = ("a", "b")
GROUPS = ("g", "h")
PARTITIONS = [str(i) for i in range(6)]


class Load:
    """Runs producers, consumers and operators on the same queues for a fixed time."""

    def __init__(self, database: Database, *, deleting: bool, seed: int) -> None:
        self.database = database
        self.deleting = deleting
        self.random = random.Random(seed)
        self.until = time.monotonic() + SECONDS
        self.keys: list[tuple[int, str]] = []
        self.counts = {"pushed": 0, "acked": 0, "operator actions": 0}

    @property
    def running(self) -> bool:
        return time.monotonic() < self.until

    async def run(self) -> None:
        workers = (
            [self.produce() for _ in range(3)]
            + [self.consume() for _ in range(3)]
            + [self.operate(), self.operate(), self.maintain_counts()]
        )
        await asyncio.gather(*workers)

    async def produce(self) -> None:
        while self.running:
            names = [PartitionName(q, p) for q in QUEUES for p in self.random.sample(PARTITIONS, 2)]
            ids = await log.ensure_partitions(self.database, DEFAULT_SCOPE, names)
            segments = []
            for partition in ids.values():
                keys = [str(new_id()) for _ in range(3)]
                self.keys += [(partition.partition_id, key) for key in keys]
                message_ids = [str(new_id()) for _ in keys]
                segments.append(Segment(partition.partition_id, message_ids, [*keys], [None] * 3, [b"1"] * 3))
            pushed = await log.push(self.database, segments)
            self.counts["pushed"] += sum(offset is not None for offset in pushed.first_offsets)

    async def consume(self) -> None:
        while self.running:
            acks: list[Ack] = []
            for queue in self.random.sample(QUEUES, 2):
                ids = await log.ensure_group(self.database, DEFAULT_SCOPE, queue, self.random.choice(GROUPS))
                if ids is None:
                    continue
                lease_id = new_id()
                try:
                    rows = await log.pop(
                        self.database, ids.group_id, [PopRequest(lease_id, 10, 4)], lease_ms=200
                    )
                except GroupDeleted:
                    continue
                for row in rows:
                    for key in row["transaction_ids"] or ():
                        status = self.random.choice(["completed"] * 6 + ["failed", "dlq", "retry"])
                        acks.append(Ack(row["partition_id"], ids.group_id, lease_id, key, status, None))
            self.random.shuffle(acks)
            self.counts["acked"] += sum(
                a.outcome in ("completed", "dead") for a in await log.ack(self.database, acks)
            )

    async def operate(self) -> None:
        while self.running:
            await self.random.choice(
                [
                    *(self.configure, self.seek, self.delete_message, self.declare_dead, self.retry),
                    *(self.requeue, self.purge),
                ]
            )()
            if self.deleting and self.random.random() < 0.2:
                await self.random.choice([self.delete_queue, self.delete_group])()
            self.counts["operator actions"] += 1

    async def configure(self) -> None:
        changes = {"delay_ms": self.random.choice([0, 20]), "max_partitions": self.random.choice([0, 100])}
        await QueueCatalog(self.database).configure(DEFAULT_SCOPE, self.random.choice(QUEUES), changes)

    async def seek(self) -> None:
        for row in await ConsumerGroups(self.database).find_subscriptions(
            DEFAULT_SCOPE, self.random.choice(GROUPS)
        ):
            await ConsumerGroups(self.database).seek(row.group_id, self.random.choice(["all", "new"]))

    async def delete_message(self) -> None:
        if self.keys:
            await StoredMessages(self.database).delete(*self.random.choice(self.keys))

    async def declare_dead(self) -> None:
        if self.keys:
            partition_id, key = self.random.choice(self.keys)
            offset = await StoredMessages(self.database).find_offset(partition_id, key)
            partition = await StoredMessages(self.database).find_partition(DEFAULT_SCOPE, partition_id)
            if offset is not None and partition is not None:
                group_ids = await ConsumerGroups(self.database).ids_by_name(partition.queue_id)
                for group_id in group_ids.values():
                    await StoredMessages(self.database).declare_dead(partition_id, group_id, offset, "enough")

    async def retry(self) -> None:
        if self.keys:
            partition_id, key = self.random.choice(self.keys)
            store = DeadLetterStore(self.database)
            rows = await store.list_of_message(partition_id, key)
            await store.requeue([row.id for row in rows], audience="all")

    async def requeue(self) -> None:
        rows = await self.database.fetch("SELECT id FROM dead_letters ORDER BY id DESC LIMIT 20")
        await DeadLetterStore(self.database).requeue([row["id"] for row in rows])

    async def purge(self) -> None:
        await JobStore(self.database).create(
            DEFAULT_SCOPE, "purge", DeadLetterFilter(group=self.random.choice(GROUPS))
        )
        owner = new_id()
        job = await JobStore(self.database).lease(owner)
        if job is not None:
            for _ in range(3):
                await JobStore(self.database).advance(job.id, owner, 10, 100, False)

    async def maintain_counts(self) -> None:
        while self.running:
            await dead_letter_counts.fold_deltas(self.database)
            assert (await dead_letter_counts.recount(self.database)).drift == 0

    async def delete_queue(self) -> None:
        queue = await QueueCatalog(self.database).find_queue(DEFAULT_SCOPE, self.random.choice(QUEUES))
        if queue is not None:
            await QueueCatalog(self.database).delete_queue(queue.id)

    async def delete_group(self) -> None:
        for row in await ConsumerGroups(self.database).find_subscriptions(
            DEFAULT_SCOPE, self.random.choice(GROUPS)
        ):
            await ConsumerGroups(self.database).delete(row.group_id)


@pytest.mark.parametrize("deleting", [False, True])
async def test_operator_actions_and_traffic_keep_counts_exact(database: Database, deleting: bool) -> None:
    load = Load(database, deleting=deleting, seed=7)
    await load.run()
    assert min(load.counts.values()) > 0, load.counts
    wrong = await database.fetch(
        """SELECT g.id FROM groups g WHERE
             (SELECT sum(p.cursor) FROM positions p WHERE p.group_id = g.id) <>
             (SELECT sum(y.messages) FROM tallies y WHERE y.queue_id = g.queue_id AND y.group_id = g.id)"""
    )
    assert wrong == [], "a group's total is the sum of its cursors"
    wrong = await database.fetch(
        """SELECT q.id FROM queues q WHERE
             (SELECT coalesce(sum(t.next_offset), 0) FROM partitions t WHERE t.queue_id = q.id) <>
             (SELECT coalesce(sum(y.messages), 0) FROM tallies y WHERE (y.queue_id, y.group_id) = (q.id, 0))
             OR (SELECT count(*) FROM dead_letters d WHERE d.queue_id = q.id) <>
             dead_letter_count_v1(q.id)"""
    )
    assert wrong == [], "so are the totals of pushed messages and dead letters"
    stuck = await database.fetch(
        """SELECT p.* FROM positions p JOIN partitions t ON t.id = p.partition_id
           WHERE p.ready_at IS NULL AND p.cursor < t.next_offset OR p.finished @> p.cursor"""
    )
    assert stuck == [], "every unfinished message can be popped, and no cursor is at a finished message"
