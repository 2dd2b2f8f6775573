"""Queries on dead letters read about one page of rows, independent of their number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.dead_letter_store import (
    DeadLetterCursor,
    DeadLetterFilter,
    DeadLetterStore,
)
from penstock.durable.dead_letters.error_group_store import ErrorGroupStore
from penstock.durable.dead_letters.jobs import JobStore
from penstock.durable.pool import SESSION
from penstock.model import DEFAULT_SCOPE
from tests.integration.databases import new_database
from tests.integration.durable.query_plans import DIRECT, Watched

DEAD_LETTERS = 20_000
QUEUE_GROUPS = 8
ERRORS = 5
PAGE = 20
MAX_PAGE_ROWS = PAGE + 1
"""One more row shows where a timestamp ends: dead letters of one timestamp are ordered by id."""


@pytest_asyncio.fixture(scope="module")
async def url(postgres_url: str, template: str) -> AsyncIterator[str]:
    """20,000 dead letters of 4 queues with 2 groups each, over two days."""
    async with new_database(postgres_url, template) as database_url:
        connection = await asyncpg.connect(database_url, server_settings=SESSION)
        await connection.execute(
            """INSERT INTO queues (environment_id, name)
               SELECT id, 'q' || n FROM environments, generate_series(0, 3) n;
               INSERT INTO partitions (queue_id, name) SELECT id, 'p' FROM queues;
               INSERT INTO groups (queue_id, name) SELECT id, 'g' || n FROM queues, generate_series(0, 1) n"""
        )
        await connection.execute(
            """INSERT INTO dead_letters (queue_id, partition_id, group_id, message_offset, message_id,
                                         transaction_id, payload, error, attempts, created_at, failed_at)
               SELECT g.queue_id, t.id, g.id, n, gen_random_uuid(), n::text, '{}',
                      chr(97 + n % $2::int) || ' failed', 1, now(), now() - n * interval '8 seconds'
               FROM generate_series(1, $1::int) n
               JOIN (SELECT g.*, row_number() OVER (ORDER BY id) - 1 AS number FROM groups g) g
                 ON g.number = n % $3::int
               JOIN partitions t ON t.queue_id = g.queue_id""",
            DEAD_LETTERS,
            ERRORS,
            QUEUE_GROUPS,
        )
        await dead_letter_counts.fold_deltas(connection)
        await connection.execute("VACUUM ANALYZE dead_letters")
        await connection.close()
        yield database_url


async def status(database: Any) -> object:
    return await DeadLetterStore(database).list_counts(DEFAULT_SCOPE, ages=True)


async def groups(database: Any) -> object:
    return await ErrorGroupStore(database).list_error_groups(DEFAULT_SCOPE, limit=PAGE, offset=0)


def page(**which: Any) -> Callable[[Any], Awaitable[object]]:
    async def call(database: Any) -> object:
        return (
            await DeadLetterStore(database).read_page(DEFAULT_SCOPE, DeadLetterFilter(**which), limit=PAGE)
        ).dead_letters

    return call


def page_in_the_middle(**which: Any) -> Callable[[Any], Awaitable[object]]:
    async def call(database: Any) -> object:
        end = DeadLetterCursor(datetime.now(UTC) - timedelta(days=1), 1)
        page = await DeadLetterStore(database).read_page(
            DEFAULT_SCOPE, DeadLetterFilter(**which), limit=PAGE, before=end
        )
        return all(dead_letter.failed_at <= end.failed_at for dead_letter in page.dead_letters)

    return call


async def page_of_an_error(database: Any) -> object:
    [row, *_] = await ErrorGroupStore(database).list_error_groups(DEFAULT_SCOPE, limit=1, offset=0)
    return await page(error_key=row.error_key)(database)


async def total(database: Any) -> object:
    return await DeadLetterStore(database).count(DEFAULT_SCOPE, DeadLetterFilter(queue="q1", group="g0"))


async def chunk(database: Any) -> object:
    owner = uuid4()
    database_url = await JobStore(database).create(DEFAULT_SCOPE, "purge", DeadLetterFilter(queue="q2"))
    await database.fetch(
        "UPDATE jobs SET state = 'running', owner = $2 WHERE id = $1", database_url.id, owner
    )
    return (await JobStore(database).advance(database_url.id, owner, PAGE, 100, False)).job.changed == PAGE


@pytest.mark.parametrize(
    ("call", "max_rows"),
    [
        pytest.param(status, QUEUE_GROUPS, id="counts and ages"),
        pytest.param(groups, QUEUE_GROUPS * ERRORS, id="error groups"),
        pytest.param(page(), 4 * MAX_PAGE_ROWS, id="the latest dead letters"),
        pytest.param(page(queue="q1"), MAX_PAGE_ROWS, id="of a queue"),
        pytest.param(page(queue="q1", group="g1"), MAX_PAGE_ROWS, id="of a group"),
        pytest.param(page_in_the_middle(queue="q1"), MAX_PAGE_ROWS, id="of a queue, after a cursor"),
        pytest.param(
            page_in_the_middle(queue="q1", group="g1"), MAX_PAGE_ROWS, id="of a group, after a cursor"
        ),
        pytest.param(page_of_an_error, QUEUE_GROUPS * MAX_PAGE_ROWS, id="of an error"),
        pytest.param(page(error="b failed", queue="q1"), DEAD_LETTERS // 4, id="with a text, of one queue"),
        pytest.param(total, 0, id="a total"),
        pytest.param(chunk, 101, id="a batch of a job"),
    ],
)
async def test_a_query_reads_only_the_dead_letters_it_returns(
    url: str, call: Callable[[Any], Awaitable[object]], max_rows: int
) -> None:
    watched = await Watched.connect(url)
    try:
        for _ in range(7):  # until plans are cached
            watched.take()
            assert await call(watched)
        scans = [scan for scan in watched.take() if scan.table == "dead_letters"]
    finally:
        await watched.connection.close()
    assert [scan for scan in scans if scan.scan_type not in DIRECT] == []
    assert bool(scans) == bool(max_rows), "the scans are recorded"
    read = max((scan.rows for scan in scans), default=0)
    assert read <= max_rows, [(scan.index, scan.rows, scan.statement[:80]) for scan in scans]
