"""During an outage, pushes go to the journal and are replayed in order; other requests fail at once."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.journal.push_journal import Journal
from penstock.broker.messages import NewMessage
from penstock.broker.queues.push import SegmentReceipt
from penstock.durable.access.environment_store import EnvironmentStore
from penstock.encryption import PayloadCipher
from penstock.errors import DatabaseUnavailable, JournalFull, OutcomeUnknown
from penstock.model import DEFAULT_SCOPE, Scope
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import Brokers, CuttableProxy, ack, payloads, pop, push
from tests.waiting import wait_until_async

MEGABYTE = 1 << 20


@asynccontextmanager
async def run_broker_behind_proxy(
    database_url: str, journal: Journal, cipher: PayloadCipher | None = None
) -> AsyncIterator[tuple[CuttableProxy, Broker]]:
    proxy = CuttableProxy(database_url)
    async with proxy.run() as url:
        brokers = Brokers(url)
        try:
            yield proxy, await brokers.start(journal=journal, cipher=cipher)
        finally:
            proxy.restore()
            await brokers.stop()
            await journal.close()


async def cut_connection(proxy: CuttableProxy, broker: Broker) -> None:
    """Cut the connection to PostgreSQL and wait until the broker has noticed."""
    proxy.cut()
    with pytest.raises(DatabaseUnavailable):
        await pop(broker)
    assert await broker.database.outage.confirm()


async def wait_for_replay(broker: Broker) -> None:
    async def is_empty() -> bool:
        row = await broker.database.fetchrow("SELECT count(*) AS lanes FROM lanes")
        assert row is not None
        assert broker.journal is not None
        return not broker.journal.has_records and row["lanes"] == 0

    await wait_until_async(is_empty, 20, "the journal is replayed and drained")


async def test_pushes_during_an_outage_are_replayed_in_order(database_url: str, tmp_path: Path) -> None:
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        await push(broker, "1")
        await cut_connection(proxy, broker)
        results = [*await push(broker, "2", "3"), *await push(broker, "new", queue="not known before")]
        assert {result.status for result in results} == {"queued"}
        assert {result.deferral and result.deferral.reason for result in results} == {"database_down"}
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(DatabaseUnavailable):
                await pop(broker)
        assert time.monotonic() - started < deadline_s(2), "requests fail at once"
        proxy.restore()
        await push(broker, "4")
        await wait_for_replay(broker)
        await push(broker, "5")
        assert payloads(await pop(broker, batch=10)) == ["1", "2", "3", "4", "5"]
        assert payloads(await pop(broker, queue="not known before")) == ["new"]


async def test_accepted_pushes_are_replayed_beyond_the_limit_of_partitions(
    database_url: str, tmp_path: Path
) -> None:
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        await push(broker, "1")
        await pop(broker)
        await broker.queues.configure(DEFAULT_SCOPE, "q", {"maxPartitions": 1})
        await cut_connection(proxy, broker)
        await push(broker, "one too many", partition="second")
        proxy.restore()
        await wait_for_replay(broker)
        assert payloads(await pop(broker)) == ["one too many"], "its group has a position there too"


async def test_pushes_of_a_deleted_environment_are_dropped_and_the_others_replayed(
    database_url: str, tmp_path: Path
) -> None:
    deleted = Scope("acme", "shop", "staging")
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        store = EnvironmentStore(broker.database)
        await store.create(deleted, "{}")
        await push(broker, "1")
        await cut_connection(proxy, broker)
        await broker.push(deleted, [NewMessage("q", "Default", b"dropped")])
        await push(broker, "2")
        await broker.stop()
        broker.database.outage.is_active = False
        proxy.restore()
        assert await store.request_deletion(deleted)
    brokers = Brokers(database_url)
    journal = Journal(tmp_path, MEGABYTE)
    successor = await brokers.start(journal=journal)
    await wait_for_replay(successor)
    assert payloads(await pop(successor, batch=10)) == ["1", "2"]
    assert await successor.store.catalog.list_queues(deleted) == []
    await brokers.stop()
    await journal.close()


async def test_another_broker_replays_the_journal_of_a_stopped_one(database_url: str, tmp_path: Path) -> None:
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        await push(broker, "1")
        await cut_connection(proxy, broker)
        await push(broker, "2")
        await broker.stop()
    brokers = Brokers(database_url)
    journal = Journal(tmp_path, MEGABYTE)
    successor = await brokers.start(journal=journal)
    await wait_for_replay(successor)
    assert payloads(await pop(successor, batch=10)) == ["1", "2"]
    await brokers.stop()
    await journal.close()


async def test_a_full_journal_refuses_pushes_and_keeps_its_records(database_url: str, tmp_path: Path) -> None:
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, 2_000)) as (proxy, broker):
        await cut_connection(proxy, broker)
        await push(broker, "kept")
        with pytest.raises(JournalFull):
            await push(broker, "x" * 3_000)
        proxy.restore()
        await wait_for_replay(broker)
        assert payloads(await pop(broker, batch=10)) == ["kept"]


async def test_a_push_with_an_unknown_outcome_is_journaled_only_with_a_transaction_id(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        await push(broker, "first")
        execute = broker.pushes._execute

        async def execute_and_lose_the_response(key: object, requests: object) -> list[None]:
            await execute(key, requests)  # type: ignore[arg-type]
            proxy.cut()
            raise OutcomeUnknown("the response was lost")

        monkeypatch.setattr(broker.pushes.batcher, "_execute", execute_and_lose_the_response)
        with pytest.raises(OutcomeUnknown):
            await push(broker, "without id")
        proxy.restore()
        await wait_until_outage_ends(broker)
        keyed = NewMessage("q", "Default", b"keyed", transaction_id="k")
        [result] = await broker.push(DEFAULT_SCOPE, [keyed])
        assert result.deferral is not None
        monkeypatch.undo()
        proxy.restore()
        await wait_for_replay(broker)
        assert payloads(await pop(broker, batch=10)) == ["first", "without id", "keyed"]


async def wait_until_outage_ends(broker: Broker) -> None:
    async def is_over() -> bool:
        return not broker.database.outage.is_active

    await wait_until_async(is_over, 10, "the outage is over")


async def test_the_journal_encrypts_payloads_if_there_is_a_key(database_url: str, tmp_path: Path) -> None:
    cipher = PayloadCipher(f"k:{base64.b64encode(bytes(32)).decode()}")
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE), cipher) as (proxy, broker):
        await cut_connection(proxy, broker)
        await push(broker, "a secret")
        assert not any(b"a secret" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        proxy.restore()
        await wait_for_replay(broker)
        assert payloads(await pop(broker)) == ["a secret"]


async def test_many_producers_keep_their_order_through_an_outage(database_url: str, tmp_path: Path) -> None:
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        await push(broker, "warm", partition="p0")
        stopped = asyncio.Event()

        async def produce(partition: str) -> int:
            number = 0
            while not stopped.is_set():
                message = NewMessage("q", partition, str(number).encode(), transaction_id=f"{number}")
                await broker.push(DEFAULT_SCOPE, [message])
                number += 1
                await asyncio.sleep(0)
            return number

        producers = [asyncio.create_task(produce(f"p{n}")) for n in range(1, 5)]

        async def journal_is_used() -> bool:
            assert broker.journal is not None
            return broker.journal.depth().records > 20

        proxy.cut()
        await wait_until_async(journal_is_used, 10, "the journal is used")
        proxy.restore()
        await wait_for_replay(broker)
        stopped.set()
        counts = await asyncio.gather(*producers)
        await wait_for_replay(broker)
        for n, count in enumerate(counts, start=1):
            popped = await pop(broker, batch=10_000, partition=f"p{n}")
            assert payloads(popped) == [str(number) for number in range(count)]
            await ack(broker, popped)


async def test_a_pending_push_falls_back_to_the_journal(database_url: str, tmp_path: Path) -> None:
    """A request without its own task uses `start`. Its transaction id keeps it from being stored twice."""
    async with run_broker_behind_proxy(database_url, Journal(tmp_path, MEGABYTE)) as (proxy, broker):
        await push(broker, "first")
        proxy.cut()
        receiver: asyncio.Future[list[SegmentReceipt]] = asyncio.get_running_loop().create_future()
        message = NewMessage("q", "Default", b"second", transaction_id="t-2")
        pending = broker.pushes.start(DEFAULT_SCOPE, [message], receiver)
        assert pending.is_queued, "its partition is cached"
        with pytest.raises(DatabaseUnavailable) as failure:
            await receiver
        [result] = await broker.pushes.resume(pending, failure.value)
        assert result.deferral is not None
        assert result.deferral.reason == "database_down"
        proxy.restore()
        await wait_for_replay(broker)
        assert payloads(await pop(broker, batch=10)) == ["first", "second"]
