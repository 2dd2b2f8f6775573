"""Edge cases of the log where two rules meet: acks out of order, expired leases, combined options."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from penstock.durable import log
from penstock.durable.log import Ack, PopRequest
from penstock.durable.pool import Database
from penstock.ids import new_id
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.waiting import wait_until_async


async def finish_out_of_order(queue: QueueUnderTest, count: int, *indexes: int) -> None:
    """Push `count` messages, finish those at `indexes` and let the lease expire."""
    await queue.push(*(str(n) for n in range(count)))
    await queue.ack(await queue.pop(count), "completed", *indexes)
    queue.later(1_000)


async def test_auto_ack_skips_messages_finished_earlier(queue: QueueUnderTest) -> None:
    await finish_out_of_order(queue, 4, 1)
    assert (await queue.pop(4, auto_ack=True)).payloads == ["0"], "one by one after the lost lease"
    assert (await queue.pop(1)).payloads == ["2"]
    assert await queue.depth() == (1, 1), "only 2 and 3 are unfinished"


async def test_a_finished_message_never_becomes_a_dead_letter(queue: QueueUnderTest) -> None:
    await queue.configure(retry_limit=0)
    await finish_out_of_order(queue, 2, 1)
    assert (await queue.pop(auto_ack=True)).payloads == ["0"]
    for _ in range(3):
        assert (await queue.pop()).payloads == []
        queue.later(1_000)
    assert await queue.dead() == []


async def test_a_message_is_acked_once_under_a_lease(queue: QueueUnderTest) -> None:
    await queue.configure(retry_limit=1, retry_delay_ms=500)
    await queue.push("a", "b", "c")
    delivery = await queue.pop(3)
    await queue.ack(delivery, "completed", 0)
    for status in ("completed", "failed", "dlq", "retry"):
        [again] = await queue.ack(delivery, status, 0)
        assert again.outcome == "not_leased"
    [failed] = await queue.ack(delivery, "failed", 1)
    [again] = await queue.ack(delivery, "failed", 1)
    assert (failed.outcome, again.outcome) == ("failed", "not_leased"), "one delivery is one attempt"
    await queue.ack(delivery, "completed", 2)
    queue.later(500)
    assert (await queue.pop(3)).messages[0][4] == 1
    assert await queue.dead() == []


async def test_a_late_ack_of_a_finished_message_delays_nothing(queue: QueueUnderTest) -> None:
    await queue.configure(retry_delay_ms=500)
    await queue.push("a", "b", "c")
    delivery = await queue.pop(2)
    await queue.ack(delivery, "completed", 0)
    await queue.ack(delivery, "failed", 0)
    await queue.ack(delivery, "completed", 1)
    assert (await queue.pop()).payloads == ["c"]


async def test_of_contradicting_acks_in_one_call_the_first_counts(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop(2)
    ids = await queue.group()
    acks = [
        Ack(
            delivery.messages[index][0],
            ids.group_id,
            delivery.lease_id,
            delivery.messages[index][2],
            status,
            None,
        )
        for index, status in ((0, "completed"), (0, "dlq"), (1, "dlq"), (1, "completed"), (1, "failed"))
    ]
    results = await log.ack(queue.database, acks, queue.now)
    assert [r.outcome for r in results] == ["completed", "not_leased", "dead", "not_leased", "not_leased"]
    assert [payload for payload, _, _ in await queue.dead()] == ["b"]


async def test_an_ack_without_a_lease_is_refused_by_the_database_too(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop(auto_ack=True)
    ids = await queue.group()
    partition_id, _, transaction_id, _, _ = delivery.messages[0]
    no_lease: uuid.UUID = None  # type: ignore[assignment]  # the database must refuse it too
    acks = [Ack(partition_id, ids.group_id, no_lease, transaction_id, "dlq", None)]
    [result] = await log.ack(queue.database, acks, queue.now)
    assert result.outcome == "lease_lost"
    assert await queue.dead() == []


async def test_an_expired_message_finished_earlier_is_not_expired_too(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=2_000)
    await finish_out_of_order(queue, 3, 1)
    queue.later(1_000)
    await queue.push("young")
    delivery = await queue.pop(5)
    assert (delivery.payloads, delivery.expired) == (["young"], 2)
    assert await queue.depth() == (0, 1)


async def test_expiry_moves_the_cursor_past_messages_finished_after_it(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=2_000)
    await queue.push("old")
    queue.later(900)
    await queue.push("young")
    await queue.push("younger")
    await queue.ack(await queue.pop(3), "completed", 1)
    queue.later(1_100)
    delivery = await queue.pop()
    assert (delivery.payloads, delivery.expired) == (["younger"], 1)


async def test_expiry_keeps_the_attempts_of_younger_messages(queue: QueueUnderTest) -> None:
    await queue.configure(ttl_ms=1_500)
    await queue.push("old")
    queue.later(900)
    await queue.push("young")
    delivery = await queue.pop(2)
    await queue.ack(delivery, "failed", 0)
    await queue.ack(delivery, "failed", 1)
    queue.later(600)
    again = await queue.pop(2)
    assert (again.payloads, again.messages[0][4]) == (["young"], 1)


async def test_a_delayed_partition_does_not_delay_another(
    queue: QueueUnderTest,
) -> None:
    await queue.configure(ttl_ms=1_500, delay_ms=1_000)
    await queue.push("old", partition="x")
    queue.later(1)
    await queue.push("ready", partition="y")
    queue.later(1_499)
    await queue.push("held", partition="x")
    queue.later(0)
    delivery = await queue.pop()
    assert (delivery.payloads, delivery.expired) == (["ready"], 1)
    queue.later(1_000)
    assert (await queue.pop()).payloads == ["held"]


async def test_a_pop_that_declares_a_message_dead_still_returns_another(
    queue: QueueUnderTest,
) -> None:
    await queue.configure(retry_limit=0)
    await queue.push("bad", partition="x")
    await queue.pop()
    queue.later(1_000)
    await queue.push("good", partition="y")
    assert (await queue.pop()).payloads == ["good"]
    assert [payload for payload, _, _ in await queue.dead()] == ["bad"]


async def test_a_window_does_not_revive_an_expired_lease(queue: QueueUnderTest) -> None:
    await queue.configure(window_ms=500)
    await queue.push("a")
    queue.later(500)
    delivery = await queue.pop()
    queue.later(1_000)
    await queue.push("b")
    assert (await queue.pop(2)).payloads == [], "held back by the window"
    assert await queue.depth() == (2, 0)
    assert await queue.extend(delivery, 1_000) is None
    [late] = await queue.ack(delivery)
    assert late.outcome == "lease_lost"


async def test_a_duplicate_of_a_refused_message_is_refused(queue: QueueUnderTest) -> None:
    """With the status `duplicate` its producer would believe that the message is stored."""
    await queue.configure(max_size=1)
    pushed = await queue.push("a", "b", "b again", "a again", keys=["a", "b", "b", "a"])
    assert sorted(pushed.duplicates) == [3]
    assert pushed.refused == {1, 2}
    assert (await queue.pop(5)).payloads == ["a"]


@pytest.mark.parametrize("other", ["completed", "dlq"])
async def test_acks_of_several_queues_that_share_a_tally_do_not_deadlock(
    database: Database, other: str
) -> None:
    """Two backends may write the same tally slots. They lock the slots of the queues in one order,
    independent of the order in which partitions were created."""
    await database.fetch(
        "CREATE OR REPLACE FUNCTION tally_slot_v1() RETURNS smallint "
        "LANGUAGE sql STABLE AS 'SELECT 0::smallint'"
    )
    one, two = QueueUnderTest(database, "one"), QueueUnderTest(database, "two")
    first, second = [(one, "p"), (two, "q")], [(two, "r"), (one, "s")]
    acks: list[list[Ack]] = []
    for queue_partitions in (first, second):
        acks.append([])
        for (queue, name), status in zip(queue_partitions, ("completed", other), strict=True):
            await queue.push("m", partition=name)
            delivery = await queue.pop(partition=name)
            partition_id, _, transaction_id, _, _ = delivery.messages[0]
            group_id = (await queue.group()).group_id
            ack = Ack(partition_id, group_id, delivery.lease_id, transaction_id, status, None)
            acks[-1].append(ack)

    async def wait_for_lock_waiters(count: int) -> None:
        async def all_wait() -> bool:
            rows = await database.fetch(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock'"
            )
            return len(rows) == count

        await wait_until_async(all_wait, 10, f"{count} acks wait for a lock")

    async with database.connection() as connection, connection.transaction():
        await connection.fetch(
            "SELECT 1 FROM tallies WHERE group_id = $1 FOR UPDATE", (await one.group()).group_id
        )
        calls = []
        for waiters, call_acks in enumerate(acks, 1):
            calls.append(asyncio.create_task(log.ack(database, call_acks, one.now)))
            await wait_for_lock_waiters(waiters)
    for results in await asyncio.gather(*calls):
        assert [r.outcome in ("completed", "dead") for r in results] == [True, True]


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_partition_is_leased_to_one_of_several_requests(
    queue: QueueUnderTest, auto_ack: bool
) -> None:
    await queue.push("a", "b", "c")
    ids = await queue.group()
    partition_id = (await queue.partition()).partition_id
    rows = await log.pop(
        queue.database,
        ids.group_id,
        [PopRequest(new_id(), 1), PopRequest(new_id(), 1)],
        partition_id=partition_id,
        lease_ms=1_000,
        auto_ack=auto_ack,
        now=queue.now,
    )
    assert [(row["request"], row["payloads"]) for row in rows] == [(1, [b"a"])]
