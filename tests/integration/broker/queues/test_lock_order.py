"""Pushes lock positions in the order of partition ids, like acks, so that the two never deadlock."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import ack, pop
from tests.waiting import wait_until_async

MESSAGES = [NewMessage("q", "later", b"1"), NewMessage("q", "first", b"2")]


async def create_drained_partitions(broker: Broker) -> None:
    """Create the partitions `first` and `later`, in that order, with a group that waits in both."""
    for partition in ("first", "later"):
        await broker.push(DEFAULT_SCOPE, [NewMessage("q", partition, b"0")])
    for _ in range(2):
        await ack(broker, await pop(broker))
    assert not (await pop(broker)).messages


async def is_waiting_for_lock(database: Database) -> bool:
    rows = await database.fetch("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return bool(rows)


@pytest.mark.parametrize("operation", ["push", "transaction"])
async def test_a_push_in_reverse_order_locks_the_first_partition_first(
    broker: Broker, database: Database, operation: str
) -> None:
    await create_drained_partitions(broker)
    lock_position = """SELECT 1 FROM positions p JOIN partitions t ON t.id = p.partition_id
                       WHERE t.name = $1 FOR UPDATE OF p NOWAIT"""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(lock_position.replace("$1", "'first'"))
        if operation == "push":
            work: asyncio.Task[object] = asyncio.create_task(broker.push(DEFAULT_SCOPE, MESSAGES))
        else:
            work = asyncio.create_task(broker.transaction(DEFAULT_SCOPE, MESSAGES, []))
        await wait_until_async(lambda: is_waiting_for_lock(database), 20, "the push waits for the position")
        # If the push held this position already, an ack of both partitions would deadlock with it.
        await connection.execute(lock_position.replace("$1", "'later'"))
    await work
