"""Operators at work while messages flow: nobody deadlocks, and every count is right afterwards."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from penstock.durable import catalog, consumer_groups, log, options, stored_messages
from penstock.durable.dead_letters import dead_letter_changes, dead_letter_counts, jobs
from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.errors import GroupDeleted
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE

SECONDS = 4.0
QUEUES = ("a", "b")
GROUPS = ("g", "h")
PARTITIONS = [str(i) for i in range(6)]


class Load:
    """Producers, consumers and an operator on the same queues, each in any order, until the time is over."""

    def __init__(self, database: Database, *, deleting: bool, seed: int) -> None:
        self.database = database
        self.deleting = deleting
        self.random = random.Random(seed)
        self.until = time.monotonic() + SECONDS
        self.keys: list[tuple[int, str]] = []
        self.done = {"pushed": 0, "settled": 0, "cared": 0}

    @property
    def running(self) -> bool:
        return time.monotonic() < self.until

    async def run(self) -> None:
        workers = (
            [self.produce() for _ in range(3)]
            + [self.consume() for _ in range(3)]
            + [self.care(), self.care(), self.keep_counts()]
        )
        await asyncio.gather(*workers)

    async def produce(self) -> None:
        while self.running:
            names = [PartitionName(q, p) for q in QUEUES for p in self.random.sample(PARTITIONS, 2)]
            ids = await log.ensure_partitions(self.database, DEFAULT_SCOPE, names)
            segments = []
            for found in ids.values():
                keys = [str(new_id()) for _ in range(3)]
                self.keys += [(found.partition_id, key) for key in keys]
                payloads = [b"1"] * 3
                segments.append(
                    Segment(found.partition_id, [new_id() for _ in keys], [*keys], [None] * 3, payloads)
                )
            pushed = await log.push(self.database, segments)
            self.done["pushed"] += sum(offset is not None for offset in pushed.first_offsets)

    async def consume(self) -> None:
        while self.running:
            acks: list[Ack] = []
            for queue in self.random.sample(QUEUES, 2):
                ids = await log.ensure_group(self.database, DEFAULT_SCOPE, queue, self.random.choice(GROUPS))
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
            self.done["settled"] += sum(
                a.outcome in ("completed", "dead") for a in await log.ack(self.database, acks)
            )

    async def care(self) -> None:
        while self.running:
            await self.random.choice(
                [
                    *(self.configure, self.seek, self.delete_message, self.bury, self.retry),
                    *(self.requeue, self.purge),
                ]
            )()
            if self.deleting and self.random.random() < 0.2:
                await self.random.choice([self.delete_queue, self.delete_group])()
            self.done["cared"] += 1

    async def configure(self) -> None:
        changes = {"delay_ms": self.random.choice([0, 20]), "max_partitions": self.random.choice([0, 100])}
        await options.configure(self.database, DEFAULT_SCOPE, self.random.choice(QUEUES), changes)

    async def seek(self) -> None:
        for row in await consumer_groups.find_groups(
            self.database, DEFAULT_SCOPE, self.random.choice(GROUPS)
        ):
            await consumer_groups.seek(self.database, row["id"], self.random.choice(["all", "new"]))

    async def delete_message(self) -> None:
        if self.keys:
            await stored_messages.delete(self.database, *self.random.choice(self.keys))

    async def bury(self) -> None:
        if self.keys:
            partition_id, key = self.random.choice(self.keys)
            offset = await stored_messages.find(self.database, partition_id, key)
            place = await stored_messages.place(self.database, DEFAULT_SCOPE, partition_id)
            if offset is not None and place is not None:
                for row in await consumer_groups.groups_of(self.database, place.queue_id):
                    await stored_messages.bury(self.database, partition_id, row["id"], offset, "enough")

    async def retry(self) -> None:
        if self.keys:
            partition_id, key = self.random.choice(self.keys)
            await stored_messages.retry(self.database, partition_id, key, None, new_id(), b"2")

    async def requeue(self) -> None:
        rows = await self.database.fetch("SELECT id FROM dead_letters ORDER BY id DESC LIMIT 20")
        await dead_letter_changes.requeue(self.database, [row["id"] for row in rows])

    async def purge(self) -> None:
        await jobs.make(self.database, DEFAULT_SCOPE, "purge", Filter(group=self.random.choice(GROUPS)))
        owner = new_id()
        job = await jobs.take(self.database, owner)
        if job is not None:
            for _ in range(3):
                await jobs.advance(self.database, job["id"], owner, 10, 100, False)

    async def keep_counts(self) -> None:
        while self.running:
            await dead_letter_counts.fold(self.database)
            assert (await dead_letter_counts.recount(self.database)).drift == 0

    async def delete_queue(self) -> None:
        found = await catalog.find_queue(self.database, DEFAULT_SCOPE, self.random.choice(QUEUES))
        if found is not None:
            await catalog.delete_queue(self.database, found.id)

    async def delete_group(self) -> None:
        for row in await consumer_groups.find_groups(
            self.database, DEFAULT_SCOPE, self.random.choice(GROUPS)
        ):
            await consumer_groups.delete_group(self.database, row["id"])


@pytest.mark.parametrize("deleting", [False, True])
async def test_operators_and_traffic_get_along(database: Database, deleting: bool) -> None:
    load = Load(database, deleting=deleting, seed=7)
    await load.run()
    assert min(load.done.values()) > 0, load.done
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
    assert wrong == [], "so are what was pushed, and the dead letters"
    stuck = await database.fetch(
        """SELECT p.* FROM positions p JOIN partitions t ON t.id = p.partition_id
           WHERE p.ready_at IS NULL AND p.cursor < t.next_offset OR p.finished @> p.cursor"""
    )
    assert stuck == [], "whatever is left can be popped, and no cursor stands on something finished"
