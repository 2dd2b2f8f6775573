"""When a token is revoked or expires, its waiting pops end and its leases are released."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import Ack, MessageLease, NewMessage, PopResult
from penstock.broker.overload.load import Decision
from penstock.broker.queues.pop import PopOptions
from penstock.caller import ALL_ACCESS, Caller
from penstock.durable.pool import SCHEMA
from penstock.errors import Unauthorized
from penstock.model import DEFAULT_SCOPE, Scope
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import Brokers, payloads, wait_for_parked_pops
from tests.integration.environments import create_environment

WAIT = PopOptions(wait_s=60)


async def create_caller(url: str, *, environment: Scope = DEFAULT_SCOPE, admin: bool = False) -> Caller:
    """Create the row of a token, and its caller."""
    connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
    try:
        number = await connection.fetchval(
            "INSERT INTO access_tokens (id, environment_id, name, scopes, is_platform_admin, created_by) "
            "SELECT $1, id, $2, '{consume}', $3, 'test' FROM environments WHERE name = 'default' "
            "RETURNING number",
            token_id := uuid4(),
            str(token_id),
            admin,
        )
    finally:
        await connection.close()
    return Caller(environment, ALL_ACCESS, "token:test", token_id=str(token_id), token_number=number)


async def push(broker: Broker, *texts: str, scope: Scope = DEFAULT_SCOPE, partition: str = "p") -> None:
    await broker.push(scope, [NewMessage("q", partition, text.encode()) for text in texts])


def acks_of(popped: PopResult) -> list[Ack]:
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    return [Ack(m.partition_id, *lease, m.transaction_id, "completed") for m in popped.messages]


async def end(caller: Caller, *brokers: Broker) -> None:
    caller.active = False
    for broker in brokers:
        broker.pops.end_inactive_callers()
        await broker.pops.release_leases_of_tokens([caller.token_number])


@pytest.mark.parametrize("queue_exists", [True, False])
async def test_parked_pops_of_an_ended_token_end_and_the_others_keep_waiting(
    broker: Broker, database_url: str, queue_exists: bool
) -> None:
    revoked, active = await create_caller(database_url), await create_caller(database_url)
    if queue_exists:
        await broker.queues.configure(DEFAULT_SCOPE, "q", {})
    waiting = {
        caller: asyncio.create_task(broker.pop(caller, "q", "g", WAIT)) for caller in (revoked, active)
    }
    await wait_for_parked_pops(broker, 2)
    await end(revoked, broker)
    async with asyncio.timeout(deadline_s(20)):
        with pytest.raises(Unauthorized, match="revoked or has expired"):
            await waiting[revoked]
        await push(broker, "a")
        assert payloads(await waiting[active]) == ["a"]


async def test_leases_of_an_ended_token_are_released_for_waiting_pops_of_all_brokers(
    brokers: Brokers, database_url: str
) -> None:
    first, second = await brokers.start(), await brokers.start()
    revoked, active = await create_caller(database_url), await create_caller(database_url)
    for partition in ("a", "b"):
        await push(first, partition, partition=partition)
    held = await first.pop(revoked, "q", "g", PopOptions())
    kept = await first.pop(active, "q", "g", PopOptions())
    waiting = asyncio.create_task(second.pop(active, "q", "g", WAIT))
    await wait_for_parked_pops(second, 1)
    await end(revoked, first, second)
    async with asyncio.timeout(deadline_s(20)):
        popped = await waiting
    assert payloads(popped) == payloads(held)
    assert popped.messages[0].attempts == 0
    [lost] = await first.ack(DEFAULT_SCOPE, acks_of(held))
    [acked] = await first.ack(DEFAULT_SCOPE, acks_of(kept))
    assert (lost.outcome, acked.outcome) == ("lease_lost", "completed")


async def test_a_pop_that_ends_after_its_token_gets_nothing_and_leases_nothing(
    broker: Broker, database_url: str
) -> None:
    caller = await create_caller(database_url)
    await push(broker, "a")
    await broker.pop(caller, "q", "g", PopOptions(auto_ack=True))
    await push(broker, "b")
    pop = asyncio.create_task(broker.pop(caller, "q", "g", PopOptions()))
    await asyncio.sleep(0)  # it is in its batch
    caller.active = False
    with pytest.raises(Unauthorized):
        await pop
    other = await create_caller(database_url)
    assert payloads(await broker.pop(other, "q", "g", WAIT)) == ["b"]


async def test_deferred_acks_of_an_ended_token_are_executed(broker: Broker, database_url: str) -> None:
    caller = await create_caller(database_url)
    await push(broker, "a")
    popped = await broker.pop(caller, "q", "g", PopOptions())
    await broker.drain.stop()
    [receipt] = await broker.ack(DEFAULT_SCOPE, acks_of(popped), Decision.DEFER)
    assert receipt.outcome == "accepted"
    await end(caller, broker)
    assert await broker.drain.run_round()
    other = await create_caller(database_url)
    assert payloads(await broker.pop(other, "q", "g", PopOptions())) == []
    totals = await broker.store.catalog.sum_environment(DEFAULT_SCOPE)
    assert (totals.depth, totals.running) == (0, 0)


@pytest.mark.parametrize("admin", [False, True])
async def test_leases_of_a_platform_administrator_are_released_in_every_environment(
    broker: Broker, database_url: str, admin: bool
) -> None:
    environment = Scope("acme", "shop", "production")
    await create_environment(broker.database, environment)
    caller = await create_caller(database_url, environment=environment, admin=admin)
    await push(broker, "a", scope=environment)
    popped = await broker.pop(caller, "q", "g", PopOptions())
    await end(caller, broker)
    [receipt] = await broker.ack(environment, acks_of(popped))
    assert receipt.outcome == ("lease_lost" if admin else "completed")
