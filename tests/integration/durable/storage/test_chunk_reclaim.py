"""Chunks without kept messages are emptied and dropped while clients push and pop."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.durable import log
from penstock.durable.cluster_lock import ClusterLock, ResourceBusy
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.durable.storage import chunks, retention
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.integration.durable.queue_under_test import QueueUnderTest, create_group
from tests.integration.durable.storage.chunk_steps import (
    HOUR,
    connected,
    drop_all_messages,
    incompressible_payloads,
    reclaim,
    rotate,
    stages,
    upkeep,
)
from tests.waiting import wait_until_async


async def test_a_chunk_without_kept_messages_is_dropped(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", keys=["k1", "k2", "k3"])
    async with upkeep(queue.database) as session:
        await rotate(session)
        await queue.push("d", keys=["k4"])
        await chunks.reclaim(session, chunks.time_budget(5))
        assert await stages(session) == {1: "counted", 2: "open"}, "all of it is kept"
        await drop_all_messages(queue)
        await reclaim(session, 1)
        assert await stages(session) == {2: "open"}, "the open chunk stays, even if it is empty"
    tables = await queue.database.fetch(
        """SELECT to_regclass('log_1') AS a, to_regclass('message_keys_1') AS b,
                  to_regclass('message_values_1') AS c"""
    )
    assert tuple(tables[0]) == (None, None, None)
    assert [row["id"] for row in await queue.database.fetch("SELECT id FROM chunks")] == [2]
    assert (await queue.push("a", keys=["k1"])).duplicates == {}, "a dropped message can be pushed again"
    assert (await queue.pop(5)).payloads == ["a"]


async def test_rows_of_a_deleted_queue_are_dropped_with_their_chunk(queue: QueueUnderTest) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session:
        await rotate(session)
        await queue.database.fetch("DELETE FROM queues")
        await reclaim(session, 1)


async def test_a_queue_that_keeps_all_messages_does_not_block_reclaiming(database: Database) -> None:
    """Its messages, large ones too, move to the next chunk with their keys, in order."""
    keeper, dropper = QueueUnderTest(database, "keeper"), QueueUnderTest(database, "dropper")
    kept = [f"{n}:" + new_id().hex * (400 if n % 7 == 0 else 1) for n in range(40)]
    await dropper.push(*incompressible_payloads(500))
    for n, payload in enumerate(kept):
        await keeper.push(payload, keys=[f"k{n}"])
        if n == 10:
            held = await keeper.pop(5)
    async with upkeep(database) as session:
        await rotate(session)
        await keeper.push("last")
        await database.fetch(
            "UPDATE queues SET retention_enabled = true, retention_ms = 1 WHERE name = 'dropper'"
        )
        dropper.later(10_000)
        await retention.apply_retention(database, 0, dropper.now)
        await reclaim(session, 1)
        rows = await database.fetch("SELECT DISTINCT chunk FROM log UNION SELECT chunk FROM message_keys")
        assert [row["chunk"] for row in rows] == [2]
        await rotate(session)
        await chunks.reclaim(session, chunks.time_budget(5))
        assert (await stages(session))[2] == "counted"
    assert all(result.outcome == "completed" for result in await keeper.ack(held))
    assert held.payloads + (await keeper.pop(100)).payloads == [*kept, "last"]
    again = await keeper.push("y", "z", keys=["k0", "k39"])
    originals = await database.fetch(
        "SELECT message_ids[1] AS id FROM log WHERE transaction_ids[1] IN ('k0', 'k39')"
    )
    assert set(again.duplicates.values()) == {row["id"] for row in originals}


async def test_a_chunk_that_is_mostly_kept_is_not_moved(database: Database) -> None:
    keeper, dropper = QueueUnderTest(database, "keeper"), QueueUnderTest(database, "dropper")
    await keeper.push("x" * 1000)
    await dropper.push("y" * 100)
    async with upkeep(database) as session:
        await rotate(session)
        await drop_all_messages(dropper)
        await chunks.reclaim(session, chunks.time_budget(5))
        assert await stages(session) == {1: "counted", 2: "open"}


async def test_when_there_are_many_chunks_the_smallest_is_merged_into_the_next(queue: QueueUnderTest) -> None:
    pushed = []
    async with upkeep(queue.database) as session:
        for n in range(chunks.MAX_CHUNKS + 2):
            while await chunks.rotate(session, 1, HOUR) is None:
                payloads = [f"{n}", *incompressible_payloads(20)]
                pushed += payloads
                await queue.push(*payloads)
        await chunks.reclaim(session, chunks.time_budget(30))
        known = [c.chunk for c in await chunks.list_chunks(session)]
        assert len(known) == chunks.MAX_CHUNKS
        assert known[-3:] == [chunks.MAX_CHUNKS + n for n in (1, 2, 3)], "the last ones are the largest"
    assert (await queue.pop(10_000)).payloads == pushed


async def test_a_chunk_is_counted_in_steps(queue: QueueUnderTest) -> None:
    for n in range(60):
        await queue.push(secrets.token_urlsafe(1000), partition=f"p{n % 2}")
    async with upkeep(queue.database) as session:
        await rotate(session)
        reached_stages: list[str] = []
        while not reached_stages or reached_stages[-1] == "closed":
            row = await session.fetchrow("SELECT count_chunk_v1(1, 3) AS stage")
            assert row is not None
            reached_stages.append(row["stage"])
        assert len(reached_stages) > 3
        assert reached_stages[-1] == "counted"
        [first, _] = await chunks.list_chunks(session)
    assert first.kept_bytes == first.held_bytes
    rows = await queue.database.fetch("SELECT first_offset, last_offset FROM spans")
    assert [tuple(row) for row in rows] == [(0, 29), (0, 29)]


async def test_emptying_continues_where_it_stopped(queue: QueueUnderTest) -> None:
    """Also in another session, as after a crash, and with small steps."""
    for n in range(300):
        await queue.push(f"{n} " + "x" * 300, partition=f"p{n % 3}", keys=[f"k{n}"])
    async with upkeep(queue.database) as session:
        await rotate(session)
        await chunks.reclaim(session, chunks.time_budget(5))
        steps = 0
        stage = ""
        while stage != "doomed":
            row = await session.fetchrow("SELECT empty_chunk_v1(1, 5000, 1) AS stage")
            assert row is not None
            stage = row["stage"]
            steps += 1
            if steps == 10:
                break
        assert stage == "emptying"
    async with upkeep(queue.database) as session:
        await reclaim(session, 1)
    for name in ("p0", "p1", "p2"):
        payloads = (await queue.pop(200, partition=name)).payloads
        assert [int(payload.split()[0]) for payload in payloads] == list(range(int(name[1]), 300, 3))


async def test_a_message_deleted_while_it_moves_loses_its_payload(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    await queue.push("secret", "other", keys=["k1", "k2"])
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        await chunks.reclaim(session, chunks.time_budget(5))
        moving = connection.transaction()
        await moving.start()
        await connection.execute("SELECT empty_chunk_v1(1, 100000, 100)")
        deleting = asyncio.create_task(
            queue.database.fetch("SELECT delete_message_v1($1, 'k1')", ids.partition_id)
        )

        async def is_blocked() -> bool:
            blocked = await session.fetch(
                "SELECT 1 FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
            )
            return bool(blocked)

        await wait_until_async(is_blocked, 10, "the deletion waits for the move")
        await moving.commit()
        await deleting
        await reclaim(session, 1)
    [row] = await queue.database.fetch("SELECT payloads FROM log")
    assert row["payloads"] == [b"null", b"other"]
    assert (await queue.pop(5)).payloads == ["other"]


async def test_a_snapshot_from_before_a_move_still_sees_all_messages(queue: QueueUnderTest) -> None:
    await queue.push(*"abc")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        await chunks.reclaim(session, chunks.time_budget(5))
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT 1 FROM queues")
            for _ in range(10):
                if await stages(session) == {1: "doomed", 2: "open"}:
                    break
                await session.fetch("SELECT empty_chunk_v1(1, 100000, 100)")
            await chunks.reclaim(session, chunks.time_budget(5))
            assert await stages(session) == {1: "doomed", 2: "open"}
            assert await connection.fetchval("SELECT sum(cardinality(payloads)) FROM log") == 3
        await reclaim(session, 1)
    assert (await queue.pop(5)).payloads == ["a", "b", "c"]


async def test_an_idle_transaction_does_not_block_the_drop_of_an_empty_chunk(
    queue: QueueUnderTest,
) -> None:
    """No row was moved, so no old snapshot needs the chunk: space is freed even while vacuum is blocked."""
    await queue.push("a")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT 1 FROM queues")
            await drop_all_messages(queue)
            await reclaim(session, 1)


async def test_a_long_reader_keeps_its_chunk_and_delays_no_push(queue: QueueUnderTest) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        await drop_all_messages(queue)
        async with connection.transaction():
            await connection.fetch("SELECT count(*) FROM log")
            await session.fetch(
                "UPDATE chunk_stages SET stage = 'doomed', blocking_transactions = '{}' WHERE chunk = 1"
            )
            slowest = await slowest_push(queue, try_to_drop(session))
            assert slowest < deadline_s(2), "a push never waits for longer than the drop does"
            assert 1 in await stages(session)
        await reclaim(session, 1)


async def try_to_drop(session: ClusterLock) -> None:
    """Try to drop chunk 1 until its reader is older than a second: then drop_chunk_v1 no longer tries."""
    timeouts = 0
    deadline = time.monotonic() + deadline_s(10)
    while time.monotonic() < deadline:
        try:
            row = await session.fetchrow("SELECT drop_chunk_v1(1) AS dropped")
            assert row is not None
            assert row["dropped"] in (None, "message_values_1", "message_keys_1")
            if row["dropped"] is None:
                assert timeouts, "at first it gives up after 50 ms"
                return
        except ResourceBusy:
            timeouts += 1
    raise AssertionError("drop_chunk_v1 never stopped trying")


async def slowest_push(queue: QueueUnderTest, work: Coroutine[Any, Any, None]) -> float:
    """Return the duration of the slowest push while `work` ran."""
    task = asyncio.create_task(work)
    slowest = 0.0
    while not task.done():
        started = time.monotonic()
        await queue.push("a", partition="busy")
        slowest = max(slowest, time.monotonic() - started)
    await task
    return slowest


async def test_dropping_a_chunk_delays_pushes_briefly(queue: QueueUnderTest) -> None:
    await queue.push(*incompressible_payloads(3000))

    async def idle_queries() -> None:
        for _ in range(20):
            await queue.database.fetch("SELECT 1")

    async with upkeep(queue.database) as session:
        await rotate(session)
        await drop_all_messages(queue)
        usual = await slowest_push(queue, idle_queries())
        slowest = await slowest_push(queue, reclaim(session, 1))
    assert slowest < usual + deadline_s(1)


@pytest.mark.parametrize("keyed", [False, True])
async def test_no_message_is_lost_repeated_or_reordered_while_chunks_are_rotated(
    database: Database, keyed: bool
) -> None:
    """Producers and consumers work while chunks are opened, emptied and dropped all the time."""
    names = [PartitionName("busy" if n % 3 else "kept", f"p{n}") for n in range(6)]
    ids = await log.ensure_partitions(database, DEFAULT_SCOPE, names)
    groups = {q: await create_group(database, q) for q in ("busy", "kept")}
    await database.fetch(
        "UPDATE queues SET retention_enabled = true, completed_retention_ms = 1 WHERE name = 'busy'"
    )
    received: dict[int, list[int]] = {ids[name].partition_id: [] for name in names}
    dropped = opened = 0
    working = True

    async def produce(name: PartitionName) -> None:
        n = 0
        while opened < 6 or dropped < 3:
            numbers = range(n, n + 3)
            payloads = [str(number).encode() + b" " * 2000 for number in numbers]
            keys = [f"{number}" if keyed else None for number in numbers]
            message_ids = [str(new_id()) for _ in numbers]
            segment = Segment(ids[name].partition_id, message_ids, keys, [None] * 3, payloads)
            pushed = await log.push(database, [segment])
            assert pushed.duplicates == {}
            n += 3
        sent[ids[name].partition_id] = n

    async def consume(queue: str) -> None:
        group_id = groups[queue].group_id
        while any(len(numbers) < sent.get(p, 10**9) for p, numbers in received.items() if queues[p] == queue):
            lease_id = new_id()
            rows = await log.pop(database, group_id, [PopRequest(lease_id, 10, 2)], lease_ms=60_000)
            leased = {row["partition_id"]: row["leased_to"] - row["leased_from"] for row in rows}
            assert sum(leased.values()) == sum(len(row["message_ids"]) for row in rows)
            acks = []
            for row in rows:
                for index, message_id in enumerate(row["message_ids"]):
                    received[row["partition_id"]].append(int(row["payloads"][index]))
                    key = row["transaction_ids"][index] if keyed else str(message_id)
                    acks.append(Ack(row["partition_id"], group_id, lease_id, key, "completed", None))
            assert {a.outcome for a in await log.ack(database, acks)} <= {"completed"}

    async def maintain(session: ClusterLock) -> None:
        nonlocal dropped, opened
        while working:
            opened += await chunks.rotate(session, 1, HOUR) is not None
            await retention.apply_retention(session, 0)
            try:
                dropped += (await chunks.reclaim(session, chunks.time_budget(0.3))).dropped
            except ResourceBusy:
                continue

    queues = {ids[name].partition_id: name.queue for name in names}
    sent: dict[int, int] = {}
    async with upkeep(database) as session:
        maintenance = asyncio.create_task(maintain(session))
        try:
            work = asyncio.gather(*map(produce, names), consume("busy"), consume("kept"))
            await asyncio.wait_for(work, deadline_s(120))
        finally:
            working = False
            await maintenance
    assert received == {partition_id: list(range(n)) for partition_id, n in sent.items()}
    rows = await database.fetch(
        """SELECT t.id, sum(cardinality(l.payloads))::bigint AS stored
           FROM partitions t JOIN queues q ON q.id = t.queue_id AND q.name = 'kept'
           JOIN log l ON l.partition_id = t.id GROUP BY t.id"""
    )
    assert {row["id"]: row["stored"] for row in rows} == {
        p: n for p, n in sent.items() if queues[p] == "kept"
    }
