"""Test steps that create dead letters, run jobs, and compare counts with rows."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.durable.dead_letters.jobs import DeadLetterJob, JobStore
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.queue_under_test import QueueUnderTest


async def kill(
    queue: QueueUnderTest, *payloads: str, error: str = "boom", group: str = "g", **push: Any
) -> None:
    """Push messages and move each to the dead letters of a group."""
    await queue.group(group)
    await queue.push(*payloads, **push)
    await kill_pending(queue, error=error, group=group)


async def kill_pending(queue: QueueUnderTest, *, error: str = "boom", group: str = "g") -> int:
    """Move all messages that a group can pop to its dead letters; return their number."""
    killed = 0
    while (delivery := await queue.pop(100, group)).messages:
        await queue.ack(delivery, "dlq", group=group, error=error)
        killed += len(delivery.messages)
    return killed


async def dead_letter_ids(database: Database) -> list[int]:
    return [row["id"] for row in await database.fetch("SELECT id FROM dead_letters ORDER BY id")]


async def wrong_counts(database: Database) -> list[Any]:
    """Return where counts and rows differ, by queue and group, error, and slice, in one snapshot."""
    return await database.fetch(
        """WITH totals AS (SELECT queue_id, group_id, messages FROM dead_counts
                         UNION ALL SELECT queue_id, group_id, messages FROM dead_tallies
                         UNION ALL SELECT queue_id, group_id, -1 FROM dead_letters),
                errors AS (SELECT queue_id, group_id, error_key, messages FROM dead_error_counts
                           UNION ALL SELECT queue_id, group_id, error_key, messages FROM dead_tallies
                           UNION ALL SELECT queue_id, group_id,
                                            coalesce(error_key, '00000000-0000-0000-0000-000000000000'), -1
                                     FROM dead_letters),
                slices AS (SELECT queue_id, group_id, error_key, hour, messages FROM dead_hours
                           UNION ALL SELECT queue_id, group_id, error_key, hour, messages FROM dead_tallies
                           UNION ALL SELECT queue_id, group_id,
                                            coalesce(error_key, '00000000-0000-0000-0000-000000000000'),
                                            CASE WHEN error_key IS NULL THEN '-infinity' ELSE
                                            date_bin('1 hour', failed_at, '2000-01-01T00:00:00Z') END, -1
                                     FROM dead_letters)
           SELECT 'total' AS count, queue_id, group_id, sum(messages) AS difference FROM totals
           GROUP BY 2, 3 HAVING sum(messages) <> 0
           UNION ALL
           SELECT 'error ' || error_key, queue_id, group_id, sum(messages) FROM errors
           GROUP BY error_key, 2, 3 HAVING sum(messages) <> 0
           UNION ALL
           SELECT 'slice ' || error_key || ' ' || hour, queue_id, group_id, sum(messages) FROM slices
           GROUP BY error_key, hour, 2, 3 HAVING sum(messages) <> 0"""
    )


async def recount(database: Database) -> int:
    """Recount all slices; return by how many dead letters the counts were wrong."""
    drift = 0
    for _ in range(1_000):
        step = await dead_letter_counts.recount(database)
        drift += step.drift
        if step.ended:
            return drift
    raise AssertionError("the recount does not end")


async def run_job(
    queue: QueueUnderTest,
    kind: str,
    selection: DeadLetterFilter | None = None,
    *,
    batch: int = 3,
    **options: Any,
) -> DeadLetterJob:
    """Run a job to its end, as one broker does; return the job afterwards."""
    owner = uuid.uuid4()
    store = JobStore(queue.database)
    created = await store.create(DEFAULT_SCOPE, kind, selection or DeadLetterFilter(), **options)
    leased = await store.lease(owner)
    assert leased is not None
    assert leased.id == created.id
    for _ in range(1_000):
        advanced = await store.advance(created.id, owner, batch, 50, kind == "requeue")
        if advanced.job.state != "running" or advanced.job.note or advanced.unencrypted:
            return advanced.job
    raise AssertionError("the job does not end")
