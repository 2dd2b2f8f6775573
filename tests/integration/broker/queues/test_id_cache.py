"""Ids are cached, and resolved again when their queue or group was deleted."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.broker.queues.pop import PopOptions
from penstock.caller import LOCAL_CALLER
from penstock.durable.pool import Database
from penstock.errors import TransactionFailed
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, ack, payloads, pop, push


async def delete_queue(database: Database, queue: str = "q") -> None:
    """Delete a queue without notifying the broker."""
    await database.fetch("DELETE FROM queues WHERE name = $1", queue)


async def test_a_push_recreates_a_deleted_queue(broker: Broker, database: Database) -> None:
    await push(broker, "old")
    await pop(broker)
    await delete_queue(database)
    assert [result.status for result in await push(broker, "new")] == ["queued"]
    assert payloads(await pop(broker, batch=5)) == ["new"]


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_a_pop_finds_a_deleted_queue_that_was_created_again(
    broker: Broker, database: Database, partition: str | None
) -> None:
    await push(broker, "old")
    assert payloads(await pop(broker, partition=partition)) == ["old"]
    await delete_queue(database)
    assert payloads(await pop(broker, partition=partition)) == []
    await push(broker, "new")
    assert payloads(await pop(broker, partition=partition)) == ["new"]


async def test_only_messages_of_the_deleted_queue_are_pushed_again(
    broker: Broker, database: Database
) -> None:
    messages = [NewMessage(queue, "Default", b"1") for queue in ("deleted", "kept")]
    await broker.push(DEFAULT_SCOPE, messages)
    await delete_queue(database, "deleted")
    assert [result.status for result in await broker.push(DEFAULT_SCOPE, messages)] == ["queued", "queued"]
    assert len((await pop(broker, "kept", batch=10)).messages) == 2
    assert len((await pop(broker, "deleted", batch=10)).messages) == 1


async def test_a_transaction_on_a_deleted_queue_changes_nothing_and_the_next_one_succeeds(
    broker: Broker, database: Database
) -> None:
    await push(broker, "old")
    await delete_queue(database)
    message = [NewMessage("q", "Default", b"new")]
    with pytest.raises(TransactionFailed) as error:
        await broker.transaction(DEFAULT_SCOPE, message, [])
    assert (error.value.kind, error.value.item, error.value.reason) == ("push", 0, "partition_gone")
    await broker.transaction(DEFAULT_SCOPE, message, [])
    assert payloads(await pop(broker)) == ["new"]


async def test_an_ack_on_a_deleted_queue_loses_its_lease(broker: Broker, database: Database) -> None:
    await push(broker, "old")
    popped = await pop(broker)
    await delete_queue(database)
    assert [result.outcome for result in await ack(broker, popped)] == ["lease_lost"]


async def test_a_deleted_group_starts_again(broker: Broker, database: Database) -> None:
    await push(broker, "a")
    await ack(broker, await pop(broker))
    await database.fetch("DELETE FROM groups WHERE name = 'g'")
    assert payloads(await pop(broker)) == ["a"]


async def test_ids_are_resolved_once(brokers: Brokers, database: Database) -> None:
    broker = await brokers.start()
    await push(broker, "a")
    group = await broker.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")
    await database.fetch("ALTER FUNCTION ensure_partitions_v1 RENAME TO unavailable_partition_function")
    await database.fetch("ALTER FUNCTION ensure_group_v1 RENAME TO unavailable_group_function")
    await push(broker, "b")
    assert await broker.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g") == group


async def test_the_start_of_a_group_is_set_by_its_first_pop(broker: Broker) -> None:
    await push(broker, "old")
    new_only = PopOptions(subscription="new")
    assert not (await broker.pop(LOCAL_CALLER, "q", "late", new_only)).messages
    await push(broker, "recent")
    everything = PopOptions(subscription="all", batch=5)
    popped = await broker.pop(LOCAL_CALLER, "q", "late", everything)
    assert payloads(popped) == ["recent"]


async def test_partitions_past_a_limit_fail_alone_among_those_created_together(broker: Broker) -> None:
    await broker.queues.configure(DEFAULT_SCOPE, "limited", {"maxPartitions": 3})
    names = [(queue, f"p{number}") for number in range(10) for queue in ("limited", "free")]
    results = await asyncio.gather(
        *(push(broker, "x", queue=queue, partition=partition) for queue, partition in names)
    )
    statuses: dict[str, list[str]] = {"limited": [], "free": []}
    for (queue, _), [result] in zip(names, results, strict=True):
        statuses[queue].append(result.status)
    assert statuses["free"] == ["queued"] * 10
    assert sorted(statuses["limited"]) == ["failed"] * 8 + ["queued"] * 2, "Default is the third partition"
