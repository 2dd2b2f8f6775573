"""Asking about dead letters reads a page of them, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from penstock.durable.dead_letters import dead_letter_counts, dead_letter_queries, jobs
from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.durable.pool import SESSION
from penstock.model import DEFAULT_SCOPE
from tests.integration.databases import new_database
from tests.integration.durable.query_plans import DIRECT, Watched

LETTERS = 20_000
PLACES = 8
ERRORS = 5
PAGE = 20
READ = PAGE + 1
"""One more shows where a moment ends: letters of the same one are in the order of their ids."""


@pytest_asyncio.fixture(scope="module")
async def url(postgres_url: str, template: str) -> AsyncIterator[str]:
    """20,000 letters of 4 queues and 2 groups each, over two days."""
    async with new_database(postgres_url, template) as made:
        connection = await asyncpg.connect(made, server_settings=SESSION)
        await connection.execute(
            """INSERT INTO environments (organization, project, name)
               VALUES ('default', 'default', 'default');
               INSERT INTO queues (environment_id, name)
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
               JOIN (SELECT g.*, row_number() OVER (ORDER BY id) - 1 AS place FROM groups g) g
                 ON g.place = n % $3::int
               JOIN partitions t ON t.queue_id = g.queue_id""",
            LETTERS,
            ERRORS,
            PLACES,
        )
        await dead_letter_counts.fold(connection)
        await connection.execute("VACUUM ANALYZE dead_letters")
        await connection.close()
        yield made


async def status(database: Any) -> object:
    return await dead_letter_queries.status(database, DEFAULT_SCOPE, ages=True)


async def groups(database: Any) -> object:
    return await dead_letter_queries.error_groups(database, DEFAULT_SCOPE, limit=PAGE, offset=0)


def page(**which: Any) -> Callable[[Any], Awaitable[object]]:
    async def call(database: Any) -> object:
        return (await dead_letter_queries.page(database, DEFAULT_SCOPE, Filter(**which), limit=PAGE)).rows

    return call


async def page_of_an_error(database: Any) -> object:
    [row, *_] = await dead_letter_queries.error_groups(database, DEFAULT_SCOPE, limit=1, offset=0)
    return await page(error_key=row["error_key"])(database)


async def total(database: Any) -> object:
    return await dead_letter_queries.total(database, DEFAULT_SCOPE, Filter(queue="q1", group="g0"))


async def chunk(database: Any) -> object:
    owner = uuid4()
    made = await jobs.make(database, DEFAULT_SCOPE, "purge", Filter(queue="q2"))
    await database.fetch("UPDATE jobs SET state = 'running', owner = $2 WHERE id = $1", made["id"], owner)
    return (await jobs.advance(database, made["id"], owner, PAGE, 100, False)).job["changed"] == PAGE


@pytest.mark.parametrize(
    ("call", "letters"),
    [
        pytest.param(status, PLACES, id="counts and ages"),
        pytest.param(groups, PLACES * ERRORS, id="groups of errors"),
        pytest.param(page(), 4 * READ, id="the latest letters"),
        pytest.param(page(queue="q1"), READ, id="of a queue"),
        pytest.param(page(queue="q1", group="g1"), READ, id="of a group"),
        pytest.param(page_of_an_error, PLACES * READ, id="of an error"),
        pytest.param(page(error="b failed", queue="q1"), LETTERS // 4, id="with a text, of one queue"),
        pytest.param(total, 0, id="a total"),
        pytest.param(chunk, 101, id="a chunk of a job"),
    ],
)
async def test_what_is_asked_decides_how_many_letters_are_read(
    url: str, call: Callable[[Any], Awaitable[object]], letters: int
) -> None:
    watched = await Watched.connect(url)
    try:
        for _ in range(7):  # until plans are settled
            watched.take()
            assert await call(watched)
        scans = [scan for scan in watched.take() if scan.table == "dead_letters"]
    finally:
        await watched.connection.close()
    assert [scan for scan in scans if scan.how not in DIRECT] == []
    assert bool(scans) == bool(letters), "what is read is seen"
    read = max((scan.rows for scan in scans), default=0)
    assert read <= letters, [(scan.index, scan.rows, scan.statement[:80]) for scan in scans]
