"""The log in chunks: opened, closed, emptied and dropped while everybody works."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from penstock.durable import log
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.maintenance_lock import Busy, Upkeep
from penstock.durable.pool import Database
from penstock.durable.storage import chunks, retention
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.waiting import wait_until_async

HOUR = timedelta(hours=1)


@asynccontextmanager
async def upkeep(database: Database) -> AsyncIterator[Upkeep]:
    session = await Upkeep.begin(database.url)
    assert session is not None
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(database.url, server_settings={"search_path": "penstock"})
    try:
        yield connection
    finally:
        await connection.close()


async def rotate(session: Upkeep) -> int:
    """Open a chunk, whatever the last one holds."""

    async def opened() -> int | None:
        return await chunks.rotate(session, 1, HOUR)

    return await wait_until_async(opened, 10, "a chunk is opened")


async def reclaim(session: Upkeep, *dropped: int) -> None:
    """Reclaim until these chunks are gone."""

    async def gone() -> bool:
        await chunks.reclaim(session, chunks.after(5))
        return not {c.chunk for c in await chunks.chunks(session)} & set(dropped)

    await wait_until_async(gone, 10, f"chunks {dropped} are dropped")


async def stages(session: Upkeep) -> dict[int, str]:
    return {c.chunk: c.stage for c in await chunks.chunks(session)}


def noise(count: int) -> list[str]:
    """Payloads of 2 kB that do not compress."""
    return [secrets.token_urlsafe(1500) for _ in range(count)]


async def let_go_of_all(queue: QueueUnderTest) -> None:
    """Everything there is becomes past its time."""
    await queue.configure(retention_enabled=True, retention_ms=1)
    queue.later(10_000)
    await retention.retain(queue.database, 0, queue.now)


async def test_a_chunk_is_closed_when_it_is_large_or_old(queue: QueueUnderTest) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session:
        [first] = await chunks.chunks(session)
        assert first.opened_at is not None
        soon, late = first.opened_at + HOUR / 2, first.opened_at + HOUR
        size = first.size_bytes
        assert await chunks.rotate(session, size + 1, HOUR, soon) is None
        assert await chunks.rotate(session, size * 17, HOUR, late) is None, (
            "too small to be closed for its age"
        )
        assert await chunks.rotate(session, size, HOUR, soon) == 2
        assert await chunks.rotate(session, size + 1, HOUR, late) is None, "the new one is not"
        assert await chunks.rotate(session, size + 1, HOUR, late + HOUR) == 3
        assert await stages(session) == {1: "closed", 2: "closed", 3: "open"}


async def test_a_chunk_is_not_closed_before_it_holds_its_share_of_the_log(queue: QueueUnderTest) -> None:
    await queue.push(*noise(500))
    async with upkeep(queue.database) as session:
        assert await rotate(session) == 2
        await queue.push(*noise(200))
        assert await chunks.rotate(session, 1, HOUR) is None
        await queue.push(*noise(100))
        assert await chunks.rotate(session, 1, HOUR) == 3


async def test_a_later_chunk_is_made_like_the_first(queue: QueueUnderTest) -> None:
    async with upkeep(queue.database) as session:
        await queue.push("a")
        await rotate(session)
    rows = await queue.database.fetch(
        """SELECT c.relname::text AS name,
                  array(SELECT unnest(c.reloptions || t.reloptions) ORDER BY 1) AS options,
                  array(SELECT (a.attname::text, a.attstorage, a.attcompression, a.attstattarget)::text
                        FROM pg_attribute a
                        WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum) AS columns,
                  array(SELECT regexp_replace(pg_get_indexdef(i.indexrelid), '_[12]', '', 'g')
                        FROM pg_index i WHERE i.indrelid = c.oid ORDER BY 1) AS indexes
           FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
           WHERE c.relname ~ '^(log|message_keys)_[12]$'"""
    )
    found = {row["name"]: (row["options"], row["columns"], row["indexes"]) for row in rows}
    assert found["log_2"] == found["log_1"]
    assert found["message_keys_2"] == found["message_keys_1"]


async def test_messages_are_found_in_whichever_chunk_they_are(queue: QueueUnderTest) -> None:
    async with upkeep(queue.database) as session:
        await queue.push("a", "b", keys=["k1", "k2"])
        await rotate(session)
        await queue.push("c", keys=["k3"])
        await rotate(session)
        await queue.push("d")
    again = await queue.push("x", "y", keys=["k2", "k3"])
    assert sorted(again.duplicates) == [0, 1]
    assert (await queue.pop(5)).payloads == ["a", "b", "c", "d"]


async def test_a_chunk_is_not_opened_before_those_who_cannot_know_it_have_ended(
    queue: QueueUnderTest,
) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        busy = connection.transaction()
        await busy.start()
        await connection.execute("SELECT * FROM partitions FOR NO KEY UPDATE")
        for _ in range(3):
            assert await chunks.rotate(session, 1, HOUR) is None
        assert await stages(session) == {1: "open", 2: "spare"}
        await busy.commit()
        await rotate(session)
        assert await stages(session) == {1: "closed", 2: "open"}


async def test_a_plan_that_was_being_made_when_a_chunk_was_attached_does_not_hide_it(
    queue: QueueUnderTest,
) -> None:
    """PostgreSQL keeps such a plan although it lacks the table, if it reads the log by way of a function."""
    await queue.partition()
    await queue.database.fetch(
        """CREATE FUNCTION slow_to_plan() RETURNS int LANGUAGE plpgsql STABLE AS
           'BEGIN PERFORM pg_advisory_lock_shared(1); PERFORM pg_advisory_unlock_shared(1); RETURN 0; END'"""
    )
    await queue.database.fetch(
        """CREATE FUNCTION stored() RETURNS SETOF log LANGUAGE sql STABLE AS
           'SELECT * FROM log WHERE partition_id <> slow_to_plan()'"""
    )
    await queue.database.fetch(
        """CREATE FUNCTION count_stored() RETURNS bigint LANGUAGE plpgsql AS
           'BEGIN RETURN (SELECT count(*) FROM stored()); END'"""
    )
    async with (
        upkeep(queue.database) as session,
        connected(queue.database) as planner,
        connected(queue.database) as brake,
    ):
        await brake.execute("SELECT pg_advisory_lock(1)")
        planning = asyncio.create_task(planner.fetchval("SELECT count_stored()"))

        async def waits() -> list[object]:
            return await session.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

        await wait_until_async(waits, 10, "the plan is being made")
        assert await chunks.rotate(session, 1, HOUR) is None
        await brake.execute("SELECT pg_advisory_unlock(1)")
        assert await planning == 0
        assert await rotate(session) == 2
        await queue.push("a")
        assert await planner.fetchval("SELECT count_stored()") == 1


async def test_a_closed_chunk_is_left_alone_while_a_push_to_it_is_under_way(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        busy = connection.transaction()
        await busy.start()
        segment = Segment(ids.partition_id, [new_id()], [None], [None], [b"late"])
        await log.push(connection, [segment], queue.now)  # type: ignore[arg-type]
        await session.fetch("SELECT prepare_chunk_v1(1, '1 hour')")
        for _ in range(2):
            await session.fetch(
                "UPDATE chunk_stages SET blocking_transactions = '{}' WHERE stage IN ('spare', 'announced')"
            )
            await session.fetch("SELECT open_chunk_v1()")
        await session.fetch("SELECT close_chunks_v1()")
        await chunks.reclaim(session, chunks.after(5))
        assert await stages(session) == {1: "closed", 2: "open"}
        await busy.commit()
        await chunks.reclaim(session, chunks.after(5))
        assert await stages(session) == {1: "counted", 2: "open"}
    assert (await queue.pop(5)).payloads == ["late"]


async def test_a_chunk_nobody_keeps_anything_of_is_dropped_whole(queue: QueueUnderTest) -> None:
    await queue.push(*"abc", keys=["k1", "k2", "k3"])
    async with upkeep(queue.database) as session:
        await rotate(session)
        await queue.push("d", keys=["k4"])
        await chunks.reclaim(session, chunks.after(5))
        assert await stages(session) == {1: "counted", 2: "open"}, "it is all kept"
        await let_go_of_all(queue)
        await reclaim(session, 1)
        assert await stages(session) == {2: "open"}, "the open one stays, whatever it holds"
    tables = await queue.database.fetch(
        "SELECT to_regclass('log_1') AS a, to_regclass('message_keys_1') AS b"
    )
    assert tuple(tables[0]) == (None, None)
    assert [row["id"] for row in await queue.database.fetch("SELECT id FROM chunks")] == [2]
    assert (await queue.push("a", keys=["k1"])).duplicates == {}, "a message that is gone can be pushed again"
    assert (await queue.pop(5)).payloads == ["a"]


async def test_what_a_deleted_queue_leaves_goes_with_its_chunk(queue: QueueUnderTest) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session:
        await rotate(session)
        await queue.database.fetch("DELETE FROM queues")
        await reclaim(session, 1)


async def test_a_queue_that_keeps_everything_does_not_pin_its_neighbours(database: Database) -> None:
    """Its messages, large ones too, move to the next chunk with their keys, in order."""
    keeper, passer = QueueUnderTest(database, "keeper"), QueueUnderTest(database, "passer")
    kept = [f"{n}:" + new_id().hex * (400 if n % 7 == 0 else 1) for n in range(40)]
    await passer.push(*noise(500))
    for n, payload in enumerate(kept):
        await keeper.push(payload, keys=[f"k{n}"])
        if n == 10:
            held = await keeper.pop(5)
    async with upkeep(database) as session:
        await rotate(session)
        await keeper.push("last")
        await database.fetch(
            "UPDATE queues SET retention_enabled = true, retention_ms = 1 WHERE name = 'passer'"
        )
        passer.later(10_000)
        await retention.retain(database, 0, passer.now)
        await reclaim(session, 1)
        rows = await database.fetch("SELECT DISTINCT chunk FROM log UNION SELECT chunk FROM message_keys")
        assert [row["chunk"] for row in rows] == [2]
        await rotate(session)
        await chunks.reclaim(session, chunks.after(5))
        assert (await stages(session))[2] == "counted"
    assert all(result.outcome == "completed" for result in await keeper.ack(held))
    assert held.payloads + (await keeper.pop(100)).payloads == [*kept, "last"]
    again = await keeper.push("y", "z", keys=["k0", "k39"])
    originals = await database.fetch(
        "SELECT message_ids[1] AS id FROM log WHERE transaction_ids[1] IN ('k0', 'k39')"
    )
    assert set(again.duplicates.values()) == {row["id"] for row in originals}


async def test_a_chunk_most_of_which_is_kept_is_not_moved(database: Database) -> None:
    keeper, passer = QueueUnderTest(database, "keeper"), QueueUnderTest(database, "passer")
    await keeper.push("x" * 1000)
    await passer.push("y" * 100)
    async with upkeep(database) as session:
        await rotate(session)
        await let_go_of_all(passer)
        await chunks.reclaim(session, chunks.after(5))
        assert await stages(session) == {1: "counted", 2: "open"}


async def test_when_there_are_many_chunks_the_smallest_is_merged_into_the_next(queue: QueueUnderTest) -> None:
    pushed = []
    async with upkeep(queue.database) as session:
        for n in range(chunks.MOST_CHUNKS + 2):
            while await chunks.rotate(session, 1, HOUR) is None:
                payloads = [f"{n}", *noise(20)]
                pushed += payloads
                await queue.push(*payloads)
        await chunks.reclaim(session, chunks.after(30))
        known = [c.chunk for c in await chunks.chunks(session)]
        assert len(known) == chunks.MOST_CHUNKS
        assert known[-3:] == [chunks.MOST_CHUNKS + n for n in (1, 2, 3)], "the last ones are the largest"
    assert (await queue.pop(10_000)).payloads == pushed


async def test_counting_works_in_steps(queue: QueueUnderTest) -> None:
    for n in range(60):
        await queue.push(secrets.token_urlsafe(1000), partition=f"p{n % 2}")
    async with upkeep(queue.database) as session:
        await rotate(session)
        stages_seen = []
        while not stages_seen or stages_seen[-1] == "closed":
            row = await session.fetchrow("SELECT count_chunk_v1(1, 3) AS stage")
            assert row is not None
            stages_seen.append(row["stage"])
        assert len(stages_seen) > 3
        assert stages_seen[-1] == "counted"
        [first, _] = await chunks.chunks(session)
    assert first.kept_bytes == first.held_bytes
    rows = await queue.database.fetch("SELECT first_offset, last_offset FROM spans")
    assert [tuple(row) for row in rows] == [(0, 29), (0, 29)]


async def test_emptying_goes_on_where_it_stopped(queue: QueueUnderTest) -> None:
    """Also in another session, as after a crash; however small the steps are."""
    for n in range(300):
        await queue.push(f"{n} " + "x" * 300, partition=f"p{n % 3}", keys=[f"k{n}"])
    async with upkeep(queue.database) as session:
        await rotate(session)
        await chunks.reclaim(session, chunks.after(5))
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
        got = (await queue.pop(200, partition=name)).payloads
        assert [int(payload.split()[0]) for payload in got] == list(range(int(name[1]), 300, 3))


async def test_a_message_deleted_while_it_moves_loses_its_payload(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    await queue.push("secret", "other", keys=["k1", "k2"])
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        await chunks.reclaim(session, chunks.after(5))
        moving = connection.transaction()
        await moving.start()
        await connection.execute("SELECT empty_chunk_v1(1, 100000, 100)")
        deleting = asyncio.create_task(
            queue.database.fetch("SELECT delete_message_v1($1, 'k1')", ids.partition_id)
        )

        async def waits() -> list[object]:
            return await session.fetch(
                "SELECT 1 FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
            )

        await wait_until_async(waits, 10, "the deletion waits for the move")
        await moving.commit()
        await deleting
        await reclaim(session, 1)
    assert await queue.database.fetch("SELECT payloads FROM log") == [([b"null", b"other"],)]
    assert (await queue.pop(5)).payloads == ["other"]


async def test_a_snapshot_from_before_a_move_still_finds_everything(queue: QueueUnderTest) -> None:
    await queue.push(*"abc")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        await chunks.reclaim(session, chunks.after(5))
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT 1 FROM queues")
            for _ in range(10):
                if await stages(session) == {1: "doomed", 2: "open"}:
                    break
                await session.fetch("SELECT empty_chunk_v1(1, 100000, 100)")
            await chunks.reclaim(session, chunks.after(5))
            assert await stages(session) == {1: "doomed", 2: "open"}
            assert await connection.fetchval("SELECT sum(cardinality(payloads)) FROM log") == 3
        await reclaim(session, 1)
    assert (await queue.pop(5)).payloads == ["a", "b", "c"]


async def test_a_forgotten_transaction_does_not_keep_garbage_from_being_dropped(
    queue: QueueUnderTest,
) -> None:
    """What was moved by nobody needs no old snapshot; so space comes back even while vacuum is held up."""
    await queue.push("a")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT 1 FROM queues")
            await let_go_of_all(queue)
            await reclaim(session, 1)


async def test_a_reader_that_stays_keeps_its_chunk_and_holds_up_no_push(queue: QueueUnderTest) -> None:
    await queue.push("a")
    async with upkeep(queue.database) as session, connected(queue.database) as connection:
        await rotate(session)
        await let_go_of_all(queue)
        async with connection.transaction():
            await connection.fetch("SELECT count(*) FROM log")
            await session.fetch(
                "UPDATE chunk_stages SET stage = 'doomed', blocking_transactions = '{}' WHERE chunk = 1"
            )
            slowest = await slowest_push(queue, dropping(session, queue))
            assert slowest < 2, "a push never waits for longer than the drop does"
            assert 1 in await stages(session)
        await reclaim(session, 1)


async def dropping(session: Upkeep, queue: QueueUnderTest) -> None:
    """Try until the reader counts as one that stays: then it is not tried any more."""
    busy = 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            row = await session.fetchrow("SELECT drop_chunk_v1(1) AS dropped")
            assert row is not None
            assert row["dropped"] in (None, "message_keys_1")
            if row["dropped"] is None:
                assert busy, "at first it gives up after 50 ms"
                return
        except Busy:
            busy += 1
    raise AssertionError("the reader was never let be")


async def slowest_push(queue: QueueUnderTest, beside: object) -> float:
    """The longest a push took while `beside` ran."""
    task = asyncio.ensure_future(beside)  # type: ignore[arg-type]
    slowest = 0.0
    while not task.done():
        started = time.monotonic()
        await queue.push("a", partition="busy")
        slowest = max(slowest, time.monotonic() - started)
    await task
    return slowest


async def test_dropping_a_chunk_holds_pushes_up_for_a_moment_only(queue: QueueUnderTest) -> None:
    await queue.push(*noise(3000))

    async def nothing() -> None:
        for _ in range(20):
            await queue.database.fetch("SELECT 1")

    async with upkeep(queue.database) as session:
        await rotate(session)
        await let_go_of_all(queue)
        usual = await slowest_push(queue, nothing())
        slowest = await slowest_push(queue, reclaim(session, 1))
    assert slowest < usual + 1.0


@pytest.mark.parametrize("keyed", [False, True])
async def test_nothing_is_lost_doubled_or_reordered_while_chunks_come_and_go(
    database: Database, keyed: bool
) -> None:
    """Producers and consumers at work; chunks opened, emptied and dropped all the time beside them."""
    names = [PartitionName("busy" if n % 3 else "kept", f"p{n}") for n in range(6)]
    ids = await log.ensure_partitions(database, DEFAULT_SCOPE, names)
    groups = {q: await log.ensure_group(database, DEFAULT_SCOPE, q, "g") for q in ("busy", "kept")}
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
            segment = Segment(ids[name].partition_id, [new_id() for _ in numbers], keys, [None] * 3, payloads)
            pushed = await log.push(database, [segment])
            assert pushed.duplicates == {}
            n += 3
        sent[ids[name].partition_id] = n

    async def consume(queue: str) -> None:
        group_id = groups[queue].group_id
        while any(len(got) < sent.get(p, 10**9) for p, got in received.items() if queues[p] == queue):
            lease_id = new_id()
            rows = await log.pop(database, group_id, [PopRequest(lease_id, 10, 2)], lease_ms=60_000)
            leased = {row["partition_id"]: row["leased_to"] - row["leased_from"] for row in rows}
            assert sum(leased.values()) == sum(len(row["message_ids"]) for row in rows)
            acks = []
            for row in rows:
                for at, message_id in enumerate(row["message_ids"]):
                    received[row["partition_id"]].append(int(row["payloads"][at]))
                    key = row["transaction_ids"][at] if keyed else str(message_id)
                    acks.append(Ack(row["partition_id"], group_id, lease_id, key, "completed", None))
            assert {a.outcome for a in await log.ack(database, acks)} <= {"completed"}

    async def maintain(session: Upkeep) -> None:
        nonlocal dropped, opened
        while working:
            opened += await chunks.rotate(session, 1, HOUR) is not None
            await retention.retain(session, 0)
            try:
                dropped += (await chunks.reclaim(session, chunks.after(0.3))).dropped
            except Busy:
                continue

    queues = {ids[name].partition_id: name.queue for name in names}
    sent: dict[int, int] = {}
    async with upkeep(database) as session:
        keeping = asyncio.create_task(maintain(session))
        try:
            work = asyncio.gather(*map(produce, names), consume("busy"), consume("kept"))
            await asyncio.wait_for(work, 120)
        finally:
            working = False
            await keeping
    assert received == {partition_id: list(range(n)) for partition_id, n in sent.items()}
    rows = await database.fetch(
        """SELECT t.id, sum(cardinality(l.payloads))::bigint AS stored
           FROM partitions t JOIN queues q ON q.id = t.queue_id AND q.name = 'kept'
           JOIN log l ON l.partition_id = t.id GROUP BY t.id"""
    )
    assert {row["id"]: row["stored"] for row in rows} == {
        p: n for p, n in sent.items() if queues[p] == "kept"
    }
