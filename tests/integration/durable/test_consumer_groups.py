"""Consumer groups: lag, seek, positions and deletion."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock.durable import log
from penstock.durable.consumer_groups import ConsumerGroups, SeekResult
from penstock.durable.pool import Database
from penstock.errors import GroupDeleted
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import QueueUnderTest


async def seek(
    queue: QueueUnderTest, target: str, partition: str | None = None, group: str = "g"
) -> SeekResult:
    ids = await queue.group(group)
    partition_id = (await queue.partition(partition)).partition_id if partition else None
    return await ConsumerGroups(queue.database).seek(ids.group_id, target, partition_id)


async def unfinished_messages(queue: QueueUnderTest, group: str = "g") -> int:
    """Sum the unfinished messages over the group's positions; depth must be the same."""
    ids = await queue.group(group)
    row = await queue.database.fetchrow(
        """SELECT sum(t.next_offset - p.cursor)::bigint AS unfinished FROM positions p
           JOIN partitions t ON t.id = p.partition_id WHERE p.group_id = $1""",
        ids.group_id,
    )
    assert row is not None
    unfinished: int = row["unfinished"]
    assert sum(await queue.depth(group)) == unfinished
    return unfinished


async def test_seeking_to_the_end_skips_everything(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", partition="x")
    await queue.push(*"de", partition="y")
    await queue.ack(await queue.pop(1, partition="x"))
    moved = await seek(queue, "new")
    assert (moved.partitions, moved.moved, moved.forward, moved.back) == (2, 2, 4, 0)
    assert await unfinished_messages(queue) == 0
    assert (await queue.pop(5, width=5)).payloads == []
    await queue.push("f", partition="x")
    assert (await queue.pop(5, width=5)).payloads == ["f"]


async def test_seeking_back_delivers_again_and_depth_follows(queue: QueueUnderTest) -> None:
    await queue.push(*"abc")
    await queue.ack(await queue.pop(3))
    assert await unfinished_messages(queue) == 0
    moved = await seek(queue, "all")
    assert (moved.forward, moved.back) == (0, 3)
    assert await unfinished_messages(queue) == 3
    assert (await queue.pop(5)).payloads == ["a", "b", "c"]


async def test_seeking_to_a_timestamp_starts_with_the_first_message_from_then(queue: QueueUnderTest) -> None:
    for name in "abcdef":
        await queue.push(name)
        queue.later(10)
    timestamp = queue.now - timedelta(milliseconds=35)
    await seek(queue, timestamp.isoformat())
    assert (await queue.pop(10)).payloads == ["d", "e", "f"]
    await seek(queue, (queue.now + timedelta(days=1)).isoformat())
    assert await unfinished_messages(queue) == 0


async def test_one_partition_can_be_moved_alone(queue: QueueUnderTest) -> None:
    for name in "xy":
        await queue.push(f"{name}1", partition=name)
    assert (await seek(queue, "new", "x")).partitions == 1
    assert (await queue.pop(5, width=5)).payloads == ["y1"]


async def test_a_seek_ends_leases_and_discards_acks_and_attempts(queue: QueueUnderTest) -> None:
    await queue.push(*"abcd")
    delivery = await queue.pop(4)
    await queue.ack(delivery, "completed", 2)
    await queue.ack(delivery, "failed", 0)
    await seek(queue, "all")
    assert {a.outcome for a in await queue.ack(delivery)} == {"lease_lost"}
    again = await queue.pop(4)
    assert again.payloads == ["a", "b", "c", "d"]
    assert [attempts for *_, attempts in again.messages] == [0, 0, 0, 0]


async def test_a_seek_ends_redelivery_one_by_one(queue: QueueUnderTest) -> None:
    await queue.push(*"abc")
    await queue.pop(3)
    queue.later(1_000)
    await seek(queue, "all")
    assert (await queue.pop(3)).payloads == ["a", "b", "c"]


async def test_a_seek_obeys_the_delay(queue: QueueUnderTest) -> None:
    await queue.configure(delay_ms=1_000)
    await queue.push("a")
    await seek(queue, "all")
    assert (await queue.pop()).payloads == []
    queue.later(1_000)
    assert (await queue.pop()).payloads == ["a"]


async def test_other_groups_stay_where_they_are(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    await queue.ack(await queue.pop(1, "other"), group="other")
    await seek(queue, "new")
    assert (await queue.pop(5, "other")).payloads == ["b"]
    assert await unfinished_messages(queue, "other") == 1


async def test_a_seek_during_pushes_loses_nothing_and_keeps_the_count(queue: QueueUnderTest) -> None:
    names = [str(i) for i in range(5)]
    for name in names:
        await queue.partition(name)
    await queue.group()

    async def push(name: str) -> None:
        for i in range(10):
            await queue.push(f"{name}.{i}", partition=name)

    async def move() -> None:
        for _ in range(10):
            await seek(queue, "new")
            await seek(queue, "all")

    await asyncio.gather(*(push(name) for name in names), move())
    assert await unfinished_messages(queue) == 50
    assert len((await queue.pop(100, width=10)).payloads) == 50


async def test_a_seek_moves_many_partitions_in_steps(queue: QueueUnderTest) -> None:
    for name in "abcde":
        await queue.push(name, partition=name)
    group_id = (await queue.group()).group_id
    groups = ConsumerGroups(queue.database, partitions_per_seek=2)
    assert (await groups.seek(group_id, "new")).moved == 5
    assert await unfinished_messages(queue) == 0


async def test_lag_is_the_age_of_the_oldest_unfinished_message(queue: QueueUnderTest) -> None:
    await queue.group()
    await queue.push("a", partition="x")
    first_at = queue.now
    queue.later(60_000)
    await queue.push("b", partition="x")
    await queue.push("c", partition="y")
    second_at = queue.now
    [row] = await list_groups(queue)
    assert (row["behind"], row["oldest_at"]) == (2, first_at)
    delivery = await queue.pop(partition="x")
    [row] = await list_groups(queue)
    assert row["oldest_at"] == first_at, "a leased message is not finished"
    assert (row["depth"], row["running"], row["leases"]) == (2, 1, 1)
    queue.later(5_000)
    [row] = await list_groups(queue)
    assert row["oldest_at"] == first_at, "nor is one whose lease has expired"
    delivery = await queue.pop(partition="x")
    await queue.ack(delivery)
    [row] = await list_groups(queue)
    assert row["oldest_at"] == second_at


async def test_lag_counts_from_the_push_after_an_idle_time(queue: QueueUnderTest) -> None:
    await queue.push("a")
    await queue.ack(await queue.pop())
    queue.later(3_600_000)
    await queue.push("b")
    [row] = await list_groups(queue)
    assert row["oldest_at"] == queue.now, "not from when the group became idle"


async def list_groups(queue: QueueUnderTest) -> list[Any]:
    return await queue.database.fetch(
        "SELECT * FROM groups_v1($1, $2, $3, NULL, NULL, 10, 0, $4)",
        "default",
        "default",
        "default",
        queue.now,
    )


async def test_lagging_positions_are_found_oldest_first(queue: QueueUnderTest) -> None:
    await queue.group()
    for name in "xyz":
        await queue.push(name, partition=name)
        queue.later(1_000)
    before = queue.now - timedelta(milliseconds=1_500)
    rows = await ConsumerGroups(queue.database).list_lagging(DEFAULT_SCOPE, before, limit=10, offset=0)
    assert [(row.partition, row.unfinished) for row in rows] == [("x", 1), ("y", 1)]
    assert rows[0].total == 2
    assert await ConsumerGroups(queue.database).list_lagging(Scope("other"), before, limit=10, offset=0) == []


async def test_positions_report_cursor_and_unfinished_messages(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", partition="x")
    await queue.partition("y")
    await queue.ack(await queue.pop())
    ids = await queue.group()
    rows = await ConsumerGroups(queue.database).list_positions(ids.group_id, limit=10, offset=0)
    assert [(r.partition, r.cursor, r.next_offset, r.unfinished) for r in rows] == [
        ("x", 1, 2, 1),
        ("y", 0, 0, 0),
    ]


async def test_a_deleted_group_can_be_created_again_at_another_offset(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop()
    ids = await queue.group()
    assert await ConsumerGroups(queue.database).delete(ids.group_id) == 1
    with pytest.raises(GroupDeleted):
        await log.pop(queue.database, ids.group_id, [log.PopRequest(delivery.lease_id, 1)], lease_ms=1000)
    await queue.group("g", "new")
    assert await unfinished_messages(queue) == 0
    assert [a.outcome for a in await queue.ack(delivery)] == ["lease_lost"]


async def test_dead_letters_outlive_their_group(queue: QueueUnderTest) -> None:
    await queue.push("a")
    await queue.ack(await queue.pop(), "dlq")
    await ConsumerGroups(queue.database).delete((await queue.group()).group_id)
    assert len(await queue.dead()) == 1


async def test_groups_are_paged_by_name(database: Database) -> None:
    for name in ("q1", "q2"):
        queue = QueueUnderTest(database, name)
        await queue.push("a")
        for group in ("b", "a"):
            await queue.group(group)
    rows = await ConsumerGroups(database).list_groups(DEFAULT_SCOPE, limit=3)
    assert [(row.name, row.queue) for row in rows] == [("a", "q1"), ("a", "q2"), ("b", "q1")]
    assert rows[0].total == 4
    assert [row.depth for row in rows] == [1, 1, 1]
    found = await ConsumerGroups(database).find_subscriptions(DEFAULT_SCOPE, "b", "q2")
    assert [row.queue for row in found] == ["q2"]
