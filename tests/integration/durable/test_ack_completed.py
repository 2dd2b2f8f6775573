"""Acks of one message each, completed: the short way, and what is left to the general one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from penstock.durable import log
from penstock.durable.log import Ack, Acked, PopRequest
from penstock.durable.pool import SESSION, Database
from penstock.ids import new_id
from tests.integration.databases import new_database
from tests.integration.durable.query_plans import DIRECT, Filled, Scan, Watched, fill, traffic
from tests.integration.durable.queue_under_test import Delivery, QueueUnderTest
from tests.waiting import wait_until_async


async def acks_of(queue: QueueUnderTest, *deliveries: Delivery, group: str = "g") -> list[Ack]:
    group_id = (await queue.group(group)).group_id
    return [
        Ack(partition_id, group_id, delivery.lease_id, transaction_id, "completed", None)
        for delivery in deliveries
        for partition_id, _, transaction_id, _, _ in delivery.messages
    ]


async def position(database: Database, ack: Ack) -> asyncpg.Record:
    row = await database.fetchrow(
        "SELECT cursor, ready_at, lease_id FROM positions WHERE partition_id = $1 AND group_id = $2",
        ack.partition_id,
        ack.group_id,
    )
    assert row is not None
    return row


async def waiting_for_a_lock(database: Database, count: int) -> None:
    async def enough() -> bool:
        rows = await database.fetch(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return len(rows) == count

    await wait_until_async(enough, 10, f"{count} acks wait for a lock")


async def test_an_ack_is_told_for_how_long_its_message_was_held(queue: QueueUnderTest) -> None:
    deliveries = []
    for name in "zya":
        await queue.push(name, partition=name)
        deliveries.append(await queue.pop(partition=name))
        queue.later(10)
    acks = await acks_of(queue, *deliveries)
    assert await log.ack_completed(queue.database, acks, queue.now) == [30, 20, 10]
    for ack in acks:
        assert tuple(await position(queue.database, ack)) == (1, queue.now, None)
    assert await queue.depth() == (0, 0)


async def test_whatever_is_not_plain_gets_the_same_answer_as_ever(queue: QueueUnderTest) -> None:
    names = ("plain", "stale", "wrong", "several", "failed")
    for name in names:
        await queue.push(f"{name} 1", f"{name} 2", partition=name)
    stale = await queue.pop(partition="stale")
    queue.later(1_500)
    await queue.pop(partition="stale")
    await queue.ack(await queue.pop(partition="failed"), "failed")
    several = await queue.pop(2, partition="several")
    plain, wrong, failed = [await queue.pop(partition=name) for name in ("plain", "wrong", "failed")]
    acks = await acks_of(queue, stale, several, failed, plain, wrong)
    del acks[2]  # the second of several: the lease goes on without it
    acks[-1] = acks[-1]._replace(transaction_id="another")
    gone = acks[-1]._replace(partition_id=10**9)
    told = await log.ack_completed(queue.database, [*acks, gone], queue.now)
    outcomes = [
        one if isinstance(one, int) else (one.outcome, one.partition, one.lease_released) for one in told
    ]
    assert outcomes == [
        ("lease_lost", None, False),
        ("completed", "several", False),
        ("completed", "failed", True),
        0,
        ("not_leased", "wrong", False),
        ("lease_lost", None, False),
    ]
    # One message of each partition was finished, but of two: and nothing twice.
    assert [(await position(queue.database, ack))["cursor"] for ack in acks] == [0, 1, 1, 1, 0]
    again = await log.ack_completed(queue.database, [*acks, gone], queue.now)
    assert [one.outcome for one in again if isinstance(one, Acked)] == [
        *("lease_lost", "not_leased", "lease_lost", "lease_lost", "not_leased", "lease_lost")
    ]


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("delay_ms", [0, 500])
async def test_a_position_is_ready_when_its_next_message_is(
    queue: QueueUnderTest, together: int, delay_ms: int
) -> None:
    """However many messages a segment has: the next one may be in the same, in another one, or nowhere."""
    await queue.configure(delay_ms=delay_ms)
    pushed_at = []
    for _ in range(6 // together):
        await queue.push(*["m"] * together)
        pushed_at += [queue.now] * together
        queue.later(100)
    queue.later(1_000)
    for offset in range(6):
        [ack] = await acks_of(queue, await queue.pop())
        assert await log.ack_completed(queue.database, [ack], queue.now) == [0]
        next_at = pushed_at[offset + 1] + timedelta(milliseconds=delay_ms) if offset < 5 else queue.now
        assert tuple(await position(queue.database, ack)) == (offset + 1, next_at, None)


async def test_ids_that_clients_chose_are_looked_at(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["mine", None])
    for _ in range(2):
        delivery = await queue.pop()
        [ack] = await acks_of(queue, delivery)
        [wrong] = await log.ack_completed(queue.database, [ack._replace(transaction_id="b")], queue.now)
        assert isinstance(wrong, Acked)
        assert wrong.outcome == "not_leased"
        assert await log.ack_completed(queue.database, [ack], queue.now) == [0]
    assert await queue.depth() == (0, 0)


async def test_an_ack_that_waited_for_its_position_sees_what_became_of_it(queue: QueueUnderTest) -> None:
    """One lease is extended and another one ends, while the acks of both wait."""
    await queue.push("a", partition="a")
    await queue.push("b", partition="b")
    await queue.push("c", partition="c")
    acks = await acks_of(queue, *[await queue.pop(partition=name) for name in "abc"])
    async with queue.database.connection() as other:
        async with other.transaction():
            await other.execute(
                "UPDATE positions SET lease_expires_at = lease_expires_at + interval '1 hour' "
                "WHERE partition_id = $1",
                acks[0].partition_id,
            )
            await other.execute(
                "UPDATE positions SET lease_id = $2 WHERE partition_id = $1", acks[1].partition_id, new_id()
            )
            settling = asyncio.create_task(log.ack_completed(queue.database, acks, queue.now))

            await waiting_for_a_lock(queue.database, 1)
        extended, taken, free = await settling
    assert isinstance(extended, Acked)
    assert (extended.outcome, extended.partition, extended.lease_released) == ("completed", "a", True)
    assert isinstance(taken, Acked)
    assert taken.outcome == "lease_lost"
    assert free == 0
    assert [(await position(queue.database, ack))["cursor"] for ack in acks] == [1, 0, 1]
    assert await queue.depth() == (0, 1)


async def test_messages_of_one_lease_that_are_acked_at_once_are_all_finished(queue: QueueUnderTest) -> None:
    """They are not plain: each must see what the other did."""
    await queue.push("a", "b")
    acks = await acks_of(queue, await queue.pop(2))
    async with queue.database.connection() as other:
        async with other.transaction():
            await other.execute("SELECT 1 FROM positions FOR UPDATE")
            settling = [
                asyncio.create_task(log.ack_completed(queue.database, [ack], queue.now))
                for ack in reversed(acks)
            ]
            await waiting_for_a_lock(queue.database, 2)
        told = [one for result in await asyncio.gather(*settling) for one in result]
    assert [one.outcome for one in told if isinstance(one, Acked)] == ["completed"] * 2
    assert tuple(await position(queue.database, acks[0])) == (2, queue.now, None)
    assert await queue.depth() == (0, 0)


async def test_acks_of_the_same_messages_in_opposite_order_do_not_deadlock(queue: QueueUnderTest) -> None:
    names = [str(number) for number in range(12)]
    for _ in range(10):
        for name in names:
            await queue.push("m", partition=name)
        acks = await acks_of(queue, *[await queue.pop(partition=name) for name in names])
        # Whichever way an ack goes: every other item of each is a stale one, which the other has in force.
        stale = [ack._replace(lease_id=new_id()) for ack in acks]
        one = [acks[i] if i % 2 else stale[i] for i in range(12)]
        two = [stale[i] if i % 2 else acks[i] for i in range(12)]
        results = await asyncio.gather(
            *(
                log.ack_completed(queue.database, some, queue.now)
                for some in (one, two[::-1], acks, acks[::-1])
            )
        )
        settled = [told for result in results for told in result if isinstance(told, int)]
        settled += [told.run_ms or 0 for result in results for told in result
                    if isinstance(told, Acked) and told.outcome == "completed"]  # fmt: skip
        assert len(settled) == len(names)
    assert await queue.depth() == (0, 0)


async def scans_of_plain_acks(filled: Filled) -> list[Scan]:
    """The scans of ten plain acks in one call, once its plans are settled."""
    watched = await Watched.connect(filled.url)
    try:
        calls = await traffic(watched, filled)
        for _ in range(7):
            await calls.push()
            requests = [PopRequest(new_id(), 1) for _ in range(10)]
            rows = await log.pop(watched, filled.group_id, requests, lease_ms=60_000)  # type: ignore[arg-type]
            acks = [
                Ack(
                    row["partition_id"],
                    filled.group_id,
                    requests[row["request"] - 1].lease_id,
                    row["transaction_ids"][0],
                    "completed",
                    None,
                )
                for row in rows
            ]
            watched.take()
            told = await log.ack_completed(watched, acks)  # type: ignore[arg-type]
            assert [type(one) for one in told] == [int] * 10
            found = watched.take()
        return found
    finally:
        await watched.connection.close()


@pytest.mark.parametrize("partitions", [20, 1_000])
async def test_plain_acks_go_by_an_index(postgres_url: str, template: str, partitions: int) -> None:
    async with new_database(postgres_url, template) as url:
        connection = await asyncpg.connect(url, server_settings=SESSION)
        filled = Filled(url, *await fill(connection, partitions=partitions, segments=30, chunks=3))
        await connection.close()
        found = await scans_of_plain_acks(filled)
    assert [scan for scan in found if scan.how not in DIRECT or scan.rows > 40] == []
    assert {scan.table for scan in found} >= {"positions", "log_1", "log_2", "log_3"}
