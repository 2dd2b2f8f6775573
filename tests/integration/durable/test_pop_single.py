"""Pops of one message each: the fast path, and the cases that the general path handles."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import asyncpg
import pytest

from penstock.durable import log
from penstock.durable.log import Ack, Segment
from penstock.durable.pool import SESSION, Database
from penstock.errors import GroupDeleted
from penstock.ids import new_id
from tests.deadlines import deadline_s
from tests.integration.durable.queue_under_test import START, QueueUnderTest


async def pop_single(queue: QueueUnderTest, requests: int) -> tuple[list[uuid.UUID], list[Any]]:
    ids = await queue.group()
    leases = [new_id() for _ in range(requests)]
    rows = await log.pop_single(queue.database, ids.group_id, leases, lease_ms=1_000, now=queue.now)
    return leases, rows


async def test_each_request_gets_its_own_partition_oldest_first(queue: QueueUnderTest) -> None:
    for name in "cab":
        await queue.push(f"{name}0", f"{name}1", partition=name)
        queue.later(1)
    leases, rows = await pop_single(queue, 4)
    assert [(row["request"], row["partition"], row["payload"]) for row in rows] == [
        (1, "c", b"c0"),
        (2, "a", b"a0"),
        (3, "b", b"b0"),
    ]
    held = await log.find_live_leases(queue.database, [row["partition_id"] for row in rows], leases)
    assert {(h.partition_id, h.lease_id) for h in held} == {
        (row["partition_id"], leases[row["request"] - 1]) for row in rows
    }
    assert (await pop_single(queue, 1))[1] == [], "all are leased"


async def test_a_message_is_complete_at_any_index_of_its_segment(queue: QueueUnderTest) -> None:
    ids = await queue.group()
    partition_id = (await queue.partition()).partition_id
    message_ids = [str(new_id()) for _ in range(3)]
    traces = [None, new_id(), None]
    segment = Segment(partition_id, message_ids, ["k0", None, "k2"], traces, [b"0", b"1", b"2"])
    await log.push(queue.database, [segment], queue.now)
    for index, key in enumerate(["k0", None, "k2"]):
        [lease], [row] = await pop_single(queue, 1)
        assert (row["leased_from"], row["leased_to"], row["attempts"]) == (index, index + 1, 0)
        assert (row["message_id"], row["transaction_id"], row["trace_id"], row["payload"]) == (
            message_ids[index],
            key,
            traces[index],
            str(index).encode(),
        )
        assert row["created_at"] == START.timestamp()
        ack = Ack(partition_id, ids.group_id, lease, key or message_ids[index], "completed", None)
        assert [a.outcome for a in await log.ack(queue.database, [ack], queue.now)] == ["completed"]


async def test_a_position_off_the_fast_path_does_not_block_the_others(queue: QueueUnderTest) -> None:
    await queue.push("a", partition="a")
    await queue.ack(await queue.pop(), "failed")
    await queue.push("b", partition="b")
    _, rows = await pop_single(queue, 3)
    assert sorted((row["payload"], row["attempts"]) for row in rows) == [(b"a", 1), (b"b", 0)]


async def test_a_position_that_ran_empty_is_cleared_beside_a_ready_one(queue: QueueUnderTest) -> None:
    await queue.push("a", partition="a")
    await queue.ack(await queue.pop())
    queue.later(1)
    await queue.push("b", partition="b")
    _, rows = await pop_single(queue, 1)
    assert [row["payload"] for row in rows] == [b"b"]
    assert await ready_partitions(queue) == ["b"]
    await queue.push("c", partition="a")
    _, rows = await pop_single(queue, 1)
    assert [row["payload"] for row in rows] == [b"c"]


async def test_an_empty_position_stays_ready_while_a_push_runs(queue: QueueUnderTest) -> None:
    await queue.push("a", partition="a")
    await queue.ack(await queue.pop())
    queue.later(1)
    pushing = await asyncpg.connect(queue.database.url, server_settings=SESSION)
    try:
        await pushing.execute("BEGIN; UPDATE partitions SET next_offset = next_offset")
        assert (await pop_single(queue, 2))[1] == []
        await pushing.execute("ROLLBACK")
    finally:
        await pushing.close()
    assert await ready_partitions(queue) == ["a"]
    assert (await pop_single(queue, 2))[1] == []
    assert await ready_partitions(queue) == []


async def ready_partitions(queue: QueueUnderTest) -> list[str]:
    rows = await queue.database.fetch(
        """SELECT t.name FROM positions p JOIN partitions t ON t.id = p.partition_id
           WHERE p.ready_at IS NOT NULL ORDER BY t.name"""
    )
    return [row["name"] for row in rows]


async def test_expired_messages_are_reported(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=1_000)
    await queue.push("a", "b", "c")
    queue.later(1_001)
    await queue.push("d")
    _, rows = await pop_single(queue, 2)
    assert [(row["request"], row["leased_from"], row["leased_to"], row["payload"]) for row in rows] == [
        (0, 0, 3, None),
        (1, 3, 4, b"d"),
    ]


async def test_a_deleted_group_is_reported(queue: QueueUnderTest) -> None:
    with pytest.raises(GroupDeleted):
        await log.pop_single(queue.database, 10**12, [new_id()], lease_ms=1_000)


async def test_a_position_that_another_pop_locks_is_skipped(
    queue: QueueUnderTest, database: Database
) -> None:
    for name in "ab":
        await queue.push(name, partition=name)
        queue.later(1)
    await queue.group()
    locked_id = (await queue.partition("a")).partition_id
    async with database.connection() as connection, connection.transaction():
        await connection.fetch("SELECT 1 FROM positions WHERE partition_id = $1 FOR UPDATE", locked_id)
        _, rows = await pop_single(queue, 2)
    assert [row["payload"] for row in rows] == [b"b"]


async def test_concurrent_consumers_get_each_message_once_and_in_order(queue: QueueUnderTest) -> None:
    """The consumers compete for three positions, so a pop often locks one that changed since its snapshot."""
    ids = await queue.group()
    for name in "abc":
        await queue.push(*map(str, range(60)), partition=name)
    received: dict[str, list[bytes]] = {name: [] for name in "abc"}

    async def consume() -> None:
        while sum(map(len, received.values())) < 180:
            leases = [new_id(), new_id()]
            rows = await log.pop_single(queue.database, ids.group_id, leases, lease_ms=60_000, now=queue.now)
            acks = []
            for row in rows:
                received[row["partition"]].append(row["payload"])
                lease = leases[row["request"] - 1]
                acks.append(
                    Ack(row["partition_id"], ids.group_id, lease, row["message_id"], "completed", None)
                )
            outcomes = [ack.outcome for ack in await log.ack(queue.database, acks, queue.now)]
            assert outcomes == ["completed"] * len(rows)

    async with asyncio.timeout(deadline_s(60)):
        await asyncio.gather(*(consume() for _ in range(6)))
    assert received == {name: [str(n).encode() for n in range(60)] for name in "abc"}
