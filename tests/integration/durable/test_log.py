"""The guarantees of the log: order, cursor, leases, retries, dead letters, duplicates, groups."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock.durable import log
from penstock.durable.log import Ack, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.errors import TransactionFailed
from penstock.ids import new_id
from tests.integration.durable.queue_under_test import QueueUnderTest


async def test_offsets_are_gap_free_and_in_push_order(queue: QueueUnderTest) -> None:
    assert (await queue.push("a", "b")).first_offsets == [0]
    assert (await queue.push("c")).first_offsets == [2]
    assert (await queue.pop(10)).payloads == ["a", "b", "c"]


async def test_concurrent_pushes_to_one_partition_leave_no_gap(queue: QueueUnderTest) -> None:
    await queue.partition()
    await asyncio.gather(*(queue.push(f"{i}a", f"{i}b") for i in range(20)))
    delivery = await queue.pop(100)
    assert [offset for _, offset, _, _, _ in delivery.messages] == list(range(40))
    assert all(a[:-1] == b[:-1] for a, b in zip(delivery.payloads[::2], delivery.payloads[1::2], strict=True))


async def test_a_batch_is_cut_to_size_across_segments(queue: QueueUnderTest) -> None:
    await queue.push(*"abcde")
    await queue.push(*"fgh")
    first = await queue.pop(3)
    assert first.payloads == ["a", "b", "c"]
    await queue.ack(first)
    second = await queue.pop(4)
    assert second.payloads == ["d", "e", "f", "g"]
    await queue.ack(second)
    assert (await queue.pop(4)).payloads == ["h"]


async def test_a_leased_partition_is_not_popped_again_before_the_lease_ends(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    assert (await queue.pop()).payloads == ["a"]
    assert (await queue.pop()).payloads == []
    queue.later(999)
    assert (await queue.pop()).payloads == []
    queue.later(1)
    assert (await queue.pop()).payloads == ["a"]


async def test_pop_skips_a_partition_leased_elsewhere(queue: QueueUnderTest) -> None:
    await queue.push("x1", partition="x")
    queue.later(1)
    await queue.push("y1", partition="y")
    assert (await queue.pop()).payloads == ["x1"]
    assert (await queue.pop()).payloads == ["y1"]
    assert (await queue.pop()).payloads == []


async def test_the_longest_waiting_partition_comes_first(queue: QueueUnderTest) -> None:
    for delay_ms, name in enumerate("cab"):
        queue.later(delay_ms)
        await queue.push(f"{name}1", f"{name}2", partition=name)
    first = await queue.pop()
    await queue.ack(first)
    assert first.payloads == ["c1"]
    assert (await queue.pop()).payloads == ["c2"], "its next message is as old as the first one was"
    assert (await queue.pop()).payloads == ["a1"]


async def test_one_named_partition_can_be_popped(queue: QueueUnderTest) -> None:
    await queue.push("x1", partition="x")
    await queue.push("y1", partition="y")
    assert (await queue.pop(partition="y")).payloads == ["y1"]
    assert (await queue.pop(partition="y")).payloads == []


async def test_one_pop_takes_from_several_partitions_up_to_its_batch(queue: QueueUnderTest) -> None:
    for name in "abcd":
        await queue.push(*(f"{name}{i}" for i in range(3)), partition=name)
        queue.later(1)
    delivery = await queue.pop(8, width=3)
    assert delivery.payloads == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1"]
    assert all(a.outcome == "completed" for a in await queue.ack(delivery))
    assert (await queue.pop(10, width=5)).payloads == ["c2", "d0", "d1", "d2"]


async def test_the_cursor_moves_only_over_a_finished_prefix(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", "c")
    delivery = await queue.pop(3)
    await queue.ack(delivery, "completed", 2)
    await queue.ack(delivery, "completed", 1)
    queue.later(1_000)
    assert (await queue.pop(3)).payloads == ["a"], "b and c were finished and are not redelivered"


async def test_a_stale_lease_changes_nothing(queue: QueueUnderTest) -> None:
    await queue.push("a")
    old = await queue.pop()
    queue.later(1_000)
    new = await queue.pop()
    [late] = await queue.ack(old)
    assert late.outcome == "lease_lost"
    assert await queue.depth() == (0, 1)
    [good] = await queue.ack(new)
    assert (good.outcome, good.lease_released) == ("completed", True)
    assert await queue.depth() == (0, 0)


async def test_an_expired_lease_is_refused_even_if_no_consumer_took_over(queue: QueueUnderTest) -> None:
    await queue.push("a")
    delivery = await queue.pop()
    queue.later(1_000)
    [late] = await queue.ack(delivery)
    assert late.outcome == "lease_lost"


async def test_a_message_outside_the_lease_is_refused_alone(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop(1)
    ids = await queue.group()
    partition_id, _, transaction_id, _, _ = delivery.messages[0]
    acks = [
        Ack(partition_id, ids.group_id, delivery.lease_id, "unknown", "completed", None),
        Ack(partition_id, ids.group_id, delivery.lease_id, transaction_id, "completed", None),
        Ack(987654, ids.group_id, delivery.lease_id, transaction_id, "completed", None),
    ]
    results = await log.ack(queue.database, acks, queue.now)
    assert [r.outcome for r in results] == ["not_leased", "completed", "lease_lost"]


async def test_a_failed_message_blocks_its_partition_and_is_redelivered(queue: QueueUnderTest) -> None:
    await queue.configure(retry_delay_ms=500)
    await queue.push("a", "b", "c")
    delivery = await queue.pop(3)
    await queue.ack(delivery, "completed", 0)
    await queue.ack(delivery, "failed", 1)
    await queue.ack(delivery, "completed", 2)
    assert (await queue.pop(3)).payloads == []
    queue.later(500)
    again = await queue.pop(3)
    assert again.payloads == ["b"]
    assert again.messages[0][4] == 1
    await queue.ack(again)
    assert await queue.depth() == (0, 0)


async def test_after_the_retry_limit_a_message_is_dead_and_the_next_one_is_delivered(
    queue: QueueUnderTest,
) -> None:
    await queue.configure(retry_limit=2)
    await queue.push("bad", "good")
    for attempt in range(3):
        delivery = await queue.pop()
        assert delivery.payloads == ["bad"]
        [result] = await queue.ack(delivery, "failed", error=f"no {attempt}")
        assert result.outcome == ("dead" if attempt == 2 else "failed")
    assert (await queue.pop()).payloads == ["good"]
    assert await queue.dead() == [("bad", "no 2", 3)]


async def test_a_failed_batch_is_counted_message_by_message(queue: QueueUnderTest) -> None:
    await queue.configure(retry_limit=1)
    await queue.push("a", "b")
    await queue.ack(await queue.pop(2), "failed")
    await queue.ack(await queue.pop(2), "failed")
    assert [payload for payload, _, _ in await queue.dead()] == ["a", "b"]
    assert await queue.depth() == (0, 0)


async def test_without_dead_letters_a_failing_message_is_retried_forever(queue: QueueUnderTest) -> None:
    await queue.configure(retry_limit=0, dead_after_limit=False)
    await queue.push("a")
    for attempt in range(4):
        delivery = await queue.pop()
        assert delivery.messages[0][4] == attempt
        await queue.ack(delivery, "failed")
    assert await queue.dead() == []


async def test_a_message_can_be_declared_dead_at_once(queue: QueueUnderTest) -> None:
    await queue.push("a")
    [result] = await queue.ack(await queue.pop(), "dlq", error="nonsense")
    assert result.outcome == "dead"
    assert await queue.dead() == [("a", "nonsense", 1)]


async def test_an_ack_with_retry_does_not_count_an_attempt(queue: QueueUnderTest) -> None:
    await queue.configure(retry_limit=0)
    await queue.push("a")
    await queue.ack(await queue.pop(), "retry")
    again = await queue.pop()
    assert (again.payloads, again.messages[0][4]) == (["a"], 0)


async def test_a_message_that_kills_its_consumer_dies_without_its_neighbours(queue: QueueUnderTest) -> None:
    """A consumer that dies on `bad` lets its lease expire, with all other messages the lease holds."""
    await queue.configure(retry_limit=2)
    await queue.push("a", "b", "bad", "c")
    finished: list[str] = []
    for _ in range(20):
        delivery = await queue.pop(4)
        if "bad" in delivery.payloads:
            queue.later(1_000)
            continue
        finished += delivery.payloads
        await queue.ack(delivery)
    assert finished == ["a", "b", "c"]
    assert [(payload, error) for payload, error, _ in await queue.dead()] == [
        ("bad", "the lease expired without an ack")
    ]


async def test_groups_do_not_see_each_other(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    await queue.ack(await queue.pop(2, "one"), group="one")
    assert (await queue.pop(2, "two")).payloads == ["a", "b"]
    assert await queue.depth("one") == (0, 0)
    assert await queue.depth("two") == (0, 2)


async def test_a_group_sees_partitions_created_before_and_after_it(queue: QueueUnderTest) -> None:
    await queue.push("x", partition="before")
    await queue.group()
    queue.later(1)
    await queue.push("y", partition="after")
    assert (await queue.pop(5, width=5)).payloads == ["x", "y"]


async def test_auto_ack_finishes_at_once(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", "c")
    assert (await queue.pop(2, auto_ack=True)).payloads == ["a", "b"]
    assert await queue.depth() == (1, 0)
    assert (await queue.pop(2, auto_ack=True)).payloads == ["c"]
    assert (await queue.pop(2, auto_ack=True)).payloads == []


async def test_a_duplicate_is_refused_across_pushes_and_within_one(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["k1", "k2"])
    pushed = await queue.push("b again", "c", "c again", "d", keys=["k2", "k3", "k3", None])
    assert sorted(pushed.duplicates) == [0, 2]
    assert pushed.first_offsets == [2]
    delivery = await queue.pop(10)
    assert delivery.payloads == ["a", "b", "c", "d"]
    stored = await queue.database.fetchrow("SELECT message_ids FROM log WHERE first_offset = 0")
    assert stored is not None
    assert pushed.duplicates[0] == stored["message_ids"][1], "a duplicate names the message it repeats"


async def test_a_push_of_duplicates_alone_changes_nothing(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["k"])
    await queue.ack(await queue.pop())
    assert sorted((await queue.push("a", keys=["k"])).duplicates) == [0]
    assert (await queue.pop()).payloads == []
    assert await queue.depth() == (0, 0)


async def test_the_same_transaction_id_is_free_in_another_partition(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["k"], partition="x")
    assert (await queue.push("b", keys=["k"], partition="y")).duplicates == {}


async def test_only_one_of_concurrent_pushes_of_one_transaction_id_wins(queue: QueueUnderTest) -> None:
    await queue.partition()
    results = await asyncio.gather(*(queue.push(f"{i}", keys=["k"]) for i in range(8)))
    assert sum(not r.duplicates for r in results) == 1
    assert len((await queue.pop(10)).payloads) == 1


async def test_a_deleted_partition_is_reported_and_the_other_segments_are_stored(database: Database) -> None:
    queue = QueueUnderTest(database)
    ids = await queue.partition()
    segments = [
        Segment(partition_id, [str(new_id())], [None], [None], [b"1"])
        for partition_id in (ids.partition_id, 10**9)
    ]
    pushed = await log.push(database, segments)
    assert pushed.first_offsets == [0, None]


async def test_depth_counts_waiting_and_running_messages(queue: QueueUnderTest) -> None:
    for i in range(5):
        await queue.push(*"abc", partition=str(i))
    await queue.ack(await queue.pop(3))
    first = await queue.pop(3)
    await queue.ack(first, "completed", 0)
    assert await queue.depth() == (9, 2)


async def test_several_requests_in_one_pop_each_get_their_own_partition(queue: QueueUnderTest) -> None:
    for name in "abc":
        await queue.push(f"{name}0", partition=name)
        queue.later(1)
    ids = await queue.group()
    leases = [new_id() for _ in range(4)]
    rows = await log.pop(
        queue.database, ids.group_id, [PopRequest(lease, 5) for lease in leases], lease_ms=1000, now=queue.now
    )
    assert [(row["request"], row["payloads"]) for row in rows] == [(1, [b"a0"]), (2, [b"b0"]), (3, [b"c0"])]


async def test_two_brokers_acking_overlapping_sets_in_opposite_order_do_not_deadlock(
    queue: QueueUnderTest,
) -> None:
    names = [str(i) for i in range(12)]
    for round_number in range(10):
        for name in names:
            await queue.push(str(round_number), partition=name)
        delivery = await queue.pop(100, width=100)
        ids = await queue.group()
        acks = [
            Ack(partition_id, ids.group_id, delivery.lease_id, transaction_id, "completed", None)
            for partition_id, _, transaction_id, _, _ in delivery.messages
        ]
        results = await asyncio.gather(
            log.ack(queue.database, acks, queue.now), log.ack(queue.database, acks[::-1], queue.now)
        )
        completed_counts = [sum(r.outcome == "completed" for r in result) for result in results]
        assert sum(completed_counts) == len(names)


async def test_pushes_to_the_same_partitions_in_opposite_order_do_not_deadlock(queue: QueueUnderTest) -> None:
    ids = [(await queue.partition(str(i))).partition_id for i in range(40)]

    def segments(order: list[int]) -> list[Segment]:
        return [Segment(partition_id, [str(new_id())], [None], [None], [b"x"]) for partition_id in order]

    for _ in range(10):
        pushed = await asyncio.gather(
            *(log.push(queue.database, segments(order), queue.now) for order in (ids, ids[::-1]) * 3)
        )
        for index in range(len(ids)):
            offsets = [result.first_offsets[index] for result in pushed[::2]]
            offsets += [result.first_offsets[-1 - index] for result in pushed[1::2]]
            assert len(set(offsets)) == 6, "every push has its own offset"


async def test_a_transaction_pushes_and_acks(queue: QueueUnderTest) -> None:
    await queue.push("in")
    delivery = await queue.pop()
    result = await queue.transaction(["out"], delivery, partition="next")
    assert result.outcomes == ["completed"]
    assert (await queue.pop(partition="next")).payloads == ["out"]
    assert (await queue.pop(partition="Default")).payloads == []


async def test_a_transaction_with_a_lost_lease_changes_nothing_and_names_the_item(
    queue: QueueUnderTest,
) -> None:
    await queue.push("in")
    delivery = await queue.pop()
    queue.later(1_000)
    with pytest.raises(TransactionFailed) as caught:
        await queue.transaction(["out"], delivery, partition="next")
    assert (caught.value.kind, caught.value.item, caught.value.reason) == ("ack", 0, "lease_lost")
    assert (await queue.pop(partition="next")).payloads == []
    assert (await queue.pop(partition="Default")).payloads == ["in"]


async def test_a_duplicate_in_a_transaction_is_skipped_and_the_rest_is_executed(
    queue: QueueUnderTest,
) -> None:
    await queue.push("in")
    await queue.push("out", partition="next", keys=["k"])
    delivery = await queue.pop(partition="Default")
    result = await queue.transaction(["out again"], delivery, partition="next", keys=["k"])
    assert list(result.duplicates) == [0]
    assert result.outcomes == ["completed"]
    assert (await queue.pop(5, partition="next")).payloads == ["out"]


async def test_a_lease_can_be_extended_but_not_shortened(queue: QueueUnderTest) -> None:
    await queue.push("a")
    delivery = await queue.pop()
    queue.later(900)
    assert await queue.extend(delivery, 500) == queue.now + timedelta(milliseconds=500)
    assert await queue.extend(delivery, 100) == queue.now + timedelta(milliseconds=500)
    queue.later(499)
    assert (await queue.pop()).payloads == []
    queue.later(1)
    assert await queue.extend(delivery, 500) is None, "it has expired"
    assert (await queue.pop()).payloads == ["a"]


async def test_extending_covers_every_partition_of_the_lease(queue: QueueUnderTest) -> None:
    for name in "ab":
        await queue.push(name, partition=name)
    delivery = await queue.pop(2, width=2)
    await queue.extend(delivery, 5_000)
    queue.later(4_999)
    assert (await queue.pop(2, width=2)).payloads == []


async def test_auto_ack_counts_only_the_messages_within_the_byte_budget(queue: QueueUnderTest) -> None:
    ids = await queue.group("g")
    await queue.push("a", "b", "c")
    requests = [PopRequest(new_id(), 3)]
    await log.pop(
        queue.database, ids.group_id, requests, lease_ms=1000, auto_ack=True, max_bytes=1, now=queue.now
    )
    row = await queue.database.fetchrow(
        "SELECT sum(messages)::int, sum(completed)::int FROM tallies WHERE group_id = $1", ids.group_id
    )
    assert row is not None
    assert tuple(row) == (1, 1)
