"""Single messages are found, listed, deleted, declared dead and retried."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock.durable.consumer_groups import ConsumerGroups
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.log import PartitionName, Segment, ensure_partitions, push
from penstock.durable.stored_messages import MessageQuery, StoredMessages
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import QueueUnderTest


async def partition_id_of(queue: QueueUnderTest, partition: str = "Default") -> int:
    return (await queue.partition(partition)).partition_id


async def delete(queue: QueueUnderTest, key: str, partition: str = "Default") -> bool:
    return await StoredMessages(queue.database).delete(
        await partition_id_of(queue, partition), key, queue.now
    )


async def declare_dead(queue: QueueUnderTest, key: str, group: str = "g") -> str:
    partition_id = await partition_id_of(queue)
    offset = await StoredMessages(queue.database).find_offset(partition_id, key)
    assert offset is not None
    group_id = (await queue.group(group)).group_id
    return await StoredMessages(queue.database).declare_dead(
        partition_id, group_id, offset, "enough", queue.now
    )


async def retry(queue: QueueUnderTest, key: str, group: str | None = None) -> str:
    """Requeue a dead message for all groups, with the dead letters of all groups or of one."""
    store = DeadLetterStore(queue.database)
    rows = await store.list_of_message(await partition_id_of(queue), key)
    ids = [row.id for row in rows if group in (None, row.group_name)]
    outcomes = await store.requeue(ids, queue.now, audience="all")
    return outcomes[0].outcome if outcomes else "not_dead"


async def list_page(queue: QueueUnderTest, **filters: Any) -> list[tuple[str, str]]:
    ids = await queue.partition()
    group_id = filters.pop("group_id", (await queue.group()).group_id)
    query = MessageQuery({ids.queue_id: group_id}, **filters)
    rows = await StoredMessages(queue.database).list_messages(query, queue.now)
    return [(row.payload.decode(), row.status) for row in rows]


async def test_a_message_is_found_by_the_transaction_id_of_its_client(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["x", "y"])
    assert await StoredMessages(queue.database).find_offset(await partition_id_of(queue), "y") == 1
    assert await StoredMessages(queue.database).find_offset(await partition_id_of(queue), "z") is None
    assert (
        await StoredMessages(queue.database).find_offset(await partition_id_of(queue, "other"), "y") is None
    )


async def test_a_message_is_found_by_the_id_that_the_broker_created(queue: QueueUnderTest) -> None:
    name = PartitionName("q", "p")
    partition_id = (await ensure_partitions(queue.database, DEFAULT_SCOPE, [name]))[name].partition_id
    ids: list[str] = []
    for _ in range(50):
        fresh = [str(new_id()) for _ in range(3)]
        await push(queue.database, [Segment(partition_id, fresh, [None] * 3, [None] * 3, [b"1"] * 3)])
        ids += fresh
    for offset in (0, 1, 74, 149):
        assert await StoredMessages(queue.database).find_offset(partition_id, ids[offset]) == offset
    assert await StoredMessages(queue.database).find_offset(partition_id, str(new_id())) is None
    assert await StoredMessages(queue.database).find_offset(partition_id, str(uuid.uuid4())) is None


async def test_an_id_from_another_time_is_searched_within_limits(queue: QueueUnderTest) -> None:
    await queue.push("a")  # by a clock that is years ahead of the id's
    [row] = await queue.database.fetch("SELECT message_ids[1] AS id FROM log")
    assert await StoredMessages(queue.database).find_offset(await partition_id_of(queue), str(row["id"])) == 0


async def test_a_partition_of_another_tenant_is_not_found(queue: QueueUnderTest) -> None:
    partition_id = await partition_id_of(queue)
    assert await StoredMessages(queue.database).find_partition(Scope("acme"), partition_id) is None
    found = await StoredMessages(queue.database).find_partition(DEFAULT_SCOPE, partition_id)
    assert found is not None
    assert (found.queue, found.partition) == ("orders", "Default")


async def test_messages_are_listed_newest_first_with_their_status(queue: QueueUnderTest) -> None:
    await queue.push(*"abcdef")
    await queue.ack(await queue.pop(1))
    await queue.ack(await queue.pop(1), "dlq")
    delivery = await queue.pop(3)
    await queue.ack(delivery, "completed", 1)
    assert await list_page(queue) == [
        ("f", "pending"),
        ("e", "processing"),
        ("d", "completed"),
        ("c", "processing"),
        ("b", "dead_letter"),
        ("a", "completed"),
    ]
    assert await list_page(queue, status="pending") == [("f", "pending")]
    assert await list_page(queue, status="processing") == [("e", "processing"), ("c", "processing")]
    assert await list_page(queue, status="completed") == [
        ("d", "completed"),
        ("b", "dead_letter"),
        ("a", "completed"),
    ]
    queue.later(1_000)
    assert await list_page(queue, status="processing") == [], "the lease has expired"


async def test_a_queue_without_groups_has_everything_pending(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    assert await list_page(queue, group_id=None) == [("b", "pending"), ("a", "pending")]


async def test_a_page_continues_where_the_previous_one_ended(queue: QueueUnderTest) -> None:
    for name in "xy":
        await queue.push(*(f"{name}{i}" for i in range(4)), partition=name)
        await queue.push(*(f"{name}{i}" for i in range(4, 7)), partition=name)
    everything = [payload for payload, _ in await list_page(queue, limit=100)]
    assert everything == [f"{name}{i}" for name in "xy" for i in reversed(range(7))]
    by_offset = [
        payload for skip in range(0, 14, 3) for payload, _ in await list_page(queue, skip=skip, limit=3)
    ]
    assert by_offset == everything
    ids = await queue.partition()
    start, by_cursor = None, []
    while rows := await StoredMessages(queue.database).list_messages(
        MessageQuery({ids.queue_id: None}, start=start, limit=4), queue.now
    ):
        by_cursor += [row.payload.decode() for row in rows]
        start = (rows[-1].partition_id, rows[-1].message_offset)
    assert by_cursor == everything
    assert await list_page(queue, partition_id=await partition_id_of(queue, "y"), limit=2) == [
        ("y6", "pending"),
        ("y5", "pending"),
    ]


async def test_the_total_of_a_page_counts_all_matching_messages(queue: QueueUnderTest) -> None:
    await queue.push(*"abcde")
    await queue.ack(await queue.pop(2))
    ids = await queue.partition()
    group_id = (await queue.group()).group_id
    for status, total in ((None, 5), ("pending", 3), ("completed", 2)):
        rows = await StoredMessages(queue.database).list_messages(
            MessageQuery({ids.queue_id: group_id}, None, status, limit=1)
        )
        assert rows[0].total == total


async def test_a_deleted_message_is_skipped_and_its_payload_overwritten(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", keys=["1", "2", "3"])
    await queue.group()
    assert await delete(queue, "2") is True
    assert await delete(queue, "2") is False
    assert await StoredMessages(queue.database).find_offset(await partition_id_of(queue), "2") is None
    assert [payload for payload, _ in await list_page(queue)] == ["c", "a"]
    delivery = await queue.pop(5)
    assert delivery.payloads == ["a", "c"]
    await queue.ack(delivery)
    assert await queue.depth() == (0, 0)
    [row] = await queue.database.fetch("SELECT payloads FROM log")
    assert row["payloads"] == [b"a", b"null", b"c"]
    assert list((await queue.push("b again", keys=["2"])).duplicates) == [0], "its id is still taken"


async def test_the_head_can_be_deleted(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    await queue.group()
    await delete(queue, "1")
    assert await queue.depth() == (1, 0)
    assert (await queue.pop(5)).payloads == ["b"]
    await delete(queue, "2")
    assert await queue.depth() == (0, 0)
    queue.later(10_000)
    assert (await queue.pop(5)).payloads == []


async def test_a_new_group_does_not_get_deleted_messages(queue: QueueUnderTest) -> None:
    await queue.push(*"abcd", keys=["1", "2", "3", "4"])
    await delete(queue, "1")
    await delete(queue, "3")
    assert (await queue.pop(5, "late")).payloads == ["b", "d"]
    assert await queue.depth("late") == (0, 3), "a deleted message is between b and d"


async def test_deleted_messages_stay_deleted_after_a_seek(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", keys=["1", "2", "3"])
    await queue.ack(await queue.pop(3))
    await delete(queue, "1")
    await ConsumerGroups(queue.database).seek((await queue.group()).group_id, "all")
    assert (await queue.pop(5)).payloads == ["b", "c"]


async def test_deleting_a_leased_message_keeps_the_lease_of_the_others(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    delivery = await queue.pop(2)
    await delete(queue, "1")
    assert [a.outcome for a in await queue.ack(delivery)] == ["not_leased", "completed"]
    assert await queue.depth() == (0, 0)


async def test_deleting_the_only_leased_message_ends_the_lease(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    delivery = await queue.pop(1)
    await delete(queue, "1")
    assert [a.outcome for a in await queue.ack(delivery)] == ["lease_lost"]
    assert (await queue.pop()).payloads == ["b"]


async def test_a_message_declared_dead_does_not_block_its_partition(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    await queue.group("other")
    assert await declare_dead(queue, "1") == "dead"
    assert await declare_dead(queue, "1") == "already_dead"
    assert await queue.dead() == [("a", "enough", 0)]
    assert (await queue.pop(5)).payloads == ["b"]
    assert (await queue.pop(5, "other")).payloads == ["a", "b"], "it is dead for one group only"


async def test_a_finished_message_cannot_be_declared_dead(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["1"])
    await queue.ack(await queue.pop())
    assert await declare_dead(queue, "1") == "finished"
    assert await queue.dead() == []


async def test_a_queue_that_keeps_no_dead_letters_discards_dead_messages(queue: QueueUnderTest) -> None:
    await queue.configure(keep_dead=False)
    await queue.push("a", keys=["1"])
    assert await declare_dead(queue, "1") == "discarded"
    assert await queue.depth() == (0, 0)


async def test_a_delayed_retry_stays_delayed_when_another_message_is_declared_dead(
    queue: QueueUnderTest,
) -> None:
    await queue.configure(retry_delay_ms=5_000)
    await queue.push("a", "b", keys=["1", "2"])
    await queue.ack(await queue.pop(), "failed")
    assert await declare_dead(queue, "2") == "dead"
    queue.later(4_999)
    assert (await queue.pop()).payloads == []
    queue.later(1)
    assert (await queue.pop()).payloads == ["a"]


async def test_a_retried_dead_message_is_pushed_to_the_end_of_its_partition(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    await queue.ack(await queue.pop(), "dlq")
    assert await retry(queue, "1") == "queued"
    assert await retry(queue, "1") == "not_dead"
    assert await queue.dead() == []
    assert (await queue.pop(5)).payloads == ["b", "a"]


async def test_a_retry_into_a_full_queue_changes_nothing(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["1"])
    await queue.ack(await queue.pop(), "dlq")
    await queue.push("b")
    await queue.configure(max_size=1)
    assert await retry(queue, "1") == "queue_full"
    assert len(await queue.dead()) == 1
    assert await queue.depth() == (1, 0)


async def test_retrying_for_one_group_keeps_the_dead_letters_of_others(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["1"])
    for group in ("g", "h"):
        await queue.ack(await queue.pop(1, group), "dlq", group=group)
    assert await retry(queue, "1", "h") == "queued"
    dead_letters = await DeadLetterStore(queue.database).list_of_message(await partition_id_of(queue), "1")
    assert [dead_letter.group_name for dead_letter in dead_letters] == ["g"]


@pytest.mark.parametrize("step", [1, 3])
async def test_dead_letters_are_paged_and_counted_with_filters(queue: QueueUnderTest, step: int) -> None:
    for i in range(6):
        await queue.push(str(i), partition="xy"[i % 2], keys=[str(i)])
    for group in ("g", "h"):
        while (delivery := await queue.pop(1, group)).messages:
            await queue.ack(delivery, "dlq", group=group, error=group)
            queue.later(1_000)
    selection = DeadLetterFilter(queue="orders", group="g")
    assert await DeadLetterStore(queue.database).count(DEFAULT_SCOPE, selection) == 6
    assert await DeadLetterStore(queue.database).count(DEFAULT_SCOPE, DeadLetterFilter()) == 12
    assert await DeadLetterStore(queue.database).count(Scope("acme"), DeadLetterFilter()) == 0
    failed_at = []
    for offset in range(0, 6, step):
        page = await DeadLetterStore(queue.database).read_page(
            DEFAULT_SCOPE, selection, limit=step, offset=offset
        )
        failed_at += [dead_letter.failed_at for dead_letter in page.dead_letters]
    assert failed_at == sorted(failed_at, reverse=True)
    assert len(set(failed_at)) == 6
    in_range = DeadLetterFilter(queue="orders", partition="x", start=failed_at[-1], end=failed_at[0])
    page = await DeadLetterStore(queue.database).read_page(DEFAULT_SCOPE, in_range, limit=10, offset=0)
    assert {dead_letter.partition for dead_letter in page.dead_letters} == {"x"}
    assert await DeadLetterStore(queue.database).count(DEFAULT_SCOPE, in_range) == len(page.dead_letters)
    assert all(failed_at[-1] <= dead_letter.failed_at < failed_at[0] for dead_letter in page.dead_letters)
    await queue.database.fetch("DELETE FROM dead_letters WHERE message_offset = 0")
    assert await DeadLetterStore(queue.database).count(DEFAULT_SCOPE, DeadLetterFilter()) == 8
