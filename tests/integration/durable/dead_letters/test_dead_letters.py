"""Dead letters: counted, grouped, searched, requeued with their lineage, and purged by jobs."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

import asyncpg
import pytest

from penstock.durable.dead_letters import dead_letter_changes, dead_letter_counts, dead_letter_queries, jobs
from penstock.durable.dead_letters.dead_letter_queries import Before, Filter
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.dead_letters.dead_letter_steps import (
    kill,
    kill_waiting,
    letter_ids,
    recount,
    run_job,
    wrong_counts,
)
from tests.integration.durable.queue_under_test import START, QueueUnderTest

AFTER = START + timedelta(days=365)


async def counts(queue: QueueUnderTest) -> dict[str | None, int]:
    rows = await dead_letter_queries.status(queue.database, DEFAULT_SCOPE)
    return {row["group_name"]: row["messages"] for row in rows}


async def test_folding_changes_no_count(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b", "c")
    await kill(queue, "d", group="h")
    await dead_letter_changes.delete(queue.database, DEFAULT_SCOPE, (await letter_ids(queue.database))[0])
    before = await counts(queue)
    assert await dead_letter_counts.fold(queue.database) > 0
    assert await queue.database.fetch("SELECT 1 FROM dead_tallies") == []
    assert await counts(queue) == before == {"g": 2, "h": 4}
    assert await wrong_counts(queue.database) == []
    await kill(queue, "e")
    assert (await counts(queue))["g"] == 4, "it had not seen d yet"


async def test_a_group_whose_last_letter_went_is_told_as_zero(queue: QueueUnderTest) -> None:
    await kill(queue, "a")
    await dead_letter_counts.fold(queue.database)
    await run_job(queue, "purge", now=AFTER)
    await dead_letter_counts.fold(queue.database)
    assert await counts(queue) == {"g": 0}
    for table in ("dead_error_counts", "dead_hours"):
        assert await queue.database.fetch(f"SELECT 1 FROM {table}") == [], table


async def test_a_recount_finds_nothing_wrong(queue: QueueUnderTest) -> None:
    for hour in range(3):
        await kill(queue, "a", "b", error=f"error {hour}")
        await kill(queue, "c", group="h")
        queue.later(3_600_000)
    await dead_letter_counts.fold(queue.database)
    await kill(queue, "d")
    assert await recount(queue.database) == 0
    assert (await dead_letter_queries.drift(queue.database))[0] == 0


async def test_a_recount_reports_and_puts_right_what_was_written_around_the_triggers(
    queue: QueueUnderTest,
) -> None:
    await kill(queue, "a", "b", "c")
    await kill(queue, "d", error="other", group="h")
    await dead_letter_counts.fold(queue.database)
    async with queue.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute("DELETE FROM dead_letters WHERE payload IN ('a', 'd')")
    await queue.database.fetch("UPDATE dead_counts SET messages = -7 WHERE messages = 3")
    assert min((await counts(queue)).values()) == -7, "a negative count is told, not clamped"
    assert await recount(queue.database) > 0
    await dead_letter_counts.fold(queue.database)
    await recount(queue.database)
    await dead_letter_counts.fold(queue.database)
    assert await wrong_counts(queue.database) == []
    found, ended_at = await dead_letter_queries.drift(queue.database)
    assert found > 0
    assert ended_at is not None
    assert await recount(queue.database) == 0


async def test_letters_from_before_there_were_groups_are_grouped_step_by_step(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_counts, "GROUP_LETTERS", 2)
    await kill(queue, *"abcde", error="code 7")
    # As a database looks that was just migrated.
    await queue.database.fetch("UPDATE dead_letters SET error_key = NULL")
    await queue.database.fetch(
        "UPDATE dead_tallies SET error_key = '00000000-0000-0000-0000-000000000000', hour = '-infinity'"
    )
    await queue.database.fetch("UPDATE dead_letter_maintenance SET backfilled_to_id = 0, backfill_end_id = 5")
    await dead_letter_counts.fold(queue.database)
    assert [row["pattern"] for row in await groups(queue)] == [None]
    assert await dead_letter_counts.group(queue.database)
    await kill(queue, "f", error="code 8")
    await dead_letter_changes.delete(queue.database, DEFAULT_SCOPE, 5)
    assert await recount(queue.database) == 0
    assert await wrong_counts(queue.database) == []
    while await dead_letter_counts.group(queue.database):
        pass
    assert [(row["pattern"], row["messages"]) for row in await groups(queue)] == [("code <n>", 5)]
    assert await counts(queue) == {"g": 5}
    assert await recount(queue.database) == 0


async def groups(queue: QueueUnderTest, hours: int = 3) -> list[asyncpg.Record]:
    return await dead_letter_queries.error_groups(
        queue.database, DEFAULT_SCOPE, hours=hours, limit=10, offset=0, now=queue.now
    )


async def test_letters_are_grouped_by_what_they_died_of(queue: QueueUnderTest) -> None:
    first = queue.now
    await kill(queue, "a", "b", error="timeout calling payments after 31 ms")
    queue.later(3_600_000)
    await kill(queue, "c", error="timeout calling payments after 1500 ms")
    await kill(queue, "d", error="timeout calling payments after 2 ms", group="h", partition="other")
    await kill(queue, "e", error="card declined", partition="other")
    for _ in range(2):
        often, *others = await groups(queue)
        assert (often["pattern"], often["messages"]) == ("timeout calling payments after <n> ms", 7)
        assert (often["first_at"], often["last_at"]) == (first, queue.now)
        assert (often["hours"], often["groups"], often["total"]) == ([0, 2, 5], ["g", "h"], 2)
        assert [(row["pattern"], row["messages"]) for row in others] == [("card declined", 2)]
        await dead_letter_counts.fold(queue.database)


PATTERNS = (
    (None, ""),
    ("", ""),
    ("\n\n  disk full \n at line 3", "disk full"),
    ("timeout after 1,500.5 ms", "timeout after <n> ms"),
    ("no user 'Ann' (can't retry)", "no user <text> (can't retry)"),
    ('key "a b" and `c`', "key <text> and <text>"),
    ("GET https://a.example/b?c=1 failed: 503", "GET <url> failed: <n>"),
    ("order 0195f3a2-1f3e-7c55-9d53-2f7fd0a0b0c1 missing", "order <uuid> missing"),
    ("at 0x7ffd12ab and deadbeef01, facade", "at <hex> and <hex>, facade"),
    ("10.0.0.12:5432 refused at 2026-11-15T15:42:43.123Z", "<address> refused at <time>"),
    ("Traceback (most recent call last):\n  File x, line 3\nE: 12 is odd\n", "E: <n> is odd"),
    ("x" * 3000, "x" * 200),
)  # fmt: skip


async def test_an_error_is_named_without_what_differs(database: Database) -> None:
    rows = await database.fetch(
        "SELECT e.error, error_pattern_v1(e.error) AS pattern FROM unnest($1::text[]) AS e (error)",
        [error for error, _ in PATTERNS],
    )
    assert tuple((row["error"], row["pattern"]) for row in rows) == PATTERNS


async def test_letters_are_found_by_error_group_error_and_payload(queue: QueueUnderTest) -> None:
    await kill(queue, '{"user":"Ann"}', '{"user":"Bob"}', error="Card 12 declined")
    await kill(queue, '{"user":"Cy"}', error="timeout", partition="p")

    async def found(**which: object) -> list[str]:
        page = await dead_letter_queries.page(queue.database, DEFAULT_SCOPE, Filter(**which), limit=10)  # type: ignore[arg-type]
        return sorted(row["payload"].decode()[9:-2] for row in page.rows)

    assert await found(error="card 12") == ["Ann", "Bob"]
    assert await found(payload='"Bob"') == ["Bob"]
    assert await found(payload='"Bob"', error="timeout") == []
    assert await found(partition="p") == ["Cy"]
    [key] = {row["error_key"] for row in await groups(queue) if row["pattern"] == "timeout"}
    assert await found(error_key=key) == ["Cy"]
    assert await found(error_key=key, group="g", queue="orders") == ["Cy"]
    assert await found(error_key=uuid.uuid4()) == []


async def test_a_search_looks_at_so_many_letters_and_goes_on_behind_them(queue: QueueUnderTest) -> None:
    for number in range(9):
        await kill(queue, f"{number}", error="odd" if number % 2 else "even")
    found, before = [], None
    for _ in range(9):
        page = await dead_letter_queries.page(
            queue.database, DEFAULT_SCOPE, Filter(error="even"), limit=10, look_at=3, before=before
        )
        found += [row["payload"].decode() for row in page.rows]
        before = page.looked_to
        if before is None:
            break
    assert found == ["8", "6", "4", "2", "0"]
    by_page, at = [], None
    while rows := (
        await dead_letter_queries.page(queue.database, DEFAULT_SCOPE, Filter(), limit=2, before=at)
    ).rows:
        by_page += [row["payload"].decode() for row in rows]
        at = Before(rows[-1]["failed_at"], rows[-1]["id"])
    assert by_page == list("876543210")


async def test_requeued_messages_come_back_in_order_for_the_group_that_gave_up(queue: QueueUnderTest) -> None:
    await queue.group("other")
    await kill(queue, "a", "b", "c")
    assert (await queue.pop(5, "other")).payloads == ["a", "b", "c"]
    await queue.push("d")
    done = await dead_letter_changes.requeue(queue.database, await letter_ids(queue.database), queue.now)
    assert {row["outcome"] for row in done} == {"queued"}
    assert sorted(row["message_offset"] for row in done) == [4, 5, 6]
    await queue.push("e")
    assert (await queue.pop(10)).payloads == ["d", "a", "b", "c", "e"]
    queue.later(2_000)  # the other group's lease runs out; it works on what it had, then on what is new to it
    seen = []
    while (delivery := await queue.pop(10, "other")).messages:
        await queue.ack(delivery, group="other")
        seen += delivery.payloads
    assert seen == ["a", "b", "c", "d", "e"]
    assert await queue.depth("other") == (0, 0)
    assert await wrong_counts(queue.database) == []


async def test_a_group_that_is_far_behind_passes_over_requeued_messages_later(queue: QueueUnderTest) -> None:
    await queue.group("slow")
    await kill(queue, "a", "b")
    await dead_letter_changes.requeue(queue.database, await letter_ids(queue.database), queue.now)
    await queue.push("c")
    assert (await queue.pop(10)).payloads == ["a", "b", "c"]
    seen = []
    while (delivery := await queue.pop(2, "slow")).messages:
        await queue.ack(delivery, group="slow")
        seen += delivery.payloads
    assert seen == ["a", "b", "c"]
    assert await queue.depth("slow") == (0, 0)


async def test_letters_of_two_groups_come_back_to_each(queue: QueueUnderTest) -> None:
    await queue.group("h")
    await kill(queue, "a")
    await kill_waiting(queue, group="h")
    await dead_letter_changes.requeue(queue.database, await letter_ids(queue.database), queue.now)
    for group in ("g", "h"):
        delivery = await queue.pop(10, group)
        assert delivery.payloads == ["a"], group
        await queue.ack(delivery, group=group)
        assert (await queue.pop(10, group)).payloads == []


async def test_letters_of_a_deleted_group_come_back_to_all(queue: QueueUnderTest) -> None:
    await queue.group("h")
    await kill(queue, "a")
    gone = await queue.group()
    await queue.database.fetch("SELECT delete_group_v1($1)", gone.group_id)
    await queue.ack(await queue.pop(1, "h"), group="h")
    await dead_letter_changes.requeue(queue.database, await letter_ids(queue.database), queue.now)
    assert (await queue.pop(10, "h")).payloads == ["a"]


async def test_a_message_that_dies_again_says_so(queue: QueueUnderTest) -> None:
    first = queue.now
    await queue.configure(retry_limit=1)
    await queue.push("a", keys=["order-7"])
    for _ in range(2):
        await queue.ack(await queue.pop(), "failed", error="no")
    for life in (1, 2, 3):
        [row] = await queue.database.fetch("SELECT * FROM dead_letters")
        assert (row["deaths"], row["attempts"], row["earlier_attempts"]) == (life, 2, 2 * (life - 1))
        assert (row["first_created_at"] or row["created_at"]) == first
        assert (row["first_transaction_id"] or row["transaction_id"]) == "order-7"
        queue.later(60_000)
        await dead_letter_changes.requeue(queue.database, [row["id"]], queue.now)
        for _ in range(2):
            await queue.ack(await queue.pop(), "failed", error="no")


async def test_a_requeue_into_a_full_queue_leaves_what_has_no_room(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b", "c")
    await queue.push("d")
    await queue.configure(max_size=2)
    done = await dead_letter_changes.requeue(queue.database, await letter_ids(queue.database), queue.now)
    assert [row["outcome"] for row in sorted(done, key=lambda row: row["id"])] == [
        "queued", "queue_full", "queue_full"
    ]  # fmt: skip
    assert len(await letter_ids(queue.database)) == 2
    assert (await queue.pop(10)).payloads == ["d", "a"]
    assert await wrong_counts(queue.database) == []


async def test_a_plain_letter_of_a_queue_that_is_encrypted_by_now_is_not_requeued_plain(
    queue: QueueUnderTest,
) -> None:
    await kill(queue, "a")
    await queue.configure(encrypted=True)
    ids = await letter_ids(queue.database)
    assert [row["outcome"] for row in await dead_letter_changes.requeue(queue.database, ids, queue.now)] == [
        "unsealed"
    ]
    await dead_letter_changes.seal(queue.database, {ids[0]: b"\x01sealed"}, {ids[0]: b"a"})
    assert [row["outcome"] for row in await dead_letter_changes.requeue(queue.database, ids, queue.now)] == [
        "queued"
    ]
    assert [message[3] for message in (await queue.pop()).messages] == [b"\x01sealed"]


async def test_one_letter_is_deleted_whatever_its_attempts(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b")
    one, two = await letter_ids(queue.database)
    delete = dead_letter_changes.delete
    assert not await delete(queue.database, DEFAULT_SCOPE, one, queue="orders", group="other")
    assert not await delete(queue.database, DEFAULT_SCOPE, one, queue="other", group="g")
    assert await delete(queue.database, DEFAULT_SCOPE, one, queue="orders", group="g")
    assert not await delete(queue.database, DEFAULT_SCOPE, one)
    assert await letter_ids(queue.database) == [two]


async def test_a_job_purges_what_matches_and_nothing_else(queue: QueueUnderTest) -> None:
    for number in range(10):
        await kill(queue, str(number), error="odd" if number % 2 else "even", partition=f"p{number % 3}")
        queue.later(1)
    await queue.group("h")
    await kill_waiting(queue, group="h")
    job = await run_job(queue, "purge", Filter(group="g", error="ODD"), now=AFTER)
    assert (job["state"], job["changed"], job["total"], job["total_is_exact"]) == ("done", 5, 5, True)
    assert job["scanned"] == 10
    left = await queue.database.fetch("SELECT error, group_id FROM dead_letters")
    assert (len(left), {row["error"] for row in left[:5]}) == (15, {"even"})
    assert (await run_job(queue, "purge", Filter(partition="p0"), now=AFTER))["changed"] == 2 + 4
    assert (await run_job(queue, "purge", letter_ids=(await letter_ids(queue.database))[:4], now=AFTER))[
        "changed"
    ] == 4
    assert (await run_job(queue, "purge", Filter(queue="none"), now=AFTER))["changed"] == 0
    assert (await run_job(queue, "purge", now=AFTER))["changed"] == 5
    assert await wrong_counts(queue.database) == []


async def test_a_job_requeues_everything_once_even_what_dies_again_meanwhile(queue: QueueUnderTest) -> None:
    await kill(queue, *"abcdefg")
    owner = uuid.uuid4()
    queue.later(1)
    job = await jobs.make(queue.database, DEFAULT_SCOPE, "requeue", Filter(), now=queue.now)
    assert (job["total"], job["total_is_exact"]) == (7, True)
    queue.later(1)
    await jobs.take(queue.database, owner)
    state = "running"
    while state == "running":
        advanced = await jobs.advance(queue.database, job["id"], owner, 2, 50, True)
        state = advanced.job["state"]
        # Pushed at a moment of the real clock, which comes before the test's.
        assert await kill_waiting(queue) == sum(advanced.queued.values())
    assert advanced.job["changed"] == 7
    rows = await queue.database.fetch("SELECT deaths, payload FROM dead_letters ORDER BY message_offset")
    assert [(row["deaths"], row["payload"].decode()) for row in rows] == [(2, letter) for letter in "abcdefg"]


async def test_a_job_waits_for_room_and_goes_on(queue: QueueUnderTest) -> None:
    await kill(queue, *"abc")
    await queue.configure(max_size=2)
    job = await run_job(queue, "requeue", now=AFTER)
    assert (job["state"], job["changed"], job["note"]) == ("running", 2, "queue_full orders")
    await queue.ack(await queue.pop(2))
    advanced = await jobs.advance(queue.database, job["id"], job["owner"], 3, 50, True)
    assert (advanced.job["changed"], advanced.job["note"]) == (3, None)
    assert (await jobs.advance(queue.database, job["id"], job["owner"], 3, 50, True)).job["state"] == "done"


async def test_a_job_is_taken_by_one_and_after_its_lease_by_another(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LEASE_MS", 0)
    await kill(queue, *"abcdef")
    first, second = uuid.uuid4(), uuid.uuid4()
    job = await jobs.make(queue.database, DEFAULT_SCOPE, "purge", Filter(), now=AFTER)
    await jobs.take(queue.database, first)
    await jobs.advance(queue.database, job["id"], first, 2, 50, False)
    taken = await jobs.take(queue.database, second)
    assert (taken["id"], taken["changed"]) == (job["id"], 2)
    stale = await jobs.advance(queue.database, job["id"], first, 2, 50, False)
    assert (stale.job["owner"], stale.job["changed"]) == (second, 2), "who lost it changes nothing"
    monkeypatch.setattr(jobs, "LEASE_MS", 60_000)
    while (await jobs.advance(queue.database, job["id"], second, 2, 50, False)).job["state"] == "running":
        assert await jobs.take(queue.database, first) is None
    assert await letter_ids(queue.database) == []


async def test_a_cancelled_job_stops_where_it_is(queue: QueueUnderTest) -> None:
    await kill(queue, *"abcdef")
    owner = uuid.uuid4()
    job = await jobs.make(queue.database, DEFAULT_SCOPE, "purge", Filter(), now=AFTER)
    await jobs.take(queue.database, owner)
    await jobs.advance(queue.database, job["id"], owner, 2, 50, False)
    cancelled = await jobs.cancel(queue.database, DEFAULT_SCOPE, job["id"])
    assert (cancelled["state"], cancelled["changed"]) == ("cancelled", 2)
    assert (await jobs.advance(queue.database, job["id"], owner, 2, 50, False)).job["changed"] == 2
    assert len(await letter_ids(queue.database)) == 4
    assert await jobs.take(queue.database, owner) is None


async def test_two_jobs_on_the_same_letters_change_each_letter_once(queue: QueueUnderTest) -> None:
    for number in range(60):
        await queue.push(str(number), partition=f"p{number % 5}")
    await kill_waiting(queue)
    owner = uuid.uuid4()
    made = {}
    for kind in ("purge", "requeue"):
        made[kind] = await jobs.make(queue.database, DEFAULT_SCOPE, kind, Filter(), now=AFTER)
        await jobs.take(queue.database, owner)

    async def through(kind: str) -> int:
        while True:
            advanced = await jobs.advance(queue.database, made[kind]["id"], owner, 4, 50, kind == "requeue")
            if advanced.job["state"] == "done":
                changed: int = advanced.job["changed"]
                return changed

    changed = await asyncio.gather(through("purge"), through("requeue"))
    assert sum(changed) == 60
    assert (await queue.depth())[0] == changed[1]
    assert await wrong_counts(queue.database) == []


async def test_deleting_a_queue_takes_its_counts_along(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b")
    await dead_letter_counts.fold(queue.database)
    await kill(queue, "c")
    ids = await queue.group()
    await queue.database.fetch("SELECT delete_queue_v1($1)", ids.queue_id)
    for table in ("dead_letters", "dead_tallies", "dead_counts", "dead_error_counts", "dead_hours"):
        assert await queue.database.fetch(f"SELECT 1 FROM {table}") == [], table
