"""Several brokers on one database: what one does is known to the others at once, whatever breaks."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import MessageLease, NewMessage, AckRequest
from penstock.durable.notifications import CHANNEL, News
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, SlowAnswers, ack, parked, payloads, pop, push, waiting
from tests.waiting import wait_until_async


async def acquainted(database: Database, count: int) -> None:
    """Wait until so many brokers hear each other."""

    async def enough() -> bool:
        return len(await listeners(database)) == count

    await wait_until_async(enough, 10, f"{count} brokers listen")


async def listeners(database: Database) -> list[int]:
    rows = await database.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock news' "
        "AND datname = current_database() AND state = 'idle' ORDER BY backend_start"
    )
    return [row["pid"] for row in rows]


async def pair(brokers: Brokers, database: Database) -> tuple[Broker, Broker]:
    one, other = await brokers.start(), await brokers.start()
    await acquainted(database, 2)
    return one, other


async def test_a_push_on_one_wakes_a_pop_on_the_other(brokers: Brokers, database: Database) -> None:
    one, other = await pair(brokers, database)
    took_s = []
    for n in range(10):
        work = waiting(other)
        await parked(other, 1)
        started = time.monotonic()
        await push(one, str(n))
        async with asyncio.timeout(10):
            popped = await work
        took_s.append(time.monotonic() - started)
        assert payloads(popped) == [str(n)]
        await ack(other, popped)
    assert sorted(took_s)[5] < 0.2, took_s


async def test_what_one_frees_is_taken_by_a_pop_on_the_other(brokers: Brokers, database: Database) -> None:
    one, other = await pair(brokers, database)
    await push(one, "a", "b", "c")
    first = await pop(one)
    work = waiting(other)
    await parked(other, 1)
    await ack(one, first)
    async with asyncio.timeout(10):
        second = await work
    assert payloads(second) == ["b"]
    work = waiting(one)
    await parked(one, 1)
    lease = MessageLease.parse(second.lease)
    assert lease is not None
    message = second.messages[0]
    settlement = AckRequest(message.partition_id, message.transaction_id, lease, "completed")
    await other.transaction(DEFAULT_SCOPE, [NewMessage("elsewhere", "Default", b"1")], [settlement])
    async with asyncio.timeout(10):
        assert payloads(await work) == ["c"], "acked inside a transaction"


async def test_what_a_leaving_client_gives_back_on_one_is_taken_on_the_other(
    brokers: Brokers, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await pair(brokers, database)
    await push(one, "a")
    answers = SlowAnswers(monkeypatch)
    answers.gate.clear()
    leaving = asyncio.create_task(pop(one))

    async def leased() -> bool:
        return answers.answered == 1

    await wait_until_async(leased, 10, "the message is leased")
    staying = waiting(other)
    leaving.cancel()
    answers.gate.set()
    async with asyncio.timeout(10):
        assert payloads(await staying) == ["a"]


async def test_a_pop_of_one_partition_is_woken_across_brokers(brokers: Brokers, database: Database) -> None:
    one, other = await pair(brokers, database)
    works = [waiting(other, partition=name) for name in ("x", "y")]
    await parked(other, 2)
    await push(one, "for y", partition="y")
    async with asyncio.timeout(10):
        assert payloads(await works[1]) == ["for y"]
    assert not works[0].done()
    works[0].cancel()


async def test_word_missed_while_a_listener_is_cut_off_is_made_up_for(
    brokers: Brokers, database: Database
) -> None:
    one, other = await pair(brokers, database)
    work = waiting(other)
    await parked(other, 1)
    [_, deaf] = await listeners(database)
    await database.fetch("SELECT pg_terminate_backend($1)", deaf)
    await push(one, "a")
    async with asyncio.timeout(15):
        assert payloads(await work) == ["a"]
    await acquainted(database, 2)


async def test_word_gathered_while_the_teller_is_cut_off_is_told_later(
    brokers: Brokers, database: Database
) -> None:
    one, other = await pair(brokers, database)
    for n, place in enumerate((0, 1, 1)):  # the one that comes back is last
        work = waiting(other, partition=f"p{n}")
        await parked(other, 1)
        await database.fetch("SELECT pg_terminate_backend($1)", (await listeners(database))[place])
        await push(one, "a", partition=f"p{n}")
        async with asyncio.timeout(15):
            assert payloads(await work) == ["a"]
        await acquainted(database, 2)


async def test_changed_options_reach_the_other(brokers: Brokers, database: Database) -> None:
    one, other = await pair(brokers, database)
    await push(other, "before")
    assert not (await other.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")).lease_ms
    await database.fetch("UPDATE queues SET lease_ms = 1234 WHERE name = 'q'")
    ids = await one.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")
    one.notifications.tell_changed(ids.queue_id)

    async def known() -> bool:
        return (await other.id_cache.resolve_group(DEFAULT_SCOPE, "q", "g")).lease_ms == 1234

    await wait_until_async(known, 10, "the other broker knows the new lease time")


async def test_a_broker_alone_tells_nobody(brokers: Brokers, database_url: str, database: Database) -> None:
    broker = await brokers.start()
    await acquainted(database, 1)
    heard: list[str] = []
    connection = await asyncpg.connect(database_url)
    await connection.add_listener(CHANNEL, lambda *word: heard.append(str(word[-1])))
    await push(broker, "a", "b")
    await ack(broker, await pop(broker, batch=2))
    await connection.execute("SELECT pg_notify($1, 'nobody nothing')", CHANNEL)

    async def silence_broken() -> bool:
        return heard == ["nobody nothing"]

    await wait_until_async(silence_broken, 10, "only the test's own word is heard")
    await connection.close()


async def test_word_of_many_queues_and_partitions_arrives_whole(
    database_url: str, database: Database
) -> None:
    heard: dict[int, tuple[int, object]] = {}
    missed: list[int] = []

    def news(name: int) -> News:
        return News(
            database_url,
            ready=lambda queue_id, count, partition_ids: heard.update({queue_id: (count, partition_ids)}),
            changed=lambda queue_id: heard.update({-queue_id: (0, None)}),
            missed=lambda: missed.append(name),
        )

    listener, speaker = news(1), news(2)

    async def looked(*names: int) -> None:
        async def done() -> bool:
            return missed == list(names)

        await wait_until_async(done, 10, f"{names} have looked")

    await listener.start()
    await looked(1)
    await speaker.start()
    await looked(1, 2, 2)  # when it has connected, and when it is welcomed
    many = range(10**17, 10**17 + 1_500)
    for queue_id in many:
        speaker.tell_ready(queue_id, 1, {1, 2})
        speaker.tell_ready(queue_id, 2, {2, 3})
        speaker.tell_changed(queue_id)
    speaker.tell_ready(1, 1, range(30))
    speaker.tell_ready(1, 1, range(100, 130))
    speaker.tell_ready(2, 1, {5})
    speaker.tell_ready(2, 1)

    async def all_heard() -> bool:
        return len(heard) == 2 * len(many) + 2

    await wait_until_async(all_heard, 10, "all of it is heard")
    assert all(heard[queue_id] == (3, {1, 2, 3}) for queue_id in many)
    assert heard[1] == (2, None), "too many partitions to name"
    assert heard[2] == (2, None)
    for one in (listener, speaker):
        await one.stop()
        await one.stop()
