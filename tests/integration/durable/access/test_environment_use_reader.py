"""What an environment stores: counted in closed chunks, estimated in the open one."""

from __future__ import annotations

import pytest

from penstock.durable import log
from penstock.durable.access.environment_use_reader import EnvironmentUseReader, StoredObjects
from penstock.durable.log import PartitionName
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE, CreationLimits, Scope
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.integration.durable.storage.chunk_steps import drop_all_messages, rotate, upkeep
from tests.integration.environments import create_environment

PAYLOAD = "x" * 1_000


async def count_first_chunk(database: Database) -> None:
    """Close the first chunk and count its bytes."""
    async with upkeep(database) as session:
        await rotate(session)
        row = await session.fetchrow("SELECT count_chunk_v1(1, 100000) AS stage")
        assert row is not None
        assert row["stage"] == "counted"


async def test_an_environment_without_queues_stores_nothing(database: Database) -> None:
    reader = EnvironmentUseReader(database)
    assert await reader.count_objects(Scope("acme", "shop", "none")) == StoredObjects(0, 0, 0)
    assert await reader.estimate_bytes(Scope("acme", "shop", "none")) == 0


async def test_bytes_of_open_and_closed_chunks_are_added(database: Database) -> None:
    queue, reader = QueueUnderTest(database), EnvironmentUseReader(database)
    for number in range(40):
        await queue.push(PAYLOAD, partition=f"p{number % 2}")
    in_open_chunk = await reader.estimate_bytes(DEFAULT_SCOPE)
    assert 40_000 < in_open_chunk < 50_000
    await count_first_chunk(database)
    assert await reader.estimate_bytes(DEFAULT_SCOPE) == in_open_chunk
    for number in range(40):
        await queue.push(PAYLOAD, partition=f"p{number % 4}")
    assert await reader.estimate_bytes(DEFAULT_SCOPE) == pytest.approx(2 * in_open_chunk, rel=0.01)
    assert await reader.count_objects(DEFAULT_SCOPE) == StoredObjects(1, 4, 80)


async def test_messages_that_retention_drops_do_not_count(database: Database) -> None:
    queue, reader = QueueUnderTest(database), EnvironmentUseReader(database)
    for _ in range(10):
        await queue.push(PAYLOAD)
    await count_first_chunk(database)
    await drop_all_messages(queue)
    assert await reader.estimate_bytes(DEFAULT_SCOPE) == 0
    assert await reader.count_objects(DEFAULT_SCOPE) == StoredObjects(1, 1, 0)


async def test_other_environments_do_not_count(database: Database) -> None:
    other = Scope("acme", "shop", "production")
    await create_environment(database, other)
    await QueueUnderTest(database, scope=other).push(PAYLOAD)
    reader = EnvironmentUseReader(database)
    assert await reader.count_objects(DEFAULT_SCOPE) == StoredObjects(0, 0, 0)
    assert await reader.count_objects(other) == StoredObjects(1, 1, 1)
    assert await reader.estimate_bytes(DEFAULT_SCOPE) == 0


async def test_new_partitions_are_created_in_the_order_of_their_names_up_to_the_limits(
    database: Database,
) -> None:
    names = [PartitionName(queue, partition) for queue in "abc" for partition in "xy"]
    await log.ensure_partitions(database, DEFAULT_SCOPE, [PartitionName("c", "x")])
    limits = CreationLimits(queues=2, partitions=3)
    created = await log.ensure_partitions(database, DEFAULT_SCOPE, names, limits)
    assert sorted(created) == [("a", "x"), ("a", "y"), ("c", "x")]
    exceeded = {
        name: await log.find_exceeded_quota(database, DEFAULT_SCOPE, [name], limits) for name in names
    }
    assert exceeded == dict(zip(names, [None, None, "queues", "queues", None, "partitions"], strict=True))
    assert sorted(await log.ensure_partitions(database, DEFAULT_SCOPE, names)) == names
