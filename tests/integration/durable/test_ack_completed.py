"""Acks of completed messages: the fast path, and the cases that the general path handles."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import asyncpg
import pytest

from penstock.durable import log
from penstock.durable.log import Ack, AckReceipt, PopRequest
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


async def ack_completed(database: Database, acks: list[Ack], now: datetime) -> list[int | AckReceipt]:
    """Ack by lease, and return what each ack got."""
    leases = log.group_by_lease(acks)
    assert leases is not None
    results = await log.ack_completed(database, leases, now)
    return [
        result
        for lease, lease_result in zip(leases, results, strict=True)
        for result in (
            [lease_result] * len(lease.transaction_ids) if isinstance(lease_result, int) else lease_result
        )
    ]


async def position(database: Database, ack: Ack) -> asyncpg.Record:
    row = await database.fetchrow(
        "SELECT cursor, ready_at, lease_id FROM positions WHERE partition_id = $1 AND group_id = $2",
        ack.partition_id,
        ack.group_id,
    )
    assert row is not None
    return row


async def wait_for_lock_waiters(database: Database, count: int) -> None:
    async def all_wait() -> bool:
        rows = await database.fetch(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return len(rows) == count

    await wait_until_async(all_wait, 10, f"{count} acks wait for a lock")


async def test_an_ack_returns_how_long_its_message_was_held(queue: QueueUnderTest) -> None:
    deliveries = []
    for name in "zya":
        await queue.push(name, partition=name)
        deliveries.append(await queue.pop(partition=name))
        queue.later(10)
    acks = await acks_of(queue, *deliveries)
    assert await ack_completed(queue.database, acks, queue.now) == [30, 20, 10]
    for ack in acks:
        assert tuple(await position(queue.database, ack)) == (1, queue.now, None)
    assert await queue.depth() == (0, 0)


async def test_acks_off_the_fast_path_have_the_outcomes_of_the_general_path(queue: QueueUnderTest) -> None:
    names = ("fast", "stale", "wrong", "several", "failed")
    for name in names:
        await queue.push(f"{name} 1", f"{name} 2", partition=name)
    stale = await queue.pop(partition="stale")
    queue.later(1_500)
    await queue.pop(partition="stale")
    await queue.ack(await queue.pop(partition="failed"), "failed")
    several = await queue.pop(2, partition="several")
    fast, wrong, failed = [await queue.pop(partition=name) for name in ("fast", "wrong", "failed")]
    acks = await acks_of(queue, stale, several, failed, fast, wrong)
    del acks[2]  # the second of several stays unacked, so the lease stays in force
    acks[-1] = acks[-1]._replace(transaction_id="another")
    deleted = acks[-1]._replace(partition_id=10**9)
    results = await ack_completed(queue.database, [*acks, deleted], queue.now)
    outcomes = [
        result if isinstance(result, int) else (result.outcome, result.partition, result.lease_released)
        for result in results
    ]
    assert outcomes == [
        ("lease_lost", None, False),
        ("completed", "several", False),
        ("completed", "failed", True),
        0,
        ("not_leased", "wrong", False),
        ("lease_lost", None, False),
    ]
    # Each ack finished its message once; the stale and the wrong one finished nothing.
    assert [(await position(queue.database, ack))["cursor"] for ack in acks] == [0, 1, 1, 1, 0]
    repeated = await ack_completed(queue.database, [*acks, deleted], queue.now)
    assert [result.outcome for result in repeated if isinstance(result, AckReceipt)] == [
        *("lease_lost", "not_leased", "lease_lost", "lease_lost", "not_leased", "lease_lost")
    ]


@pytest.mark.parametrize("segment_length", [1, 2, 3])
@pytest.mark.parametrize("delay_ms", [0, 500])
async def test_after_an_ack_a_position_is_ready_when_its_next_message_is(
    queue: QueueUnderTest, segment_length: int, delay_ms: int
) -> None:
    """The next message may be in the same segment, in another one, or missing."""
    await queue.configure(delay_ms=delay_ms)
    pushed_at = []
    for _ in range(6 // segment_length):
        await queue.push(*["m"] * segment_length)
        pushed_at += [queue.now] * segment_length
        queue.later(100)
    queue.later(1_000)
    for offset in range(6):
        [ack] = await acks_of(queue, await queue.pop())
        assert await ack_completed(queue.database, [ack], queue.now) == [0]
        ready_at = pushed_at[offset + 1] + timedelta(milliseconds=delay_ms) if offset < 5 else queue.now
        assert tuple(await position(queue.database, ack)) == (offset + 1, ready_at, None)


@pytest.mark.parametrize("segments", [(6, 4), (3, 3, 3, 1), (1,) * 10, (4, 6)])
@pytest.mark.parametrize("has_own_ids", [False, True])
@pytest.mark.parametrize("delay_ms", [0, 500])
async def test_a_whole_lease_is_acked_at_once(
    queue: QueueUnderTest, segments: tuple[int, ...], has_own_ids: bool, delay_ms: int
) -> None:
    """Leases of three messages begin and end within segments, at their ends, and cover several of them."""
    await queue.configure(delay_ms=delay_ms)
    pushed_at = []
    for number, length in enumerate(segments):
        keys: list[str | None] | None = None
        if has_own_ids:
            keys = [f"{number}-{index}" for index in range(length)]
        await queue.push(*["m"] * length, keys=keys)
        pushed_at += [queue.now] * length
        queue.later(100)
    queue.later(1_000)
    for cursor in (3, 6, 9, 10):
        acks = await acks_of(queue, await queue.pop(3))
        queue.later(20)
        assert await ack_completed(queue.database, acks, queue.now) == [20] * len(acks)
        ready_at = pushed_at[cursor] + timedelta(milliseconds=delay_ms) if cursor < 10 else queue.now
        assert tuple(await position(queue.database, acks[0])) == (cursor, ready_at, None)
    assert await queue.depth() == (0, 0)


async def test_other_acks_of_a_lease_have_the_outcomes_of_the_general_path(queue: QueueUnderTest) -> None:
    """Reversed, a part, one twice, and one of another message."""
    for name in ("reversed", "part", "twice", "other", "mixed ids"):
        keys: list[str | None] | None = ["chosen", None, "too"] if name == "mixed ids" else None
        await queue.push("1", "2", "3", partition=name, keys=keys)
    by_partition = {
        name: await acks_of(queue, await queue.pop(3, partition=name))
        for name in ("reversed", "part", "twice", "other", "mixed ids")
    }
    other = by_partition["other"]
    calls = [
        *reversed(by_partition["reversed"]),
        *by_partition["part"][:2],
        *[by_partition["twice"][index] for index in (0, 0, 1)],
        *[other[0], other[1]._replace(transaction_id="another"), other[2]],
        *by_partition["mixed ids"],
    ]
    results = await ack_completed(queue.database, calls, queue.now)
    outcomes = [
        "fast" if isinstance(result, int) else (result.outcome, result.lease_released) for result in results
    ]
    assert outcomes == [
        *[("completed", True)] * 3,
        *[("completed", False)] * 2,
        *[("completed", False), ("not_leased", False), ("completed", False)],
        *[("completed", False), ("not_leased", False), ("completed", False)],
        *[("completed", True)] * 3,
    ]
    cursors = [(await position(queue.database, acks[0]))["cursor"] for acks in by_partition.values()]
    assert cursors == [3, 2, 2, 1, 3]
    assert await queue.depth() == (0, 4)


async def test_transaction_ids_of_clients_are_compared(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["chosen", None])
    for _ in range(2):
        delivery = await queue.pop()
        [ack] = await acks_of(queue, delivery)
        [wrong] = await ack_completed(queue.database, [ack._replace(transaction_id="b")], queue.now)
        assert isinstance(wrong, AckReceipt)
        assert wrong.outcome == "not_leased"
        assert await ack_completed(queue.database, [ack], queue.now) == [0]
    assert await queue.depth() == (0, 0)


async def test_an_ack_that_waited_for_its_position_reads_it_again(queue: QueueUnderTest) -> None:
    """One lease is extended and another one ends while the acks of both wait."""
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
            acking = asyncio.create_task(ack_completed(queue.database, acks, queue.now))

            await wait_for_lock_waiters(queue.database, 1)
        extended, lost, unchanged = await acking
    assert isinstance(extended, AckReceipt)
    assert (extended.outcome, extended.partition, extended.lease_released) == ("completed", "a", True)
    assert isinstance(lost, AckReceipt)
    assert lost.outcome == "lease_lost"
    assert unchanged == 0
    assert [(await position(queue.database, ack))["cursor"] for ack in acks] == [1, 0, 1]
    assert await queue.depth() == (0, 1)


async def test_concurrent_acks_of_one_lease_finish_all_its_messages(queue: QueueUnderTest) -> None:
    """They are off the fast path: each must see the effect of the other."""
    await queue.push("a", "b")
    acks = await acks_of(queue, await queue.pop(2))
    async with queue.database.connection() as other:
        async with other.transaction():
            await other.execute("SELECT 1 FROM positions FOR UPDATE")
            acking = [
                asyncio.create_task(ack_completed(queue.database, [ack], queue.now)) for ack in reversed(acks)
            ]
            await wait_for_lock_waiters(queue.database, 2)
        results = [result for call in await asyncio.gather(*acking) for result in call]
    assert [result.outcome for result in results if isinstance(result, AckReceipt)] == ["completed"] * 2
    assert tuple(await position(queue.database, acks[0])) == (2, queue.now, None)
    assert await queue.depth() == (0, 0)


async def test_acks_of_the_same_messages_in_opposite_order_do_not_deadlock(queue: QueueUnderTest) -> None:
    names = [str(number) for number in range(12)]
    for _ in range(10):
        for name in names:
            await queue.push("m", partition=name)
        acks = await acks_of(queue, *[await queue.pop(partition=name) for name in names])
        # On both paths: every other item of the first two calls is stale, and is in force in the other call.
        stale = [ack._replace(lease_id=new_id()) for ack in acks]
        odd_in_force = [acks[i] if i % 2 else stale[i] for i in range(12)]
        even_in_force = [stale[i] if i % 2 else acks[i] for i in range(12)]
        results = await asyncio.gather(
            *(
                ack_completed(queue.database, call, queue.now)
                for call in (odd_in_force, even_in_force[::-1], acks, acks[::-1])
            )
        )
        completed = [
            result
            for call in results
            for result in call
            if isinstance(result, int) or result.outcome == "completed"
        ]
        assert len(completed) == len(names)
    assert await queue.depth() == (0, 0)


async def fast_ack_scans(filled: Filled) -> list[Scan]:
    """Return the scans of ten acks on the fast path in one call, once its plans are cached."""
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
            leases = log.group_by_lease(acks)
            assert leases is not None
            results = await log.ack_completed(watched, leases)  # type: ignore[arg-type]
            assert [type(result) for result in results] == [int] * 10
            scans = watched.take()
        return scans
    finally:
        await watched.connection.close()


@pytest.mark.parametrize("partitions", [20, 1_000])
async def test_acks_on_the_fast_path_use_an_index(postgres_url: str, template: str, partitions: int) -> None:
    async with new_database(postgres_url, template) as url:
        connection = await asyncpg.connect(url, server_settings=SESSION)
        filled = Filled(url, *await fill(connection, partitions=partitions, segments=30, chunks=3))
        await connection.close()
        scans = await fast_ack_scans(filled)
    assert [scan for scan in scans if scan.scan_type not in DIRECT or scan.rows > 40] == []
    assert {scan.table for scan in scans} >= {"positions", "log_1", "log_2", "log_3"}
