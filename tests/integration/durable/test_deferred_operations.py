"""Deferred operations are accepted at once and executed later, in order per lane, exactly once."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from datetime import timedelta

import pytest

from penstock.durable import log
from penstock.durable.catalog import QueueCatalog
from penstock.durable.dead_letters.dead_letter_store import Audience, DeadLetterStore
from penstock.durable.deferred_operations import (
    DeferredOperations,
    LaneAcks,
    LaneDepth,
    LanePush,
    PushDeferral,
)
from penstock.durable.log import Ack, Segment
from penstock.durable.pool import Database
from penstock.errors import TransactionFailed
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.dead_letters.dead_letter_steps import dead_letter_ids
from tests.integration.durable.queue_under_test import Delivery, QueueUnderTest


async def new_push(
    queue: QueueUnderTest, *payloads: str, partition: str = "Default", keys: list[str | None] | None = None
) -> LanePush:
    return LanePush(new_id(), await queue.segment(payloads, partition, keys))


async def defer_push(
    queue: QueueUnderTest, *payloads: str, partition: str = "Default", keys: list[str | None] | None = None
) -> uuid.UUID:
    operation = await new_push(queue, *payloads, partition=partition, keys=keys)
    deferral = await defer(queue, operation)
    assert not deferral.duplicates
    assert not deferral.refused
    [place] = deferral.places
    assert place
    return operation.id


async def defer(queue: QueueUnderTest, *operations: LanePush) -> PushDeferral:
    return await DeferredOperations(queue.database).defer_pushes(operations, "system_busy", queue.now)


async def defer_ack(
    queue: QueueUnderTest, delivery: Delivery, *which: int, status: str = "completed"
) -> uuid.UUID:
    ids = await queue.group()
    chosen = [delivery.messages[i] for i in which] if which else delivery.messages
    acks = [
        Ack(partition_id, ids.group_id, delivery.lease_id, transaction_id, status, None)
        for partition_id, _, transaction_id, _, _ in chosen
    ]
    operation = LaneAcks(new_id(), chosen[0][0], acks)
    places, refused = await DeferredOperations(queue.database).defer_acks(
        [operation], "system_busy", 600_000, queue.now
    )
    assert (places, refused) == ([1], set())
    return operation.id


async def drain(queue: QueueUnderTest, kind: str = "push", lanes: int = 10, each: int = 100) -> int:
    done = await DeferredOperations(queue.database).drain(kind, lanes=lanes, operations=each, now=queue.now)
    return sum(one.operations for one in done)


async def drain_one_by_one(queue: QueueUnderTest, *, attempts: int = 3, hold: bool = False) -> list[str]:
    done = await DeferredOperations(queue.database).drain_one_by_one(
        "push", lanes=10, attempts=attempts, backoff_ms=100, hold=hold, now=queue.now
    )
    return [one.outcome for one in done]


async def status(queue: QueueUnderTest, operation_id: uuid.UUID) -> str | None:
    row = await DeferredOperations(queue.database).get(DEFAULT_SCOPE, operation_id)
    return row.status if row else None


async def test_a_push_joins_a_lane_with_waiting_operations(queue: QueueUnderTest) -> None:
    await queue.push("a")
    await defer_push(queue, "b")
    assert (await queue.push("never")).first_offsets == [-1]
    await defer_push(queue, "c")
    assert (await queue.pop(10)).payloads == ["a"]
    assert await drain(queue) == 2
    await queue.push("d")
    queue.later(1_000)
    assert (await queue.pop(10)).payloads == ["a"]  # one message alone after a lease expired
    rows = await queue.database.fetch("SELECT payloads FROM log ORDER BY first_offset")
    assert [p.decode() for row in rows for p in row["payloads"]] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_only_partitions_with_a_waiting_lane_are_left_out_of_a_push(
    queue: QueueUnderTest, keyed: bool
) -> None:
    await defer_push(queue, "x1", partition="x")
    ids = [(await queue.partition(name)).partition_id for name in ("w", "x", "y")]
    keys: list[str | None] = ["k1", "k2"] if keyed else [None, None]
    segments = [
        Segment(partition, [str(new_id()) for _ in keys], list(keys), [None, None], [b"1", b"2"])
        for partition in (*ids, 999_999)
    ]
    if keyed:
        segments[2].transaction_ids = ["k1", "k1"]
    pushed = await log.push(queue.database, segments, queue.now)
    assert pushed.first_offsets == [0, -1, 0, None]
    assert set(pushed.duplicates) == ({5} if keyed else set())
    if keyed:
        assert str(pushed.duplicates[5]) == segments[2].message_ids[0]


async def test_a_lane_is_drained_in_order_for_any_batch_size(queue: QueueUnderTest) -> None:
    rng = random.Random(7)
    expected = []
    for number in range(30):
        names = [f"{number}.{i}" for i in range(rng.randint(1, 3))]
        expected += names
        await defer_push(queue, *names)
    assert await drain(queue, each=7) == 7
    assert await drain(queue, each=100) == 23
    assert (await queue.pop(100)).payloads == expected
    assert (await DeferredOperations(queue.database).depths())["push"] == LaneDepth(0, 30)
    assert await queue.database.fetch("SELECT 1 FROM lanes") == []


async def test_one_transaction_executes_a_bounded_number_of_messages(queue: QueueUnderTest) -> None:
    numbers = [str(number) for number in range(9_000)]
    for start in range(0, 9_000, 3_000):
        await defer_push(queue, *numbers[start : start + 3_000])
        await defer_push(queue, *numbers[start : start + 3_000], partition="other")
    assert await drain(queue) == 4
    assert await drain(queue) == 2
    for partition in ("Default", "other"):
        assert (await queue.pop(10_000, partition=partition)).payloads == numbers


async def test_two_drains_never_work_on_one_lane(queue: QueueUnderTest) -> None:
    for number in range(40):
        await defer_push(queue, str(number), partition=f"p{number % 4}")

    async def drain_all() -> int:
        total = 0
        while drained := await drain(queue, lanes=2, each=1):
            total += drained
        return total

    assert sum(await asyncio.gather(*(drain_all() for _ in range(5)))) == 40
    for index in range(4):
        delivery = await queue.pop(100, partition=f"p{index}")
        assert delivery.payloads == [str(number) for number in range(index, 40, 4)]


async def test_concurrent_pushes_deferrals_and_drains_keep_order_and_lose_nothing(
    queue: QueueUnderTest,
) -> None:
    """Each producer sends its next message when the last one was accepted, directly or deferred."""
    stop = asyncio.Event()
    await queue.partition("a")
    await queue.partition("b")

    async def produce(producer: int) -> None:
        rng = random.Random(producer)
        for number in range(30):
            partition, name = rng.choice("ab"), f"{producer}:{number}"
            if rng.random() < 0.3 or (await queue.push(name, partition=partition)).first_offsets == [-1]:
                await defer_push(queue, name, partition=partition)

    async def keep_draining() -> None:
        while not stop.is_set():
            await drain(queue, lanes=2, each=3)

    drains = [asyncio.create_task(keep_draining()) for _ in range(2)]
    await asyncio.gather(*(produce(producer) for producer in range(6)))
    stop.set()
    await asyncio.gather(*drains)
    await drain(queue)
    received: list[str] = []
    for partition in "ab":
        payloads = (await queue.pop(1_000, partition=partition)).payloads
        received += payloads
        for producer in range(6):
            own = [int(p.split(":")[1]) for p in payloads if p.startswith(f"{producer}:")]
            assert own == sorted(own)
    assert sorted(received) == sorted(f"{producer}:{number}" for producer in range(6) for number in range(30))


async def test_duplicates_of_stored_messages_are_not_deferred(queue: QueueUnderTest) -> None:
    await queue.push("first", keys=["k"])
    [[original]] = await queue.database.fetch("SELECT message_ids[1] FROM log")
    all_duplicate = await new_push(queue, "again", keys=["k"])
    mixed = await new_push(queue, "a", "again", "b", "a again", keys=["a", "k", None, "a"])
    elsewhere = await new_push(queue, "no duplicate", partition="other", keys=["k"])
    deferral = await defer(queue, all_duplicate, mixed, elsewhere)
    assert deferral.places == [0, 1, 1]
    first_of_mixed = uuid.UUID(mixed.segment.message_ids[0])
    assert deferral.duplicates == {0: original, 2: original, 4: first_of_mixed}
    assert await DeferredOperations(queue.database).get(DEFAULT_SCOPE, all_duplicate.id) is None
    row = await DeferredOperations(queue.database).get(DEFAULT_SCOPE, mixed.id)
    assert row is not None
    assert (row.items, row.transaction_ids) == (2, ["a", None])
    await drain(queue)
    assert sorted((await queue.pop(10, width=2)).payloads) == ["a", "b", "first", "no duplicate"]


async def test_duplicates_of_deferred_messages_are_found_when_they_are_executed(
    queue: QueueUnderTest,
) -> None:
    first = await new_push(queue, "first", keys=["k"])
    await defer(queue, first)
    operation = await defer_push(queue, "again", "new", keys=["k", "n"])
    await drain(queue)
    row = await DeferredOperations(queue.database).get(DEFAULT_SCOPE, operation)
    assert row is not None
    assert row.result is not None
    assert json.loads(row.result) == {"duplicates": {"0": first.segment.message_ids[0]}}
    assert (await queue.pop(10)).payloads == ["first", "new"]
    assert row.status == "completed"


async def test_messages_that_do_not_fit_are_not_deferred(queue: QueueUnderTest) -> None:
    await queue.configure(max_size=4)
    await queue.push("stored")
    await defer_push(queue, "waits")
    fits = await new_push(queue, "fits", partition="other")
    too_many = await new_push(queue, "fits too", "over", "over again", keys=["f", "o", "o"])
    full = await new_push(queue, "no room")
    deferral = await defer(queue, fits, too_many, full)
    assert deferral == PushDeferral([1, 2, 0], {}, frozenset({2, 3, 4}))
    assert (await queue.push("h", partition="four")).refused == {0}, "accepted messages keep their room"
    await drain(queue)
    assert sorted((await queue.pop(10, width=2)).payloads) == ["fits", "fits too", "stored", "waits"]


async def test_a_deferral_to_a_deleted_queue_accepts_nothing(queue: QueueUnderTest) -> None:
    operation = await new_push(queue, "a", "b", keys=["k", "k"])
    await queue.database.fetch("DELETE FROM queues")
    assert (await defer(queue, operation)).places == [None]


async def test_an_operation_that_cannot_be_executed_fails_and_the_lane_continues(
    queue: QueueUnderTest,
) -> None:
    await queue.push("full")
    poisoned = await defer_push(queue, "no room")
    other = await defer_push(queue, "fine", partition="other")
    await queue.configure(max_size=1)
    with pytest.raises(Exception, match="full"):
        await drain(queue)
    assert await drain_one_by_one(queue, attempts=2) == []
    assert await drain_one_by_one(queue, attempts=2) == []  # it waits for the backoff
    queue.later(100)
    assert await drain_one_by_one(queue, attempts=2) == ["parked", "parked"]
    for operation in (poisoned, other):
        row = await DeferredOperations(queue.database).get(DEFAULT_SCOPE, operation)
        assert row is not None
        assert (row.status, row.attempts) == ("failed", 2)
        assert "full" in str(row.error)
    assert (await DeferredOperations(queue.database).depths())["push"].waiting == 0
    await queue.ack(await queue.pop())
    assert await DeferredOperations(queue.database).retry(poisoned) == "retried"
    assert await DeferredOperations(queue.database).retry(poisoned) == "not_failed"
    assert await drain(queue) == 1
    assert (await queue.pop()).payloads == ["no room"]
    assert await DeferredOperations(queue.database).delete(other) == "failed"
    assert await DeferredOperations(queue.database).delete(other) == "unknown"
    assert await DeferredOperations(queue.database).retry(other) == "unknown"


async def test_a_blocked_lane_waits_for_the_operator(queue: QueueUnderTest) -> None:
    await queue.push("full")
    poisoned = await defer_push(queue, "no room")
    await defer_push(queue, "behind it")
    await queue.configure(max_size=1)
    assert await drain_one_by_one(queue, attempts=1, hold=True) == ["parked"]
    queue.later(3_600_000)
    assert await drain_one_by_one(queue, attempts=1, hold=True) == []
    assert (await queue.push("never")).first_offsets == [-1]
    assert (await DeferredOperations(queue.database).depths())["push"].waiting == 2
    await queue.database.fetch("UPDATE queues SET max_size = 0")
    assert await DeferredOperations(queue.database).delete(poisoned) == "failed"
    assert await drain(queue) == 1
    assert (await queue.push("last")).first_offsets == [2]


async def test_a_deferred_ack_that_arrived_in_time_counts(
    queue: QueueUnderTest,
) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop(2)
    await defer_ack(queue, delivery)
    queue.later(60_000)
    assert (await queue.pop()).payloads == []  # the lease is extended until the ack is executed
    assert await drain(queue, "ack") == 1
    assert await queue.depth() == (0, 0)


async def test_a_lease_gets_back_its_end_after_a_deferred_ack(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop(2)
    queue.later(500)
    await defer_ack(queue, delivery, 0)
    queue.later(100)
    await drain(queue, "ack")
    assert [acked.outcome for acked in await queue.ack(delivery, "completed", 1)] == ["completed"]
    await queue.push("c", "d")
    delivery = await queue.pop(2)
    await defer_ack(queue, delivery, 0)
    await drain(queue, "ack")
    queue.later(1_001)
    assert (await queue.pop()).payloads == ["d"]


async def test_an_ack_whose_lease_is_lost_is_refused_at_once(queue: QueueUnderTest) -> None:
    await queue.push("a")
    delivery = await queue.pop()
    queue.later(1_000)
    ids = await queue.group()
    ack = Ack(
        delivery.messages[0][0], ids.group_id, delivery.lease_id, delivery.messages[0][2], "completed", None
    )
    operation = LaneAcks(new_id(), ack.partition_id, [ack])
    places, refused = await DeferredOperations(queue.database).defer_acks(
        [operation], "system_busy", 1_000, queue.now
    )
    assert (places, refused) == ([None], {0})
    assert await status(queue, operation.id) is None


async def test_deleting_a_queue_deletes_its_operations(queue: QueueUnderTest) -> None:
    await defer_push(queue, "a")
    other = QueueUnderTest(queue.database, "other")
    await defer_push(other, "b")
    await QueueCatalog(queue.database).delete_queue((await queue.group()).queue_id)
    assert (await DeferredOperations(queue.database).depths())["push"].waiting == 1
    assert await drain(queue) == 1
    assert await queue.database.fetch("SELECT 1 FROM lanes") == []


async def test_a_transaction_does_not_overtake_a_lane(queue: QueueUnderTest) -> None:
    await queue.push("a")
    delivery = await queue.pop()
    await defer_push(queue, "first", partition="out")
    with pytest.raises(TransactionFailed) as failed:
        await queue.transaction(["second"], delivery, partition="out")
    assert failed.value.reason == "operations_waiting"
    await drain(queue)
    await queue.transaction(["second"], delivery, partition="out")
    assert (await queue.pop(10, partition="out")).payloads == ["first", "second"]


@pytest.mark.parametrize("audience", ["group", "all"])
async def test_a_dead_letter_is_not_requeued_past_a_lane(queue: QueueUnderTest, audience: Audience) -> None:
    await queue.push("a", keys=["k"])
    await queue.ack(await queue.pop(), "dlq")
    await defer_push(queue, "b")
    ids = await dead_letter_ids(queue.database)
    [requeued] = await DeadLetterStore(queue.database).requeue(ids, audience=audience)
    assert requeued.outcome == "operations_waiting"
    assert len(await queue.dead()) == 1


async def test_a_journal_is_taken_over_once(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    journal = new_id()

    def operation(payload: bytes) -> LanePush:
        return LanePush(new_id(), Segment(ids.partition_id, [str(new_id())], [None], [None], [payload]))

    database = queue.database
    await DeferredOperations(database).take_over_journal(
        journal, 100, [operation(b"a"), operation(b"b")], "database_down"
    )
    assert await DeferredOperations(database).journal_position(journal) == 100
    assert (
        await DeferredOperations(database).take_over_journal(journal, 100, [operation(b"a")], "database_down")
        == []
    )
    await DeferredOperations(database).take_over_journal(journal, 150, [operation(b"c")], "database_down")
    queue.now += timedelta(days=10_000)
    await drain(queue)
    assert (await queue.pop(10)).payloads == ["a", "b", "c"]


async def test_completed_operations_are_deleted_after_their_retention(
    database: Database, queue: QueueUnderTest
) -> None:
    completed, waiting = await defer_push(queue, "a"), await defer_push(queue, "b", partition="later")
    await drain(queue, lanes=1)
    assert await DeferredOperations(database).prune_completed(3600, 100) == 0
    assert await DeferredOperations(database).prune_completed(-1, 100) == 1
    assert (await status(queue, completed), await status(queue, waiting)) == (None, "pending")


async def test_operations_are_listed_by_status_and_queue(database: Database, queue: QueueUnderTest) -> None:
    first, second = await defer_push(queue, "a"), await defer_push(queue, "b", partition="later")
    await drain(queue, lanes=1)

    async def list_ids(**filters: str) -> list[uuid.UUID]:
        rows = await DeferredOperations(database).list_operations(
            DEFAULT_SCOPE,
            queue=filters.get("queue"),
            status=filters.get("status"),
            after=uuid.UUID(filters["after"]) if "after" in filters else None,
            limit=10,
        )
        return [row.id for row in rows]

    assert await list_ids() == [first, second]
    assert await list_ids(status="completed") == [first]
    assert await list_ids(status="pending", queue=queue.name) == [second]
    assert await list_ids(queue="none") == []
    assert await list_ids(after=str(first)) == [second]
