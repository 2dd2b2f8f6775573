"""Every statement inside push, pop, ack and gauges uses an index, so cost is independent of the data size."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from penstock.durable.pool import SESSION
from tests.integration.databases import new_database
from tests.integration.durable.query_plans import DIRECT, Filled, Scan, Watched, fill, traffic


async def filled(url: str, **shape: int) -> Filled:
    connection = await asyncpg.connect(url, server_settings=SESSION)
    ids = await fill(connection, **shape)
    await connection.close()
    return Filled(url, *ids)


@pytest_asyncio.fixture(scope="module")
async def shallow(postgres_url: str, template: str) -> AsyncIterator[Filled]:
    """60,000 messages with keys in 30,000 segments and 1,000 partitions."""
    async with new_database(postgres_url, template) as url:
        yield await filled(url, partitions=1_000, segments=30, chunks=1)


@pytest_asyncio.fixture(scope="module")
async def deep(postgres_url: str, template: str) -> AsyncIterator[Filled]:
    """Ten times the partitions, segments and messages of `shallow`."""
    async with new_database(postgres_url, template) as url:
        yield await filled(url, partitions=10_000, segments=30, chunks=1)


@pytest_asyncio.fixture(scope="module")
async def chunked(postgres_url: str, template: str) -> AsyncIterator[Filled]:
    """The data of `shallow` in three chunks."""
    async with new_database(postgres_url, template) as url:
        yield await filled(url, partitions=1_000, segments=30, chunks=3)


async def scans_of(database: Filled, *prepare: str, rounds: int = 7) -> dict[str, list[Scan]]:
    """Return the scans of each operation, once its plans are cached."""
    watched = await Watched.connect(database.url)
    found = {}
    try:
        for statement in prepare:
            await watched.connection.execute(statement)
        calls = await traffic(watched, database)
        for _ in range(rounds):
            watched.take()
            await calls.push()
            found["push"] = watched.take()
            singles = await calls.pop_single()
            found["pop single"] = watched.take()
            await calls.ack(singles)
            watched.take()
            acks = await calls.pop()
            found["pop"] = watched.take()
            await calls.ack(acks)
            found["ack"] = watched.take()
            await calls.gauges()
            found["gauges"] = watched.take()
    finally:
        await watched.connection.close()
    return found


def bad_scans(found: dict[str, list[Scan]]) -> list[str]:
    """Describe scans that read a table without an index, or far more rows than requested."""
    return [
        f"{operation}: {scan.scan_type} of {scan.table} by {scan.index}, {scan.rows} rows: "
        f"{scan.statement[:200]}"
        for operation, scans in found.items()
        for scan in scans
        if scan.scan_type not in DIRECT or scan.rows > 300
    ]


async def test_every_statement_uses_an_index(deep: Filled) -> None:
    found = await scans_of(deep)
    assert bad_scans(found) == []
    tables = {operation: {scan.table for scan in scans} for operation, scans in found.items()}
    assert {"message_keys_1", "partitions", "positions"} <= tables["push"]
    assert {"log_1", "partitions", "positions"} <= tables["pop"] & tables["pop single"] & tables["ack"]
    assert "positions" in tables["gauges"]


async def test_every_statement_uses_an_index_in_every_chunk(chunked: Filled) -> None:
    found = await scans_of(chunked)
    assert bad_scans(found) == []
    tables = {operation: {scan.table for scan in scans} for operation, scans in found.items()}
    assert {f"message_keys_{n}" for n in (1, 2, 3)} <= tables["push"]
    assert {f"log_{n}" for n in (1, 2, 3)} <= tables["pop"] & tables["ack"]


@pytest.mark.parametrize("index", ["log_segments", "message_keys_lookup", "positions_ready"])
async def test_a_missing_index_is_detected(shallow: Filled, index: str) -> None:
    assert bad_scans(await scans_of(shallow, "BEGIN", f"DROP INDEX {index}", rounds=1))


async def test_plans_made_for_small_tables_use_indexes(postgres_url: str, template: str) -> None:
    """A connection caches its plans, so a plan made for a new database must also suit a large one."""
    async with new_database(postgres_url, template) as url:
        assert bad_scans(await scans_of(await filled(url, partitions=20, segments=3, chunks=1))) == []


async def costs_of(database: Filled) -> dict[str, int]:
    """Return the buffers of each operation for a group without backlog, once plans and caches are warm."""
    connection = await asyncpg.connect(database.url, server_settings=SESSION)
    try:
        calls = await traffic(connection, database)
        await calls.catch_up()
        await connection.execute("VACUUM ANALYZE positions")
        for _ in range(7):
            await calls.push()
            await calls.ack(await calls.pop_single())
            await calls.ack(await calls.pop())
            await calls.gauges()
        return await calls.costs()
    finally:
        await connection.close()


async def test_cost_does_not_grow_with_messages_and_partitions(shallow: Filled, deep: Filled) -> None:
    """Cost is counted in buffers, independent of the machine's load. Indexes may get a level deeper."""
    few, many = await least_costs_of(shallow), await least_costs_of(deep)
    assert {name: many[name] / few[name] for name in few if many[name] > 1.3 * few[name]} == {}


async def least_costs_of(filled: Filled) -> dict[str, float]:
    """Return the minimum of three runs: a table that grows or is vacuumed costs a few buffers more."""
    runs = [await costs_of(filled) for _ in range(3)]
    return {operation: min(costs[operation] for costs in runs) for operation in runs[0]}


async def test_each_additional_chunk_costs_one_more_index_probe(shallow: Filled, chunked: Filled) -> None:
    """A query probes every chunk, so there are few of them; this bounds the cost of one more."""
    one, three = await least_costs_of(shallow), await least_costs_of(chunked)
    added = {name: (three[name] - one[name]) / 2 for name in one}
    assert {name: cost for name, cost in added.items() if cost > one[name]} == {}
