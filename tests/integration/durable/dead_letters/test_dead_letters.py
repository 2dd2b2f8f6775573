"""Dead letters are counted, grouped, searched, requeued with their lineage, and purged by jobs."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.dead_letter_store import (
    DeadLetterCursor,
    DeadLetterFilter,
    DeadLetterStore,
)
from penstock.durable.dead_letters.error_group_store import DeadLetterErrorGroup, ErrorGroupStore
from penstock.durable.dead_letters.jobs import JobStore
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.dead_letters.dead_letter_steps import (
    dead_letter_ids,
    kill,
    kill_pending,
    recount,
    run_job,
    wrong_counts,
)
from tests.integration.durable.queue_under_test import START, QueueUnderTest

AFTER = START + timedelta(days=365)


async def counts(queue: QueueUnderTest) -> dict[str | None, int]:
    rows = await DeadLetterStore(queue.database).list_counts(DEFAULT_SCOPE)
    return {row.group_name: row.messages for row in rows}


async def test_folding_does_not_change_counts(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b", "c")
    await kill(queue, "d", group="h")
    await DeadLetterStore(queue.database).delete(DEFAULT_SCOPE, (await dead_letter_ids(queue.database))[0])
    before = await counts(queue)
    assert await dead_letter_counts.fold_deltas(queue.database) > 0
    assert await queue.database.fetch("SELECT 1 FROM dead_tallies") == []
    assert await counts(queue) == before == {"g": 2, "h": 4}
    assert await wrong_counts(queue.database) == []
    await kill(queue, "e")
    assert (await counts(queue))["g"] == 4, "group g had not popped d yet"


async def test_a_group_without_dead_letters_any_more_has_a_count_of_zero(queue: QueueUnderTest) -> None:
    await kill(queue, "a")
    await dead_letter_counts.fold_deltas(queue.database)
    await run_job(queue, "purge", now=AFTER)
    await dead_letter_counts.fold_deltas(queue.database)
    assert await counts(queue) == {"g": 0}
    for table in ("dead_error_counts", "dead_hours"):
        assert await queue.database.fetch(f"SELECT 1 FROM {table}") == [], table


async def test_a_recount_of_correct_counts_finds_no_drift(queue: QueueUnderTest) -> None:
    for hour in range(3):
        await kill(queue, "a", "b", error=f"error {hour}")
        await kill(queue, "c", group="h")
        queue.later(3_600_000)
    await dead_letter_counts.fold_deltas(queue.database)
    await kill(queue, "d")
    assert await recount(queue.database) == 0
    assert (await DeadLetterStore(queue.database).read_drift())[0] == 0


async def test_a_recount_reports_and_corrects_writes_that_bypassed_the_triggers(
    queue: QueueUnderTest,
) -> None:
    await kill(queue, "a", "b", "c")
    await kill(queue, "d", error="other", group="h")
    await dead_letter_counts.fold_deltas(queue.database)
    async with queue.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute("DELETE FROM dead_letters WHERE payload IN ('a', 'd')")
    await queue.database.fetch("UPDATE dead_counts SET messages = -7 WHERE messages = 3")
    assert min((await counts(queue)).values()) == -7, "a negative count is reported, not clamped"
    assert await recount(queue.database) > 0
    await dead_letter_counts.fold_deltas(queue.database)
    await recount(queue.database)
    await dead_letter_counts.fold_deltas(queue.database)
    assert await wrong_counts(queue.database) == []
    found, ended_at = await DeadLetterStore(queue.database).read_drift()
    assert found > 0
    assert ended_at is not None
    assert await recount(queue.database) == 0


async def test_dead_letters_without_error_keys_get_them_step_by_step(queue: QueueUnderTest) -> None:
    await kill(queue, *"abcde", error="code 7")
    # The state of a database right after its migration.
    await queue.database.fetch("UPDATE dead_letters SET error_key = NULL")
    await queue.database.fetch(
        "UPDATE dead_tallies SET error_key = '00000000-0000-0000-0000-000000000000', hour = '-infinity'"
    )
    await queue.database.fetch("UPDATE dead_letter_maintenance SET backfilled_to_id = 0, backfill_end_id = 5")
    await dead_letter_counts.fold_deltas(queue.database)
    assert [row.pattern for row in await groups(queue)] == [None]
    assert await dead_letter_counts.assign_error_keys(queue.database, limit=2)
    await kill(queue, "f", error="code 8")
    await DeadLetterStore(queue.database).delete(DEFAULT_SCOPE, 5)
    assert await recount(queue.database) == 0
    assert await wrong_counts(queue.database) == []
    while await dead_letter_counts.assign_error_keys(queue.database, limit=2):
        pass
    assert [(row.pattern, row.messages) for row in await groups(queue)] == [("code <n>", 5)]
    assert await counts(queue) == {"g": 5}
    assert await recount(queue.database) == 0


async def groups(queue: QueueUnderTest, hours: int = 3) -> list[DeadLetterErrorGroup]:
    return await ErrorGroupStore(queue.database).list_error_groups(
        DEFAULT_SCOPE, hours=hours, limit=10, offset=0, now=queue.now
    )


async def test_dead_letters_are_grouped_by_error_pattern(queue: QueueUnderTest) -> None:
    first = queue.now
    await kill(queue, "a", "b", error="timeout calling payments after 31 ms")
    queue.later(3_600_000)
    await kill(queue, "c", error="timeout calling payments after 1500 ms")
    await kill(queue, "d", error="timeout calling payments after 2 ms", group="h", partition="other")
    await kill(queue, "e", error="card declined", partition="other")
    for _ in range(2):
        most_frequent, *others = await groups(queue)
        assert (most_frequent.pattern, most_frequent.messages) == (
            "timeout calling payments after <n> ms",
            7,
        )
        assert (most_frequent.first_at, most_frequent.last_at) == (first, queue.now)
        assert (most_frequent.hours, most_frequent.groups, most_frequent.total) == (
            [0, 2, 5],
            ["g", "h"],
            2,
        )
        assert [(row.pattern, row.messages) for row in others] == [("card declined", 2)]
        await dead_letter_counts.fold_deltas(queue.database)


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


async def test_an_error_pattern_replaces_variable_parts(database: Database) -> None:
    rows = await database.fetch(
        "SELECT e.error, error_pattern_v1(e.error) AS pattern FROM unnest($1::text[]) AS e (error)",
        [error for error, _ in PATTERNS],
    )
    assert tuple((row["error"], row["pattern"]) for row in rows) == PATTERNS


async def test_dead_letters_are_filtered_by_error_group_error_and_payload(queue: QueueUnderTest) -> None:
    await kill(queue, '{"user":"Ann"}', '{"user":"Bob"}', error="Card 12 declined")
    await kill(queue, '{"user":"Cy"}', error="timeout", partition="p")

    async def users(selection: DeadLetterFilter) -> list[str]:
        page = await DeadLetterStore(queue.database).read_page(DEFAULT_SCOPE, selection, limit=10)
        return sorted(row.payload.decode()[9:-2] for row in page.dead_letters)

    assert await users(DeadLetterFilter(error="card 12")) == ["Ann", "Bob"]
    assert await users(DeadLetterFilter(payload='"Bob"')) == ["Bob"]
    assert await users(DeadLetterFilter(payload='"Bob"', error="timeout")) == []
    assert await users(DeadLetterFilter(partition="p")) == ["Cy"]
    [key] = {row.error_key for row in await groups(queue) if row.pattern == "timeout"}
    assert await users(DeadLetterFilter(error_key=key)) == ["Cy"]
    assert await users(DeadLetterFilter(error_key=key, group="g", queue="orders")) == ["Cy"]
    assert await users(DeadLetterFilter(error_key=uuid.uuid4())) == []


async def test_a_search_scans_a_limited_number_and_continues_after_it(queue: QueueUnderTest) -> None:
    for number in range(9):
        await kill(queue, f"{number}", error="odd" if number % 2 else "even")
    found, before = [], None
    for _ in range(9):
        page = await DeadLetterStore(queue.database).read_page(
            DEFAULT_SCOPE, DeadLetterFilter(error="even"), limit=10, max_scanned=3, before=before
        )
        found += [row.payload.decode() for row in page.dead_letters]
        before = page.scanned_to
        if before is None:
            break
    assert found == ["8", "6", "4", "2", "0"]
    by_page, page_end = [], None
    while rows := (
        await DeadLetterStore(queue.database).read_page(
            DEFAULT_SCOPE, DeadLetterFilter(), limit=2, before=page_end
        )
    ).dead_letters:
        by_page += [row.payload.decode() for row in rows]
        page_end = DeadLetterCursor(rows[-1].failed_at, rows[-1].id)
    assert by_page == list("876543210")


async def test_requeued_messages_are_redelivered_in_order_to_the_group_that_gave_up(
    queue: QueueUnderTest,
) -> None:
    await queue.group("other")
    await kill(queue, "a", "b", "c")
    assert (await queue.pop(5, "other")).payloads == ["a", "b", "c"]
    await queue.push("d")
    requeued = await DeadLetterStore(queue.database).requeue(await dead_letter_ids(queue.database), queue.now)
    assert {row.outcome for row in requeued} == {"queued"}
    assert {row.message_offset for row in requeued} == {4, 5, 6}
    await queue.push("e")
    assert (await queue.pop(10)).payloads == ["d", "a", "b", "c", "e"]
    queue.later(2_000)  # the lease of the other group expires; it then pops the old and the new messages
    seen = []
    while (delivery := await queue.pop(10, "other")).messages:
        await queue.ack(delivery, group="other")
        seen += delivery.payloads
    assert seen == ["a", "b", "c", "d", "e"]
    assert await queue.depth("other") == (0, 0)
    assert await wrong_counts(queue.database) == []


async def test_a_lagging_group_skips_requeued_messages_when_it_reaches_them(queue: QueueUnderTest) -> None:
    await queue.group("slow")
    await kill(queue, "a", "b")
    await DeadLetterStore(queue.database).requeue(await dead_letter_ids(queue.database), queue.now)
    await queue.push("c")
    assert (await queue.pop(10)).payloads == ["a", "b", "c"]
    seen = []
    while (delivery := await queue.pop(2, "slow")).messages:
        await queue.ack(delivery, group="slow")
        seen += delivery.payloads
    assert seen == ["a", "b", "c"]
    assert await queue.depth("slow") == (0, 0)


async def test_dead_letters_of_two_groups_are_requeued_to_each(queue: QueueUnderTest) -> None:
    await queue.group("h")
    await kill(queue, "a")
    await kill_pending(queue, group="h")
    await DeadLetterStore(queue.database).requeue(await dead_letter_ids(queue.database), queue.now)
    for group in ("g", "h"):
        delivery = await queue.pop(10, group)
        assert delivery.payloads == ["a"], group
        await queue.ack(delivery, group=group)
        assert (await queue.pop(10, group)).payloads == []


async def test_a_message_requeued_to_all_groups_is_one_message_for_each(queue: QueueUnderTest) -> None:
    for group in ("h", "done"):
        await queue.group(group)
    await queue.configure(retry_limit=1)
    await queue.push("a", keys=["order-7"])
    await queue.ack(await queue.pop(1, "done"), group="done")
    await queue.ack(await queue.pop(), "failed")
    await kill_pending(queue)
    await kill_pending(queue, group="h")
    ids = await dead_letter_ids(queue.database)
    requeued = await DeadLetterStore(queue.database).requeue(ids, queue.now, audience="all")
    assert [(row.id, row.outcome, row.message_offset) for row in requeued] == [
        (dead_letter_id, "queued", 1) for dead_letter_id in ids
    ]
    assert len({row.message_id for row in requeued}) == 1
    assert await dead_letter_ids(queue.database) == []
    for group in ("g", "h", "done"):
        delivery = await queue.pop(10, group)
        assert delivery.payloads == ["a"], group
        await queue.ack(delivery, "dlq", group=group)
    rows = await queue.database.fetch(
        "SELECT deaths, earlier_attempts, first_transaction_id FROM dead_letters"
    )
    assert [tuple(row) for row in rows] == [(2, 2, "order-7")] * 3
    assert await wrong_counts(queue.database) == []


async def test_a_requeue_to_all_groups_uses_an_encrypted_copy_of_the_message(queue: QueueUnderTest) -> None:
    await queue.group("h")
    await kill(queue, "a")
    await kill_pending(queue, group="h")
    await queue.configure(encrypted=True)
    ids = await dead_letter_ids(queue.database)
    store = DeadLetterStore(queue.database)
    assert {row.outcome for row in await store.requeue(ids, queue.now, audience="all")} == {"unsealed"}
    await store.replace_payloads({ids[1]: b"\x01sealed"}, {ids[1]: b"a"})
    assert {row.outcome for row in await store.requeue(ids, queue.now, audience="all")} == {"queued"}
    assert [message[3] for message in (await queue.pop(10)).messages] == [b"\x01sealed"]


async def test_dead_letters_of_a_deleted_group_are_requeued_to_all_groups(queue: QueueUnderTest) -> None:
    await queue.group("h")
    await kill(queue, "a")
    ids = await queue.group()
    await queue.database.fetch("SELECT delete_group_v1($1)", ids.group_id)
    await queue.ack(await queue.pop(1, "h"), group="h")
    await DeadLetterStore(queue.database).requeue(await dead_letter_ids(queue.database), queue.now)
    assert (await queue.pop(10, "h")).payloads == ["a"]


async def test_a_message_that_dies_again_keeps_its_lineage(queue: QueueUnderTest) -> None:
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
        await DeadLetterStore(queue.database).requeue([row["id"]], queue.now)
        for _ in range(2):
            await queue.ack(await queue.pop(), "failed", error="no")


async def test_a_requeue_into_a_full_queue_keeps_the_dead_letters_that_do_not_fit(
    queue: QueueUnderTest,
) -> None:
    await kill(queue, "a", "b", "c")
    await queue.push("d")
    await queue.configure(max_size=2)
    requeued = await DeadLetterStore(queue.database).requeue(await dead_letter_ids(queue.database), queue.now)
    assert [row.outcome for row in sorted(requeued, key=lambda row: row.id)] == [
        "queued", "queue_full", "queue_full"
    ]  # fmt: skip
    assert len(await dead_letter_ids(queue.database)) == 2
    assert (await queue.pop(10)).payloads == ["d", "a"]
    assert await wrong_counts(queue.database) == []


async def test_a_plain_dead_letter_of_an_encrypted_queue_is_not_requeued_plain(
    queue: QueueUnderTest,
) -> None:
    await kill(queue, "a")
    await queue.configure(encrypted=True)
    ids = await dead_letter_ids(queue.database)
    assert [row.outcome for row in await DeadLetterStore(queue.database).requeue(ids, queue.now)] == [
        "unsealed"
    ]
    await DeadLetterStore(queue.database).replace_payloads({ids[0]: b"\x01sealed"}, {ids[0]: b"a"})
    assert [row.outcome for row in await DeadLetterStore(queue.database).requeue(ids, queue.now)] == [
        "queued"
    ]
    assert [message[3] for message in (await queue.pop()).messages] == [b"\x01sealed"]


async def test_one_dead_letter_is_deleted_by_id(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b")
    first, second = await dead_letter_ids(queue.database)
    delete = DeadLetterStore(queue.database).delete
    assert not await delete(DEFAULT_SCOPE, first, queue="orders", group="other")
    assert not await delete(DEFAULT_SCOPE, first, queue="other", group="g")
    assert await delete(DEFAULT_SCOPE, first, queue="orders", group="g")
    assert not await delete(DEFAULT_SCOPE, first)
    assert await dead_letter_ids(queue.database) == [second]


async def test_a_job_purges_only_matching_dead_letters(queue: QueueUnderTest) -> None:
    for number in range(10):
        await kill(queue, str(number), error="odd" if number % 2 else "even", partition=f"p{number % 3}")
        queue.later(1)
    await queue.group("h")
    await kill_pending(queue, group="h")
    job = await run_job(queue, "purge", DeadLetterFilter(group="g", error="ODD"), now=AFTER)
    assert (job.state, job.changed, job.total, job.total_is_exact) == ("done", 5, 5, True)
    assert job.scanned == 10
    remaining = await queue.database.fetch("SELECT error, group_id FROM dead_letters")
    assert (len(remaining), {row["error"] for row in remaining[:5]}) == (15, {"even"})
    assert (await run_job(queue, "purge", DeadLetterFilter(partition="p0"), now=AFTER)).changed == 2 + 4
    assert (
        await run_job(queue, "purge", dead_letter_ids=(await dead_letter_ids(queue.database))[:4], now=AFTER)
    ).changed == 4
    assert (await run_job(queue, "purge", DeadLetterFilter(queue="none"), now=AFTER)).changed == 0
    assert (await run_job(queue, "purge", now=AFTER)).changed == 5
    assert await wrong_counts(queue.database) == []


async def test_a_job_requeues_each_message_once_even_if_it_dies_again_meanwhile(
    queue: QueueUnderTest,
) -> None:
    await kill(queue, *"abcdefg")
    owner = uuid.uuid4()
    queue.later(1)
    job = await JobStore(queue.database).create(DEFAULT_SCOPE, "requeue", DeadLetterFilter(), now=queue.now)
    assert (job.total, job.total_is_exact) == (7, True)
    queue.later(1)
    await JobStore(queue.database).lease(owner)
    state = "running"
    while state == "running":
        advanced = await JobStore(queue.database).advance(job.id, owner, 2, 50, True)
        state = advanced.job.state
        # Requeued messages carry the time of the real clock, which is before the clock of the test.
        assert await kill_pending(queue) == sum(advanced.requeued.values())
    assert advanced.job.changed == 7
    rows = await queue.database.fetch("SELECT deaths, payload FROM dead_letters ORDER BY message_offset")
    assert [(row["deaths"], row["payload"].decode()) for row in rows] == [(2, letter) for letter in "abcdefg"]


async def test_a_job_waits_for_room_in_the_queue_and_continues(queue: QueueUnderTest) -> None:
    await kill(queue, *"abc")
    await queue.configure(max_size=2)
    job = await run_job(queue, "requeue", now=AFTER)
    assert (job.state, job.changed, job.note) == ("running", 2, "queue_full orders")
    assert job.owner is not None
    await queue.ack(await queue.pop(2))
    advanced = await JobStore(queue.database).advance(job.id, job.owner, 3, 50, True)
    assert (advanced.job.changed, advanced.job.note) == (3, None)
    assert (await JobStore(queue.database).advance(job.id, job.owner, 3, 50, True)).job.state == "done"


async def test_an_expired_job_lease_is_taken_over(queue: QueueUnderTest) -> None:
    expiring_jobs = JobStore(queue.database, lease_ms=0)
    await kill(queue, *"abcdef")
    first, second = uuid.uuid4(), uuid.uuid4()
    job = await JobStore(queue.database).create(DEFAULT_SCOPE, "purge", DeadLetterFilter(), now=AFTER)
    await expiring_jobs.lease(first)
    await expiring_jobs.advance(job.id, first, 2, 50, False)
    taken_over = await expiring_jobs.lease(second)
    assert taken_over is not None
    assert (taken_over.id, taken_over.changed) == (job.id, 2)
    stale = await expiring_jobs.advance(job.id, first, 2, 50, False)
    assert (stale.job.owner, stale.job.changed) == (second, 2), "the old owner changes nothing"
    while (await JobStore(queue.database).advance(job.id, second, 2, 50, False)).job.state == "running":
        assert await JobStore(queue.database).lease(first) is None
    assert await dead_letter_ids(queue.database) == []


async def test_a_cancelled_job_processes_no_further_batch(queue: QueueUnderTest) -> None:
    await kill(queue, *"abcdef")
    owner = uuid.uuid4()
    job = await JobStore(queue.database).create(DEFAULT_SCOPE, "purge", DeadLetterFilter(), now=AFTER)
    await JobStore(queue.database).lease(owner)
    await JobStore(queue.database).advance(job.id, owner, 2, 50, False)
    cancelled = await JobStore(queue.database).cancel(DEFAULT_SCOPE, job.id)
    assert cancelled is not None
    assert (cancelled.state, cancelled.changed) == ("cancelled", 2)
    assert (await JobStore(queue.database).advance(job.id, owner, 2, 50, False)).job.changed == 2
    assert len(await dead_letter_ids(queue.database)) == 4
    assert await JobStore(queue.database).lease(owner) is None


async def test_two_jobs_on_the_same_dead_letters_change_each_one_once(queue: QueueUnderTest) -> None:
    for number in range(60):
        await queue.push(str(number), partition=f"p{number % 5}")
    await kill_pending(queue)
    owner = uuid.uuid4()
    made = {}
    for kind in ("purge", "requeue"):
        made[kind] = await JobStore(queue.database).create(DEFAULT_SCOPE, kind, DeadLetterFilter(), now=AFTER)
        await JobStore(queue.database).lease(owner)

    async def run_to_end(kind: str) -> int:
        while True:
            advanced = await JobStore(queue.database).advance(made[kind].id, owner, 4, 50, kind == "requeue")
            if advanced.job.state == "done":
                changed: int = advanced.job.changed
                return changed

    changed = await asyncio.gather(run_to_end("purge"), run_to_end("requeue"))
    assert sum(changed) == 60
    assert (await queue.depth())[0] == changed[1]
    assert await wrong_counts(queue.database) == []


async def test_deleting_a_queue_deletes_its_dead_letter_counts(queue: QueueUnderTest) -> None:
    await kill(queue, "a", "b")
    await dead_letter_counts.fold_deltas(queue.database)
    await kill(queue, "c")
    ids = await queue.group()
    await queue.database.fetch("SELECT delete_queue_v1($1)", ids.queue_id)
    for table in ("dead_letters", "dead_tallies", "dead_counts", "dead_error_counts", "dead_hours"):
        assert await queue.database.fetch(f"SELECT 1 FROM {table}") == [], table
