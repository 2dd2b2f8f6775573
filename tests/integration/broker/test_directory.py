"""Names to ids: remembered, and looked up again when what they named is gone."""

from __future__ import annotations

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.broker.queues.pop import PopOptions
from penstock.durable.pool import Database
from penstock.errors import TransactionFailed
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, ack, payloads, pop, push


async def delete(database: Database, queue: str = "q") -> None:
    """Behind the broker's back, as another broker would."""
    await database.fetch("DELETE FROM queues WHERE name = $1", queue)


async def test_a_deleted_queue_is_made_anew_by_a_push(broker: Broker, database: Database) -> None:
    await push(broker, "old")
    await pop(broker)
    await delete(database)
    assert [result.status for result in await push(broker, "new")] == ["queued"]
    assert payloads(await pop(broker, batch=5)) == ["new"]


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_a_deleted_queue_is_made_anew_by_a_pop(
    broker: Broker, database: Database, partition: str | None
) -> None:
    await push(broker, "old")
    assert payloads(await pop(broker, partition=partition)) == ["old"]
    await delete(database)
    assert payloads(await pop(broker, partition=partition)) == []
    await push(broker, "new")
    assert payloads(await pop(broker, partition=partition)) == ["new"]


async def test_only_what_is_gone_is_pushed_again(broker: Broker, database: Database) -> None:
    both = [NewMessage(queue, "Default", b"1") for queue in ("gone", "stays")]
    await broker.push(DEFAULT_SCOPE, both)
    await delete(database, "gone")
    assert [result.status for result in await broker.push(DEFAULT_SCOPE, both)] == ["queued", "queued"]
    assert len((await pop(broker, "stays", batch=10)).messages) == 2
    assert len((await pop(broker, "gone", batch=10)).messages) == 1


async def test_a_transaction_on_a_deleted_queue_does_nothing_and_the_next_one_works(
    broker: Broker, database: Database
) -> None:
    await push(broker, "old")
    await delete(database)
    message = [NewMessage("q", "Default", b"new")]
    with pytest.raises(TransactionFailed) as caught:
        await broker.transaction(DEFAULT_SCOPE, message, [])
    assert (caught.value.kind, caught.value.item, caught.value.reason) == ("push", 0, "partition_gone")
    await broker.transaction(DEFAULT_SCOPE, message, [])
    assert payloads(await pop(broker)) == ["new"]


async def test_an_ack_on_a_deleted_queue_is_told_that_its_lease_is_lost(
    broker: Broker, database: Database
) -> None:
    await push(broker, "old")
    popped = await pop(broker)
    await delete(database)
    assert [result.outcome for result in await ack(broker, popped)] == ["lease_lost"]


async def test_a_group_that_is_deleted_starts_anew(broker: Broker, database: Database) -> None:
    await push(broker, "a")
    await ack(broker, await pop(broker))
    await database.fetch("DELETE FROM groups WHERE name = 'g'")
    assert payloads(await pop(broker)) == ["a"]


async def test_names_are_looked_up_once(brokers: Brokers, database: Database) -> None:
    broker = await brokers.start()
    await push(broker, "a")
    group = await broker.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")
    await database.fetch("ALTER FUNCTION ensure_partitions_v1 RENAME TO out_of_reach")
    await database.fetch("ALTER FUNCTION ensure_group_v1 RENAME TO out_of_reach_too")
    await push(broker, "b")
    assert await broker.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g") == group


async def test_where_a_group_starts_is_decided_once(broker: Broker) -> None:
    await push(broker, "old")
    new = PopOptions(subscription="new")
    assert not (await broker.pop(DEFAULT_SCOPE, "q", "late", new)).messages
    await push(broker, "young")
    everything = PopOptions(subscription="all", batch=5)
    popped = await broker.pop(DEFAULT_SCOPE, "q", "late", everything)
    assert payloads(popped) == ["young"]
