"""Several brokers on one database: changes of one reach the others at once, even after lost connections."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import Ack, MessageLease, NewMessage
from penstock.durable.notifications import CHANNEL, NotificationBus
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import (
    Brokers,
    DelayedPops,
    ack,
    payloads,
    pop,
    push,
    start_waiting_pop,
    wait_for_parked_pops,
)
from tests.waiting import wait_until_async


async def wait_for_listeners(database: Database, count: int) -> None:
    """Wait until this many brokers receive notifications."""

    async def are_listening() -> bool:
        return len(await listener_pids(database)) == count

    await wait_until_async(are_listening, 10, f"{count} brokers listen")


async def listener_pids(database: Database) -> list[int]:
    rows = await database.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock news' "
        "AND datname = current_database() AND state = 'idle' ORDER BY backend_start"
    )
    return [row["pid"] for row in rows]


async def start_two(brokers: Brokers, database: Database) -> tuple[Broker, Broker]:
    first, second = await brokers.start(), await brokers.start()
    await wait_for_listeners(database, 2)
    return first, second


async def test_a_push_wakes_a_pop_of_another_broker(brokers: Brokers, database: Database) -> None:
    first, second = await start_two(brokers, database)
    took_s = []
    for n in range(10):
        waiting_pop = start_waiting_pop(second)
        await wait_for_parked_pops(second, 1)
        started = time.monotonic()
        await push(first, str(n))
        async with asyncio.timeout(deadline_s(10)):
            popped = await waiting_pop
        took_s.append(time.monotonic() - started)
        assert payloads(popped) == [str(n)]
        await ack(second, popped)
    assert sorted(took_s)[5] < deadline_s(0.2), took_s


async def test_a_freed_partition_wakes_a_pop_of_another_broker(brokers: Brokers, database: Database) -> None:
    first, second = await start_two(brokers, database)
    await push(first, "a", "b", "c")
    popped = await pop(first)
    waiting_pop = start_waiting_pop(second)
    await wait_for_parked_pops(second, 1)
    await ack(first, popped)
    async with asyncio.timeout(deadline_s(10)):
        popped = await waiting_pop
    assert payloads(popped) == ["b"]
    waiting_pop = start_waiting_pop(first)
    await wait_for_parked_pops(first, 1)
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    message = popped.messages[0]
    leased = Ack(message.partition_id, *lease, message.transaction_id, "completed")
    await second.transaction(DEFAULT_SCOPE, [NewMessage("elsewhere", "Default", b"1")], [leased])
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pop) == ["c"], "acked inside a transaction"


async def test_the_released_lease_of_a_cancelled_pop_wakes_a_pop_of_another_broker(
    brokers: Brokers, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await start_two(brokers, database)
    await push(first, "a")
    delayed_pops = DelayedPops(monkeypatch)
    delayed_pops.gate.clear()
    cancelled = asyncio.create_task(pop(first))

    async def is_leased() -> bool:
        return delayed_pops.executed == 1

    await wait_until_async(is_leased, 10, "the message is leased")
    waiting_pop = start_waiting_pop(second)
    cancelled.cancel()
    delayed_pops.gate.set()
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pop) == ["a"]


async def test_a_push_wakes_a_pop_of_its_partition_in_another_broker(
    brokers: Brokers, database: Database
) -> None:
    first, second = await start_two(brokers, database)
    waiting_pops = [start_waiting_pop(second, partition=name) for name in ("x", "y")]
    await wait_for_parked_pops(second, 2)
    await push(first, "for y", partition="y")
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pops[1]) == ["for y"]
    assert not waiting_pops[0].done()
    waiting_pops[0].cancel()


async def test_a_broker_resyncs_after_its_listener_reconnects(brokers: Brokers, database: Database) -> None:
    first, second = await start_two(brokers, database)
    waiting_pop = start_waiting_pop(second)
    await wait_for_parked_pops(second, 1)
    [_, lost_pid] = await listener_pids(database)
    await database.fetch("SELECT pg_terminate_backend($1)", lost_pid)
    await push(first, "a")
    async with asyncio.timeout(deadline_s(15)):
        assert payloads(await waiting_pop) == ["a"]
    await wait_for_listeners(database, 2)


async def test_notifications_collected_during_a_reconnect_are_sent_after_it(
    brokers: Brokers, database: Database
) -> None:
    first, second = await start_two(brokers, database)
    for n, listener in enumerate((0, 1, 1)):  # a reconnected listener comes last
        waiting_pop = start_waiting_pop(second, partition=f"p{n}")
        await wait_for_parked_pops(second, 1)
        await database.fetch("SELECT pg_terminate_backend($1)", (await listener_pids(database))[listener])
        await push(first, "a", partition=f"p{n}")
        async with asyncio.timeout(deadline_s(15)):
            assert payloads(await waiting_pop) == ["a"]
        await wait_for_listeners(database, 2)


async def test_changed_options_reach_another_broker(brokers: Brokers, database: Database) -> None:
    first, second = await start_two(brokers, database)
    await push(second, "before")

    async def lease_ms(broker: Broker) -> int | None:
        ids = await broker.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")
        assert ids is not None
        return ids.lease_ms

    assert not await lease_ms(second)
    await database.fetch("UPDATE queues SET lease_ms = 1234 WHERE name = 'q'")
    ids = await first.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")
    assert ids is not None
    first.notifications.publish_change(ids.queue_id)

    async def has_new_lease_time() -> bool:
        return await lease_ms(second) == 1234

    await wait_until_async(has_new_lease_time, 10, "the other broker knows the new lease time")


async def test_a_single_broker_sends_no_notifications(
    brokers: Brokers, database_url: str, database: Database
) -> None:
    broker = await brokers.start()
    await wait_for_listeners(database, 1)
    received: list[str] = []
    connection = await asyncpg.connect(database_url)
    await connection.add_listener(CHANNEL, lambda *notification: received.append(str(notification[-1])))
    await push(broker, "a", "b")
    await ack(broker, await pop(broker, batch=2))
    await connection.execute("SELECT pg_notify($1, 'test message')", CHANNEL)

    async def test_message_received() -> bool:
        return received == ["test message"]

    await wait_until_async(test_message_received, 10, "only the test's own message is received")
    await connection.close()


async def test_notifications_of_many_queues_and_partitions_arrive_completely(
    database_url: str, database: Database
) -> None:
    received: dict[int, tuple[int, object]] = {}
    resyncs: list[int] = []

    def create_bus(number: int) -> NotificationBus:
        return NotificationBus(
            database_url,
            on_ready=lambda queue_id, count, partition_ids: received.update(
                {queue_id: (count, partition_ids)}
            ),
            on_changed=lambda queue_id: received.update({-queue_id: (0, None)}),
            resync=lambda: resyncs.append(number),
        )

    receiver, sender = create_bus(1), create_bus(2)

    async def wait_for_resyncs(*numbers: int) -> None:
        async def have_resynced() -> bool:
            return resyncs == list(numbers)

        await wait_until_async(have_resynced, 10, f"{numbers} have resynced")

    await receiver.start()
    await wait_for_resyncs(1)
    await sender.start()
    await wait_for_resyncs(1, 2, 2)  # after its connection, and after its welcome
    queue_ids = range(10**17, 10**17 + 1_500)
    for queue_id in queue_ids:
        sender.publish(queue_id, 1, {1, 2})
        sender.publish(queue_id, 2, {2, 3})
        sender.publish_change(queue_id)
    sender.publish(1, 1, range(30))
    sender.publish(1, 1, range(100, 130))
    sender.publish(2, 1, {5})
    sender.publish(2, 1)

    async def all_received() -> bool:
        return len(received) == 2 * len(queue_ids) + 2

    await wait_until_async(all_received, 10, "all notifications are received")
    assert all(received[queue_id] == (3, {1, 2, 3}) for queue_id in queue_ids)
    assert received[1] == (2, None), "too many partitions to name"
    assert received[2] == (2, None)
    for bus in (receiver, sender):
        await bus.stop()
        await bus.stop()


class BusThatCannotClose(NotificationBus):
    """A bus whose connection takes too long to close when it is cancelled."""

    async def _run_connection(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise TimeoutError("the connection did not close in time")


async def test_a_bus_stops_although_its_connection_does_not_close() -> None:
    bus = BusThatCannotClose(
        "postgresql://127.0.0.1:1", on_ready=lambda *_: None, on_changed=lambda _: None, resync=lambda: None
    )
    await bus.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(deadline_s(5)):
        await bus.stop()
