"""Cost stays flat: every statement inside push, pop, ack and gauges goes by an index, in small and large."""

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
    """Ten times as much of everything."""
    async with new_database(postgres_url, template) as url:
        yield await filled(url, partitions=10_000, segments=30, chunks=1)


@pytest_asyncio.fixture(scope="module")
async def chunked(postgres_url: str, template: str) -> AsyncIterator[Filled]:
    """As much as in the shallow one, in three chunks."""
    async with new_database(postgres_url, template) as url:
        yield await filled(url, partitions=1_000, segments=30, chunks=3)


async def scans_of(database: Filled, *prepare: str, rounds: int = 7) -> dict[str, list[Scan]]:
    """The scans of each operation, once its plans are settled."""
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


def wrong(found: dict[str, list[Scan]]) -> list[str]:
    """What reads a table without an index, or far more rows than it was asked for."""
    return [
        f"{operation}: {scan.how} of {scan.table} by {scan.index}, {scan.rows} rows: {scan.statement[:200]}"
        for operation, scans in found.items()
        for scan in scans
        if scan.how not in DIRECT or scan.rows > 300
    ]


async def test_every_statement_goes_by_an_index(deep: Filled) -> None:
    found = await scans_of(deep)
    assert wrong(found) == []
    tables = {operation: {scan.table for scan in scans} for operation, scans in found.items()}
    assert {"message_keys_1", "partitions", "positions"} <= tables["push"]
    assert {"log_1", "partitions", "positions"} <= tables["pop"] & tables["pop single"] & tables["ack"]
    assert "positions" in tables["gauges"]


async def test_every_statement_goes_by_an_index_in_every_chunk(chunked: Filled) -> None:
    found = await scans_of(chunked)
    assert wrong(found) == []
    tables = {operation: {scan.table for scan in scans} for operation, scans in found.items()}
    assert {f"message_keys_{n}" for n in (1, 2, 3)} <= tables["push"]
    assert {f"log_{n}" for n in (1, 2, 3)} <= tables["pop"] & tables["ack"]


@pytest.mark.parametrize("index", ["log_segments", "message_keys_lookup", "positions_ready"])
async def test_the_guard_notices_a_missing_index(shallow: Filled, index: str) -> None:
    assert wrong(await scans_of(shallow, "BEGIN", f"DROP INDEX {index}", rounds=1))


async def test_plans_made_while_the_tables_were_small_are_fit_for_large_ones(
    postgres_url: str, template: str
) -> None:
    """A connection keeps its plans, so what it chooses on a new database must do when it has grown."""
    async with new_database(postgres_url, template) as url:
        assert wrong(await scans_of(await filled(url, partitions=20, segments=3, chunks=1))) == []


async def costs_of(database: Filled) -> dict[str, int]:
    """Buffers of each operation, for a group that has caught up, once plans and caches are settled."""
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


async def test_ten_times_the_messages_and_partitions_cost_the_same(shallow: Filled, deep: Filled) -> None:
    """Counted in buffers, which do not depend on how busy the machine is. Trees may get a level deeper."""
    few, many = await least_costs_of(shallow), await least_costs_of(deep)
    assert {what: many[what] / few[what] for what in few if many[what] > 1.3 * few[what]} == {}


async def least_costs_of(filled: Filled) -> dict[str, float]:
    """The least of three, because a table that grows or is vacuumed meanwhile costs a few looks more."""
    found = [await costs_of(filled) for _ in range(3)]
    return {what: min(costs[what] for costs in found) for what in found[0]}


async def test_a_chunk_more_costs_a_look_into_it(shallow: Filled, chunked: Filled) -> None:
    """Each is looked into, so there are few of them; this is what one of them adds."""
    one, three = await least_costs_of(shallow), await least_costs_of(chunked)
    added = {what: (three[what] - one[what]) / 2 for what in one}
    assert {what: more for what, more in added.items() if more > one[what]} == {}
