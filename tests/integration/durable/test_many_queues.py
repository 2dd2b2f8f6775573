"""Lists and gauges of many queues cost in proportion to the queues, also without statistics of the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio
from bench.scaled_database import WAITING_PER_PARTITION, Scale, fill, queue_name

from penstock.durable.catalog import QueueCatalog
from penstock.durable.consumer_groups import ConsumerGroups
from penstock.durable.queue_gauges import GaugeReader
from penstock.model import DEFAULT_SCOPE
from tests.integration.databases import new_database
from tests.integration.durable.query_plans import Watched

SCALE = Scale(queues=2_000, partitions=4_000, messages=100_000)
MAX_ROWS_PER_QUEUE = 5
"""Rows that one step of a plan may handle. The steps on partitions handle two for every queue."""
PAGE = 50


@pytest_asyncio.fixture(scope="module")
async def url(postgres_url: str, template: str) -> AsyncIterator[str]:
    """A database whose statistics are from when there was a single queue."""
    async with new_database(postgres_url, template) as url:
        connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"})
        await fill(url, Scale(1, 1, 10), lambda queues: None, first_queue=SCALE.queues)
        for table in ("queues", "groups", "partitions", "positions", "tallies", "log_1"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await connection.execute("ANALYZE")
        await connection.execute("SELECT delete_queue_v1(id) FROM queues")
        await connection.close()
        await fill(url, SCALE, lambda queues: None)
        yield url


Call = Callable[[Watched], Awaitable[object]]


async def all_gauges(database: Watched) -> object:
    ids = [row["id"] for row in await database.fetch("SELECT id FROM queues")]
    return await GaugeReader(database).of_queues(ids)


async def exported_gauges(database: Watched) -> object:
    return await GaugeReader(database).of_environment_queues(DEFAULT_SCOPE, SCALE.queues)


async def environment_gauges(database: Watched) -> object:
    return await GaugeReader(database).of_environments([DEFAULT_SCOPE])


async def console_list(database: Watched) -> object:
    return await GaugeReader(database).list_queues(DEFAULT_SCOPE)


async def environment_totals(database: Watched) -> object:
    return await QueueCatalog(database).sum_environment(DEFAULT_SCOPE)


async def queue_page(database: Watched) -> object:
    return await QueueCatalog(database).list_queues(DEFAULT_SCOPE, limit=PAGE, offset=SCALE.queues - PAGE)


async def holdings_page(database: Watched) -> object:
    return await QueueCatalog(database).list_holdings(DEFAULT_SCOPE, limit=PAGE)


async def partition_page(database: Watched) -> object:
    return await QueueCatalog(database).list_partitions(DEFAULT_SCOPE, limit=PAGE)


async def group_page(database: Watched) -> object:
    return await ConsumerGroups(database).list_groups(DEFAULT_SCOPE, limit=PAGE)


@pytest.mark.parametrize(
    "call",
    [
        all_gauges,
        exported_gauges,
        environment_gauges,
        console_list,
        environment_totals,
        queue_page,
        holdings_page,
        partition_page,
        group_page,
    ],
)
async def test_no_step_compares_every_queue_with_every_other_one(url: str, call: Call) -> None:
    database = await Watched.connect(url)
    try:
        assert await call(database)
    finally:
        await database.connection.close()
    assert SCALE.queues <= database.most_rows <= MAX_ROWS_PER_QUEUE * SCALE.queues


async def test_gauges_and_totals_of_many_queues_are_those_of_their_messages(url: str) -> None:
    database = await Watched.connect(url)
    try:
        gauges = await GaugeReader(database).of_environment_queues(DEFAULT_SCOPE, SCALE.queues)
        first_gauges = await GaugeReader(database).of_environment_queues(DEFAULT_SCOPE, 20)
        counted = await GaugeReader(database).count_environment_queues(DEFAULT_SCOPE)
        totals = await QueueCatalog(database).sum_environment(DEFAULT_SCOPE)
        page = await QueueCatalog(database).list_queues(DEFAULT_SCOPE, limit=PAGE, offset=1_990)
        partitions = await QueueCatalog(database).list_partitions(DEFAULT_SCOPE, limit=PAGE)
    finally:
        await database.connection.close()
    waiting = WAITING_PER_PARTITION * SCALE.partitions_per_queue
    depths = {gauge.queue: gauge.depth for gauge in gauges if not gauge.group_name}
    assert depths == {queue_name(n): 0 if n % 10 else waiting for n in range(SCALE.queues)}
    assert {gauge.queue for gauge in gauges if gauge.oldest_at} == {
        queue_name(number) for number in range(0, SCALE.queues, 10)
    }
    assert len({gauge.queue for gauge in first_gauges}) == 20
    assert counted == totals.queues == totals.groups == SCALE.queues
    stored = SCALE.stored
    assert (totals.partitions, totals.pushed, totals.kept) == (
        stored.partitions,
        stored.messages,
        stored.messages,
    )
    assert (totals.depth, totals.running, totals.dead) == (SCALE.queues // 10 * waiting, 0, 0)
    assert [queue.name for queue in page] == [queue_name(number) for number in range(1_990, 2_000)]
    assert {(queue.total, queue.partitions, queue.groups) for queue in page} == {(SCALE.queues, 2, 1)}
    assert (len(partitions), {partition.total for partition in partitions}) == (PAGE, {SCALE.partitions})
