"""Retention: which messages a queue keeps, and for how long."""

from __future__ import annotations

import asyncio

from penstock.durable.storage import retention
from penstock.durable.storage.retention import DroppedMessages
from tests.integration.durable.queue_under_test import QueueUnderTest


async def retain(queue: QueueUnderTest) -> list[DroppedMessages]:
    """Apply retention to every partition once, as maintenance does."""
    dropped: list[DroppedMessages] = []
    after: int | None = 0
    while after is not None:
        after, step = await retention.apply_retention(queue.database, after, queue.now, limit=2)
        dropped += step
    return dropped


async def low_offset(queue: QueueUnderTest, partition: str = "Default") -> int:
    row = await queue.database.fetchrow(
        "SELECT low_offset FROM partitions WHERE id = $1", (await queue.partition(partition)).partition_id
    )
    assert row is not None
    offset: int = row["low_offset"]
    return offset


async def dropped_messages(queue: QueueUnderTest) -> int:
    row = await queue.database.fetchrow("SELECT sum(messages)::bigint AS n FROM tallies WHERE group_id = -1")
    assert row is not None
    return row["n"] or 0


async def assert_totals_are_exact(queue: QueueUnderTest) -> None:
    """Compare the running totals with positions and partitions."""
    rows = await queue.database.fetch(
        """SELECT t.group_id, sum(t.messages)::bigint AS recorded, CASE t.group_id
                  WHEN 0 THEN (SELECT sum(next_offset) FROM partitions p WHERE p.queue_id = t.queue_id)
                  WHEN -1 THEN (SELECT sum(low_offset) FROM partitions p WHERE p.queue_id = t.queue_id)
                  ELSE (SELECT sum(cursor) FROM positions p WHERE p.group_id = t.group_id)
                  END::bigint AS actual
           FROM tallies t GROUP BY t.queue_id, t.group_id"""
    )
    assert [(row["group_id"], row["recorded"]) for row in rows] == [
        (row["group_id"], row["actual"]) for row in rows
    ]


async def test_a_queue_without_retention_keeps_everything(queue: QueueUnderTest) -> None:
    await queue.configure(retention_ms=1_000, completed_retention_ms=1_000)
    await queue.push("a")
    await queue.ack(await queue.pop())
    queue.later(10**9)
    assert await retain(queue) == []
    assert await low_offset(queue) == 0


async def test_messages_past_their_retention_are_dropped_finished_or_not(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=60_000)
    await queue.push("a", "b", "c")
    await queue.ack(await queue.pop())
    queue.later(40_000)
    await queue.push("d")
    queue.later(21_199)
    assert await retain(queue) == [], "retention waits for another fiftieth of the time"
    queue.later(1)
    [dropped] = await retain(queue)
    assert (dropped.queue, dropped.group, dropped.messages) == ("orders", "g", 2), "a was finished"
    assert await low_offset(queue) == 3
    assert await queue.depth() == (1, 0)
    assert await dropped_messages(queue) == 3
    assert (await queue.pop(5)).payloads == ["d"]
    await assert_totals_are_exact(queue)


async def test_finished_messages_are_kept_as_long_as_others_by_default(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    await queue.push("a")
    queue.later(900)
    await queue.push("b", "c")
    await queue.ack(await queue.pop(5))
    queue.later(200)
    assert await retain(queue) == []
    assert await low_offset(queue) == 1, "b and c are finished, but not old"


async def test_both_limits_hold_together(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=10_000, completed_retention_ms=1_000)
    await queue.push("a")
    queue.later(5_000)
    await queue.push("b", "c")
    await queue.ack(await queue.pop(2))
    queue.later(1_100)
    await retain(queue)
    assert await low_offset(queue) == 2, "a and b are finished and old enough for that"
    queue.later(9_000)
    [dropped] = await retain(queue)
    assert (dropped.messages, await low_offset(queue)) == (1, 3)


async def test_messages_finished_by_every_group_are_dropped_after_the_completed_retention(
    queue: QueueUnderTest,
) -> None:
    await queue.configure(retention_enabled=True, completed_retention_ms=1_000)
    await queue.group("slow")
    await queue.push(*"abcd")
    await queue.ack(await queue.pop(4))
    await queue.ack(await queue.pop(2, "slow"), group="slow")
    queue.later(1_020)
    assert await retain(queue) == []
    assert await low_offset(queue) == 2, "slow has finished two"
    assert await queue.depth("slow") == (2, 0)
    await queue.ack(await queue.pop(4, "slow"), group="slow")
    await retain(queue)
    assert await low_offset(queue) == 4
    assert await queue.depth("slow") == (0, 0)
    await assert_totals_are_exact(queue)


async def test_finished_messages_younger_than_their_time_are_kept(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, completed_retention_ms=1_000)
    await queue.push("a")
    queue.later(500)
    await queue.push("b")
    await queue.ack(await queue.pop(5))
    queue.later(600)
    await retain(queue)
    assert await low_offset(queue) == 1


async def test_without_a_group_nothing_counts_as_finished(queue: QueueUnderTest) -> None:
    await queue.push("a")
    await queue.database.fetch("UPDATE queues SET retention_enabled = true, completed_retention_ms = 1")
    queue.later(10_000)
    await retain(queue)
    assert await low_offset(queue) == 0


async def test_a_queue_without_groups_drops_messages_past_their_time_to_live(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    await queue.database.fetch("UPDATE queues SET ttl_ms = 1000, max_size = 3")
    queue.later(600)
    await queue.push("c")
    queue.later(500)
    [dropped] = await retain(queue)
    assert (dropped.group, dropped.messages) == ("", 2)
    row = await queue.database.fetchrow("SELECT queue_size_v1(id) AS size FROM queues")
    assert row is not None
    assert row["size"] == 1
    assert (await queue.push("d", "e", "f")).refused == {2}, "the two dropped messages made room"


async def test_a_lease_on_dropped_messages_ends_and_its_ack_changes_nothing(
    queue: QueueUnderTest,
) -> None:
    queue.lease_ms = 100_000
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    await queue.push("a", "b")
    held = await queue.pop(2)
    queue.later(500)
    await queue.push("c")
    queue.later(600)
    await retain(queue)
    assert [r.outcome for r in await queue.ack(held)] == ["lease_lost"] * 2
    assert await queue.depth() == (1, 0)
    assert (await queue.pop(5)).payloads == ["c"]
    await assert_totals_are_exact(queue)


async def test_a_lease_that_still_holds_a_message_stays_in_force(queue: QueueUnderTest) -> None:
    queue.lease_ms = 100_000
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    await queue.push("a")
    queue.later(500)
    await queue.push("b")
    held = await queue.pop(2)
    queue.later(600)
    await retain(queue)
    assert await queue.depth() == (0, 1)
    assert (await queue.pop()).payloads == []
    results = await queue.ack(held)
    assert [r.outcome for r in results] == ["not_leased", "completed"]
    assert results[1].lease_released
    assert await queue.depth() == (0, 0)
    await assert_totals_are_exact(queue)


async def test_a_lease_ends_when_its_last_unacked_message_is_dropped(queue: QueueUnderTest) -> None:
    queue.lease_ms = 100_000
    await queue.configure(retention_enabled=True, retention_ms=1_000, retry_delay_ms=50)
    await queue.push("a")
    queue.later(500)
    await queue.push("b", "c")
    held = await queue.pop(3)
    await queue.ack(held, "failed", 1)
    await queue.ack(held, "completed", 2)
    queue.later(600)
    await retain(queue)
    assert await queue.depth() == (2, 0), "the cursor stands before b"
    assert (await queue.pop(3)).payloads == [], "b waits for its retry"
    queue.later(50)
    again = await queue.pop(3)
    assert again.payloads == ["b"]
    assert again.messages[0][4] == 1, "its failed attempt is kept"
    await assert_totals_are_exact(queue)


async def test_the_cursor_moves_past_messages_finished_out_of_order(queue: QueueUnderTest) -> None:
    queue.lease_ms = 100
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    await queue.push("a", "b")
    queue.later(500)
    await queue.push("c", "d", "e")
    held = await queue.pop(5)
    await queue.ack(held, "completed", 1, 2, 3)
    queue.later(600)
    [dropped] = await retain(queue)
    assert dropped.messages == 1, "only a was not finished"
    assert (await queue.pop(5)).payloads == ["e"]
    assert await queue.depth() == (0, 1)
    await assert_totals_are_exact(queue)


async def test_a_delayed_retry_is_not_moved_forward(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=1_000, retry_delay_ms=10_000)
    await queue.push("a")
    queue.later(500)
    await queue.push("b")
    held = await queue.pop(2)
    await queue.ack(held, "failed", 0)
    await queue.ack(held, "failed", 1)
    queue.later(600)
    await retain(queue)
    assert (await queue.pop()).payloads == []
    queue.later(9_400)
    assert (await queue.pop()).payloads == ["b"]


async def test_a_push_makes_an_emptied_partition_ready(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    await queue.push("a")
    queue.later(2_000)
    await retain(queue)
    assert (await queue.pop()).payloads == []
    await queue.push("b")
    assert (await queue.pop()).payloads == ["b"]


async def test_a_new_group_starts_with_the_first_kept_message(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    await queue.push("a")
    queue.later(2_000)
    await queue.push("b")
    await retain(queue)
    assert (await queue.pop(5, "late")).payloads == ["b"]
    await assert_totals_are_exact(queue)


async def test_totals_stay_exact_under_concurrent_retention_pushes_and_pops(queue: QueueUnderTest) -> None:
    await queue.configure(retention_enabled=True, retention_ms=1_000)
    names = [f"p{i}" for i in range(6)]
    for name in names:
        await queue.push("old", "older", partition=name)
    queue.later(2_000)

    async def push(name: str) -> None:
        for i in range(10):
            await queue.push(f"{name} {i}", partition=name)

    async def consume(group: str) -> None:
        for _ in range(15):
            await queue.ack(await queue.pop(3, group, width=3), group=group)

    async def apply_retention() -> None:
        for _ in range(10):
            await retain(queue)

    await asyncio.gather(
        *map(push, names), consume("g"), consume("new"), apply_retention(), apply_retention()
    )
    await assert_totals_are_exact(queue)
    for group in ("g", "new"):
        while (delivery := await queue.pop(100, group, width=6)).messages:
            await queue.ack(delivery, group=group)
        assert await queue.depth(group) == (0, 0)


async def test_expired_messages_of_an_idle_group_do_not_count_in_its_depth(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=1_000)
    await queue.push("a", "b", partition="x")
    await queue.push("c", partition="y")
    queue.later(700)
    await queue.push("d", partition="x")
    queue.later(299)
    assert await retention.expire_idle_positions(queue.database, queue.now) == (False, [])
    queue.later(1)
    more, [dropped] = await retention.expire_idle_positions(queue.database, queue.now)
    assert (more, dropped.queue, dropped.group, dropped.messages) == (False, "orders", "g", 3)
    assert await queue.depth() == (1, 0)
    assert await retention.expire_idle_positions(queue.database, queue.now) == (False, [])
    assert (await queue.pop(5, width=5)).payloads == ["d"]
    await assert_totals_are_exact(queue)
    await queue.push("e", partition="y")
    assert (await queue.pop(5, width=5)).payloads == ["e"], "the emptied partition is ready again"


async def test_expiry_skips_leased_messages(queue: QueueUnderTest) -> None:
    queue.lease_ms = 5_000
    await queue.configure(ttl_ms=1_000)
    await queue.push("a")
    held = await queue.pop()
    queue.later(2_000)
    assert await retention.expire_idle_positions(queue.database, queue.now) == (False, [])
    [result] = await queue.ack(held)
    assert result.outcome == "completed"


async def test_expiry_finds_partitions_whose_group_was_created_before_the_first_push(
    queue: QueueUnderTest,
) -> None:
    await queue.partition("x")
    await queue.configure(ttl_ms=1_000)
    await queue.push("a", partition="x")
    await retention.expire_idle_positions(queue.database, queue.now)
    queue.later(1_000)
    _, [dropped] = await retention.expire_idle_positions(queue.database, queue.now)
    assert dropped.messages == 1
    assert await queue.depth() == (0, 0)


async def test_expiry_works_in_bounded_steps(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=1_000)
    for i in range(5):
        await queue.push("a", partition=f"p{i}")
    queue.later(1_000)
    steps = []
    more = True
    while more:
        more, expired = await retention.expire_idle_positions(queue.database, queue.now, limit=2)
        steps += [row.messages for row in expired]
    assert steps == [2, 2, 1]
