"""The effect of queue options on push and pop."""

from __future__ import annotations

import asyncio

from tests.integration.durable.queue_under_test import QueueUnderTest


async def test_a_delay_applies_to_each_message(queue: QueueUnderTest) -> None:
    await queue.configure(delay_ms=1_000)
    await queue.push("a")
    queue.later(600)
    await queue.push("b")
    assert (await queue.pop(5)).payloads == []
    queue.later(400)
    first = await queue.pop(5)
    assert first.payloads == ["a"], "b is 600 ms younger"
    await queue.ack(first)
    assert (await queue.pop(5)).payloads == []
    queue.later(600)
    assert (await queue.pop(5)).payloads == ["b"]


async def test_a_window_delays_a_partition_until_pushes_pause(queue: QueueUnderTest) -> None:
    await queue.configure(window_ms=1_000)
    await queue.push("a")
    queue.later(900)
    await queue.push("b")
    queue.later(900)
    assert (await queue.pop(5)).payloads == []
    queue.later(100)
    assert (await queue.pop(5)).payloads == ["a", "b"]


async def test_a_window_of_one_partition_does_not_delay_others(queue: QueueUnderTest) -> None:
    await queue.configure(window_ms=1_000)
    await queue.push("ready", partition="x")
    queue.later(1_000)
    await queue.push("held", partition="y")
    assert (await queue.pop(5, width=5)).payloads == ["ready"]


async def test_messages_past_their_time_to_live_are_skipped_and_counted(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=1_000)
    await queue.push("old", "older")
    queue.later(700)
    await queue.push("young")
    queue.later(300)
    delivery = await queue.pop(5)
    assert delivery.payloads == ["young"]
    assert delivery.expired == 2
    assert await queue.depth() == (0, 1)


async def test_the_maximum_wait_time_expires_messages_too(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=5_000, max_wait_ms=1_000)
    await queue.push("a")
    queue.later(1_000)
    delivery = await queue.pop()
    assert (delivery.payloads, delivery.expired) == ([], 1)
    assert (await queue.pop()).expired == 0


async def test_a_full_queue_refuses_messages_that_do_not_fit(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=3)
    assert (await queue.push("a", "b", partition="x")).refused == frozenset()
    pushed = await queue.push("c", "d", partition="y")
    assert pushed.refused == {1}
    assert await queue.depth() == (3, 0)
    await queue.ack(await queue.pop(5))
    assert (await queue.push("e", "f", "g", partition="y")).refused == {2}


async def test_concurrent_pushes_never_exceed_the_size_limit(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=10)
    for name in "abcd":
        await queue.partition(name)
    results = await asyncio.gather(*(queue.push("1", "2", "3", partition=n) for n in "abcdabcd"))
    assert sum(3 - len(r.refused) for r in results) == 10
    assert await queue.depth() == (10, 0)


async def test_a_duplicate_does_not_count_toward_the_size_limit(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=2)
    await queue.push("a", keys=["k"])
    pushed = await queue.push("a", "b", "c", keys=["k", None, None])
    assert sorted(pushed.duplicates) == [0]
    assert pushed.refused == {2}
    assert (await queue.pop(5)).payloads == ["a", "b"]


async def test_partitions_past_the_limit_are_not_created(queue: QueueUnderTest) -> None:
    await queue.configure(max_partitions=2)
    created = await queue.partitions("a", "b", "c")
    assert sorted(created) == ["a", "b"]
    assert sorted(await queue.partitions("b", "d")) == ["b"]


async def test_a_group_can_start_with_new_messages(queue: QueueUnderTest) -> None:
    await queue.push("old")
    await queue.group("late", "new")
    assert await queue.depth("late") == (0, 0)
    queue.later(1)
    await queue.push("young")
    await queue.push("other", partition="new")
    assert (await queue.pop(5, "late", width=5)).payloads == ["young", "other"]


async def test_a_group_can_start_at_a_timestamp(queue: QueueUnderTest) -> None:
    for i in range(20):
        await queue.push(f"{i}a", f"{i}b")
        queue.later(10)
    timestamp = queue.now.replace(microsecond=70_000)
    await queue.group("late", timestamp.isoformat())
    assert (await queue.pop(2, "late")).payloads == ["7a", "7b"]
    assert (await queue.pop(1, "early")).payloads == ["0a"]


async def test_the_oldest_age_counts_from_the_push_after_a_retry_too(queue: QueueUnderTest) -> None:
    await queue.push("a")
    pushed_at = queue.now
    queue.later(500)
    await queue.ack(await queue.pop(), "failed")
    queue.later(500)
    ids = await queue.group()
    rows = await queue.database.fetch("SELECT * FROM queue_gauges_v1($1, $2)", [ids.queue_id], queue.now)
    assert {row["oldest_at"] for row in rows} == {pushed_at}
