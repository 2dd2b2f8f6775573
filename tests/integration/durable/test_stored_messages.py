"""Single messages: found, listed, deleted, declared dead, retried."""

from __future__ import annotations

import uuid

import pytest

from penstock.durable import consumer_groups, stored_messages
from penstock.durable.dead_letters import dead_letter_queries
from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.durable.log import PartitionName, Segment, ensure_partitions, push
from penstock.durable.stored_messages import Page
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import QueueUnderTest


async def place(queue: QueueUnderTest, partition: str = "Default") -> int:
    return (await queue.partition(partition)).partition_id


async def delete(queue: QueueUnderTest, key: str, partition: str = "Default") -> bool:
    return await stored_messages.delete(queue.database, await place(queue, partition), key, queue.now)


async def bury(queue: QueueUnderTest, key: str, group: str = "g") -> str:
    partition_id = await place(queue)
    offset = await stored_messages.find(queue.database, partition_id, key)
    assert offset is not None
    group_id = (await queue.group(group)).group_id
    return await stored_messages.bury(queue.database, partition_id, group_id, offset, "enough", queue.now)


async def retry(queue: QueueUnderTest, key: str, payload: str, group_id: int | None = None) -> str:
    partition_id = await place(queue)
    return await stored_messages.retry(
        queue.database, partition_id, key, group_id, new_id(), payload.encode(), queue.now
    )


async def page(queue: QueueUnderTest, **wanted: object) -> list[tuple[str, str]]:
    ids = await queue.partition()
    group_id = (await queue.group()).group_id
    given = {"queue_id": ids.queue_id, "group_id": group_id, **wanted}
    rows = await stored_messages.messages(queue.database, Page(**given), queue.now)  # type: ignore[arg-type]
    return [(row["payload"].decode(), row["status"]) for row in rows]


async def test_a_message_is_found_by_the_id_its_client_chose(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["x", "y"])
    assert await stored_messages.find(queue.database, await place(queue), "y") == 1
    assert await stored_messages.find(queue.database, await place(queue), "z") is None
    assert await stored_messages.find(queue.database, await place(queue, "other"), "y") is None


async def test_a_message_is_found_by_the_id_the_broker_made(queue: QueueUnderTest) -> None:
    name = PartitionName("q", "p")
    partition_id = (await ensure_partitions(queue.database, DEFAULT_SCOPE, [name]))[name].partition_id
    ids: list[uuid.UUID] = []
    for _ in range(50):
        fresh = [new_id() for _ in range(3)]
        await push(queue.database, [Segment(partition_id, fresh, [None] * 3, [None] * 3, [b"1"] * 3)])
        ids += fresh
    for offset in (0, 1, 74, 149):
        assert await stored_messages.find(queue.database, partition_id, str(ids[offset])) == offset
    assert await stored_messages.find(queue.database, partition_id, str(new_id())) is None
    assert await stored_messages.find(queue.database, partition_id, str(uuid.uuid4())) is None


async def test_an_id_from_another_time_is_searched_within_bounds(queue: QueueUnderTest) -> None:
    await queue.push("a")  # by a clock that is years ahead of the id's
    [row] = await queue.database.fetch("SELECT message_ids[1] AS id FROM log")
    assert await stored_messages.find(queue.database, await place(queue), str(row["id"])) == 0


async def test_a_partition_of_another_tenant_is_not_found(queue: QueueUnderTest) -> None:
    partition_id = await place(queue)
    assert await stored_messages.place(queue.database, Scope("acme"), partition_id) is None
    found = await stored_messages.place(queue.database, DEFAULT_SCOPE, partition_id)
    assert found is not None
    assert (found.queue, found.partition) == ("orders", "Default")


async def test_messages_are_listed_newest_first_with_their_status(queue: QueueUnderTest) -> None:
    await queue.push(*"abcdef")
    await queue.ack(await queue.pop(1))
    await queue.ack(await queue.pop(1), "dlq")
    delivery = await queue.pop(3)
    await queue.ack(delivery, "completed", 1)
    assert await page(queue) == [
        ("f", "pending"),
        ("e", "processing"),
        ("d", "completed"),
        ("c", "processing"),
        ("b", "dead_letter"),
        ("a", "completed"),
    ]
    assert await page(queue, status="pending") == [("f", "pending")]
    assert await page(queue, status="processing") == [("e", "processing"), ("c", "processing")]
    assert await page(queue, status="completed") == [
        ("d", "completed"),
        ("b", "dead_letter"),
        ("a", "completed"),
    ]
    queue.later(1_000)
    assert await page(queue, status="processing") == [], "the lease ran out"


async def test_a_queue_without_groups_has_everything_pending(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    assert await page(queue, group_id=None) == [("b", "pending"), ("a", "pending")]


async def test_pages_go_on_where_the_last_one_ended(queue: QueueUnderTest) -> None:
    for name in "xy":
        await queue.push(*(f"{name}{i}" for i in range(4)), partition=name)
        await queue.push(*(f"{name}{i}" for i in range(4, 7)), partition=name)
    everything = [payload for payload, _ in await page(queue, limit=100)]
    assert everything == [f"{name}{i}" for name in "xy" for i in reversed(range(7))]
    by_offset = [payload for skip in range(0, 14, 3) for payload, _ in await page(queue, skip=skip, limit=3)]
    assert by_offset == everything
    ids = await queue.partition()
    start, by_cursor = None, []
    while rows := await stored_messages.messages(
        queue.database, Page(ids.queue_id, start=start, limit=4), queue.now
    ):
        by_cursor += [row["payload"].decode() for row in rows]
        start = (rows[-1]["partition_id"], rows[-1]["message_offset"])
    assert by_cursor == everything
    assert await page(queue, partition_id=await place(queue, "y"), limit=2) == [
        ("y6", "pending"),
        ("y5", "pending"),
    ]


async def test_the_total_of_a_page_is_that_of_the_selection(queue: QueueUnderTest) -> None:
    await queue.push(*"abcde")
    await queue.ack(await queue.pop(2))
    ids = await queue.partition()
    group_id = (await queue.group()).group_id
    for status, total in ((None, 5), ("pending", 3), ("completed", 2)):
        rows = await stored_messages.messages(
            queue.database, Page(ids.queue_id, None, group_id, status, limit=1)
        )
        assert rows[0]["total"] == total


async def test_a_deleted_message_is_passed_over_and_its_payload_is_gone(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", keys=["1", "2", "3"])
    await queue.group()
    assert await delete(queue, "2") is True
    assert await delete(queue, "2") is False
    assert await stored_messages.find(queue.database, await place(queue), "2") is None
    assert [payload for payload, _ in await page(queue)] == ["c", "a"]
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


async def test_a_group_made_later_does_not_get_what_was_deleted(queue: QueueUnderTest) -> None:
    await queue.push(*"abcd", keys=["1", "2", "3", "4"])
    await delete(queue, "1")
    await delete(queue, "3")
    assert (await queue.pop(5, "late")).payloads == ["b", "d"]
    assert await queue.depth("late") == (0, 3), "between b and d lies a deleted one"


async def test_what_was_deleted_stays_deleted_when_a_group_goes_back(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", keys=["1", "2", "3"])
    await queue.ack(await queue.pop(3))
    await delete(queue, "1")
    await consumer_groups.seek(queue.database, (await queue.group()).group_id, "all")
    assert (await queue.pop(5)).payloads == ["b", "c"]


async def test_deleting_a_leased_message_leaves_the_rest_of_the_lease(queue: QueueUnderTest) -> None:
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


async def test_a_message_declared_dead_is_a_dead_letter_and_blocks_nobody(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    await queue.group("other")
    assert await bury(queue, "1") == "dead"
    assert await bury(queue, "1") == "already_dead"
    assert await queue.dead() == [("a", "enough", 0)]
    assert (await queue.pop(5)).payloads == ["b"]
    assert (await queue.pop(5, "other")).payloads == ["a", "b"], "it is dead for one group only"


async def test_a_finished_message_cannot_be_declared_dead(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["1"])
    await queue.ack(await queue.pop())
    assert await bury(queue, "1") == "finished"
    assert await queue.dead() == []


async def test_a_queue_that_keeps_no_dead_letters_discards(queue: QueueUnderTest) -> None:
    await queue.configure(keep_dead=False)
    await queue.push("a", keys=["1"])
    assert await bury(queue, "1") == "discarded"
    assert await queue.depth() == (0, 0)


async def test_a_retry_that_is_held_back_stays_so_when_its_neighbour_is_buried(queue: QueueUnderTest) -> None:
    await queue.configure(retry_delay_ms=5_000)
    await queue.push("a", "b", keys=["1", "2"])
    await queue.ack(await queue.pop(), "failed")
    assert await bury(queue, "2") == "dead"
    queue.later(4_999)
    assert (await queue.pop()).payloads == []
    queue.later(1)
    assert (await queue.pop()).payloads == ["a"]


async def test_a_dead_message_goes_back_to_the_end_of_its_partition(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["1", "2"])
    await queue.ack(await queue.pop(), "dlq")
    assert await retry(queue, "1", "a") == "queued"
    assert await retry(queue, "1", "a") == "not_dead"
    assert await queue.dead() == []
    assert (await queue.pop(5)).payloads == ["b", "a"]


async def test_a_retry_into_a_full_queue_changes_nothing(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["1"])
    await queue.ack(await queue.pop(), "dlq")
    await queue.push("b")
    await queue.configure(max_size=1)
    assert await retry(queue, "1", "a") == "queue_full"
    assert len(await queue.dead()) == 1
    assert await queue.depth() == (1, 0)


async def test_retrying_for_one_group_leaves_the_letters_of_others(queue: QueueUnderTest) -> None:
    await queue.push("a", keys=["1"])
    for group in ("g", "h"):
        await queue.ack(await queue.pop(1, group), "dlq", group=group)
    group_id = (await queue.group("h")).group_id
    assert await retry(queue, "1", "a", group_id) == "queued"
    letters = await dead_letter_queries.dead_letters_of(queue.database, await place(queue), "1")
    assert [letter["group_name"] for letter in letters] == ["g"]


@pytest.mark.parametrize("step", [1, 3])
async def test_dead_letters_are_paged_and_counted_whatever_kills_them(
    queue: QueueUnderTest, step: int
) -> None:
    for i in range(6):
        await queue.push(str(i), partition="xy"[i % 2], keys=[str(i)])
    for group in ("g", "h"):
        while (delivery := await queue.pop(1, group)).messages:
            await queue.ack(delivery, "dlq", group=group, error=group)
            queue.later(1_000)
    which = Filter(queue="orders", group="g")
    assert await dead_letter_queries.total(queue.database, DEFAULT_SCOPE, which) == 6
    assert await dead_letter_queries.total(queue.database, DEFAULT_SCOPE, Filter()) == 12
    assert await dead_letter_queries.total(queue.database, Scope("acme"), Filter()) == 0
    found = []
    for offset in range(0, 6, step):
        rows = await dead_letter_queries.dead_letters(
            queue.database, DEFAULT_SCOPE, which, limit=step, offset=offset
        )
        found += [row["failed_at"] for row in rows]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 6
    some = Filter(queue="orders", partition="x", start=found[-1], end=found[0])
    rows = await dead_letter_queries.dead_letters(queue.database, DEFAULT_SCOPE, some, limit=10, offset=0)
    assert {row["partition"] for row in rows} == {"x"}
    assert await dead_letter_queries.total(queue.database, DEFAULT_SCOPE, some) == len(rows)
    assert all(found[-1] <= row["failed_at"] < found[0] for row in rows)
    await queue.database.fetch("DELETE FROM dead_letters WHERE message_offset = 0")
    assert await dead_letter_queries.total(queue.database, DEFAULT_SCOPE, Filter()) == 8
