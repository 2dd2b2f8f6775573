"""What a queue's options do to its messages."""

from __future__ import annotations

import asyncio

from tests.integration.durable.queue_under_test import QueueUnderTest


async def test_a_delayed_message_is_held_back_and_its_elders_are_not(queue: QueueUnderTest) -> None:
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


async def test_a_window_holds_a_partition_until_pushes_pause(queue: QueueUnderTest) -> None:
    await queue.configure(window_ms=1_000)
    await queue.push("a")
    queue.later(900)
    await queue.push("b")
    queue.later(900)
    assert (await queue.pop(5)).payloads == []
    queue.later(100)
    assert (await queue.pop(5)).payloads == ["a", "b"]


async def test_a_held_partition_does_not_hold_its_neighbours(queue: QueueUnderTest) -> None:
    await queue.configure(window_ms=1_000)
    await queue.push("ready", partition="x")
    queue.later(1_000)
    await queue.push("held", partition="y")
    assert (await queue.pop(5, width=5)).payloads == ["ready"]


async def test_messages_past_their_time_to_live_are_passed_over_and_counted(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=1_000)
    await queue.push("old", "older")
    queue.later(700)
    await queue.push("young")
    queue.later(300)
    delivery = await queue.pop(5)
    assert delivery.payloads == ["young"]
    assert delivery.expired == 2
    assert await queue.depth() == (0, 1)


async def test_the_longest_wait_expires_messages_too(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=5_000, max_wait_ms=1_000)
    await queue.push("a")
    queue.later(1_000)
    delivery = await queue.pop()
    assert (delivery.payloads, delivery.expired) == ([], 1)
    assert (await queue.pop()).expired == 0


async def test_a_full_queue_refuses_what_does_not_fit_and_keeps_the_rest(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=3)
    assert (await queue.push("a", "b", partition="x")).refused == frozenset()
    pushed = await queue.push("c", "d", partition="y")
    assert pushed.refused == {1}
    assert await queue.depth() == (3, 0)
    await queue.ack(await queue.pop(5))
    assert (await queue.push("e", "f", "g", partition="y")).refused == {2}


async def test_concurrent_pushes_never_pass_the_size(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=10)
    for name in "abcd":
        await queue.partition(name)
    results = await asyncio.gather(*(queue.push("1", "2", "3", partition=n) for n in "abcdabcd"))
    assert sum(3 - len(r.refused) for r in results) == 10
    assert await queue.depth() == (10, 0)


async def test_a_duplicate_takes_no_place_in_a_full_queue(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=2)
    await queue.push("a", keys=["k"])
    pushed = await queue.push("a", "b", "c", keys=["k", None, None])
    assert (sorted(pushed.duplicates), pushed.refused) == ([0], {2})
    assert (await queue.pop(5)).payloads == ["a", "b"]


async def test_partitions_past_the_limit_are_not_made(queue: QueueUnderTest) -> None:
    await queue.configure(max_partitions=2)
    made = await queue.partitions("a", "b", "c")
    assert sorted(made) == ["a", "b"]
    assert sorted(await queue.partitions("b", "d")) == ["b"]


async def test_a_group_can_start_with_what_is_new(queue: QueueUnderTest) -> None:
    await queue.push("old")
    await queue.group("late", "new")
    assert await queue.depth("late") == (0, 0)
    queue.later(1)
    await queue.push("young")
    await queue.push("other", partition="made later")
    assert (await queue.pop(5, "late", width=5)).payloads == ["young", "other"]


async def test_a_group_can_start_at_a_moment(queue: QueueUnderTest) -> None:
    for i in range(20):
        await queue.push(f"{i}a", f"{i}b")
        queue.later(10)
    moment = queue.now.replace(microsecond=70_000)
    await queue.group("late", moment.isoformat())
    assert (await queue.pop(2, "late")).payloads == ["7a", "7b"]
    assert (await queue.pop(1, "early")).payloads == ["0a"]


async def test_the_oldest_age_counts_from_the_push_also_after_a_retry(queue: QueueUnderTest) -> None:
    await queue.push("a")
    pushed_at = queue.now
    queue.later(500)
    await queue.ack(await queue.pop(), "failed")
    queue.later(500)
    ids = await queue.group()
    rows = await queue.database.fetch("SELECT * FROM queue_gauges_v1($1, $2)", [ids.queue_id], queue.now)
    assert {row["oldest_at"] for row in rows} == {pushed_at}
