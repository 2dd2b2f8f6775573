"""PostgreSQL away: pushes go to the journal and come back in order, everything else is told so at once."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.encryption import PayloadCipher
from penstock.broker.journal.push_journal import Journal
from penstock.broker.messages import NewMessage
from penstock.errors import DatabaseUnavailable, JournalFull, OutcomeUnknown
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, Cable, ack, payloads, pop, push
from tests.waiting import wait_until_async

MEGABYTE = 1 << 20


@asynccontextmanager
async def behind_a_cable(
    database_url: str, journal: Journal, cipher: PayloadCipher | None = None
) -> AsyncIterator[tuple[Cable, Broker]]:
    cable = Cable(database_url)
    async with cable.laid() as url:
        brokers = Brokers(url)
        try:
            yield cable, await brokers.start(journal=journal, cipher=cipher)
        finally:
            cable.mend()
            await brokers.stop()
            await journal.close()


async def cut(cable: Cable, broker: Broker) -> None:
    """Cut the cable and let the broker notice."""
    cable.sever()
    with pytest.raises(DatabaseUnavailable):
        await pop(broker)
    assert await broker.database.outage.confirm()


async def taken_over(broker: Broker) -> None:
    async def nothing_waits() -> bool:
        row = await broker.database.fetchrow("SELECT count(*) AS lanes FROM lanes")
        assert row is not None
        assert broker.journal is not None
        return not broker.journal.has_records and row["lanes"] == 0

    await wait_until_async(nothing_waits, 20, "what was in the journal is carried out")


async def test_pushes_go_to_the_journal_and_come_back_in_order(database_url: str, tmp_path: Path) -> None:
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE)) as (cable, broker):
        await push(broker, "1")
        await cut(cable, broker)
        results = [*await push(broker, "2", "3"), *await push(broker, "new", queue="not known before")]
        assert {result.status for result in results} == {"queued"}
        assert {result.deferral and result.deferral.reason for result in results} == {"database_down"}
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(DatabaseUnavailable):
                await pop(broker)
        assert time.monotonic() - started < 2, "told at once"
        cable.mend()
        await push(broker, "4")
        await taken_over(broker)
        await push(broker, "5")
        assert payloads(await pop(broker, batch=10)) == ["1", "2", "3", "4", "5"]
        assert payloads(await pop(broker, queue="not known before")) == ["new"]


async def test_a_limit_on_partitions_does_not_cost_what_was_accepted(
    database_url: str, tmp_path: Path
) -> None:
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE)) as (cable, broker):
        await push(broker, "1")
        await pop(broker)
        await broker.queues.configure(DEFAULT_SCOPE, "q", {"maxPartitions": 1})
        await cut(cable, broker)
        await push(broker, "one too many", partition="second")
        cable.mend()
        await taken_over(broker)
        assert payloads(await pop(broker)) == ["one too many"], "its group has a position there too"


async def test_a_journal_outlives_its_broker(database_url: str, tmp_path: Path) -> None:
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE)) as (cable, broker):
        await push(broker, "1")
        await cut(cable, broker)
        await push(broker, "2")
        await broker.stop()
    brokers = Brokers(database_url)
    journal = Journal(tmp_path, MEGABYTE)
    successor = await brokers.start(journal=journal)
    await taken_over(successor)
    assert payloads(await pop(successor, batch=10)) == ["1", "2"]
    await brokers.stop()
    await journal.close()


async def test_a_full_journal_refuses_and_keeps_what_it_has(database_url: str, tmp_path: Path) -> None:
    async with behind_a_cable(database_url, Journal(tmp_path, 2_000)) as (cable, broker):
        await cut(cable, broker)
        await push(broker, "kept")
        with pytest.raises(JournalFull):
            await push(broker, "x" * 3_000)
        cable.mend()
        await taken_over(broker)
        assert payloads(await pop(broker, batch=10)) == ["kept"]


async def test_what_was_under_way_goes_to_the_journal_only_if_its_repetition_can_be_told(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE)) as (cable, broker):
        await push(broker, "first")
        execute = broker.pushes._execute

        async def execute_and_lose_the_answer(key: object, requests: object) -> list[None]:
            await execute(key, requests)  # type: ignore[arg-type]
            cable.sever()
            raise OutcomeUnknown("the answer was lost")

        monkeypatch.setattr(broker.pushes.batcher, "_execute", execute_and_lose_the_answer)
        with pytest.raises(OutcomeUnknown):
            await push(broker, "who knows")
        cable.mend()
        await wait_for_the_end(broker)
        keyed = NewMessage("q", "Default", b"keyed", transaction_id="k")
        [result] = await broker.push(DEFAULT_SCOPE, [keyed])
        assert result.deferral is not None
        monkeypatch.undo()
        cable.mend()
        await taken_over(broker)
        assert payloads(await pop(broker, batch=10)) == ["first", "who knows", "keyed"]


async def wait_for_the_end(broker: Broker) -> None:
    async def over() -> bool:
        return not broker.database.outage.is_active

    await wait_until_async(over, 10, "the outage is over")


async def test_the_journal_has_no_payload_in_the_clear_where_there_is_a_key(
    database_url: str, tmp_path: Path
) -> None:
    cipher = PayloadCipher(f"k:{base64.b64encode(bytes(32)).decode()}")
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE), cipher) as (cable, broker):
        await cut(cable, broker)
        await push(broker, "a secret")
        assert not any(b"a secret" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        cable.mend()
        await taken_over(broker)
        assert payloads(await pop(broker)) == ["a secret"]


async def test_many_producers_keep_their_order_through_an_outage(database_url: str, tmp_path: Path) -> None:
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE)) as (cable, broker):
        await push(broker, "warm", partition="p0")
        over = asyncio.Event()

        async def produce(partition: str) -> int:
            number = 0
            while not over.is_set():
                message = NewMessage("q", partition, str(number).encode(), transaction_id=f"{number}")
                await broker.push(DEFAULT_SCOPE, [message])
                number += 1
                await asyncio.sleep(0)
            return number

        producers = [asyncio.create_task(produce(f"p{n}")) for n in range(1, 5)]

        async def in_journal() -> bool:
            assert broker.journal is not None
            return broker.journal.depth().records > 20

        cable.sever()
        await wait_until_async(in_journal, 10, "the journal is used")
        cable.mend()
        await taken_over(broker)
        over.set()
        counts = await asyncio.gather(*producers)
        await taken_over(broker)
        for n, count in enumerate(counts, start=1):
            popped = await pop(broker, batch=10_000, partition=f"p{n}")
            assert payloads(popped) == [str(number) for number in range(count)]
            await ack(broker, popped)


async def test_a_push_under_way_in_a_batch_is_rescued_when_postgresql_goes(
    database_url: str, tmp_path: Path
) -> None:
    """As requests are answered that have no task of their own. Told apart by its id, it is there once."""
    async with behind_a_cable(database_url, Journal(tmp_path, MEGABYTE)) as (cable, broker):
        await push(broker, "first")
        cable.sever()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message = NewMessage("q", "Default", b"second", transaction_id="t-2")
        sent = broker.pushes.start(DEFAULT_SCOPE, [message], told)
        assert sent is not None, "its partition is known"
        with pytest.raises(DatabaseUnavailable) as failure:
            await told
        [result] = await broker.pushes.fall_back_to_journal(sent, failure.value)
        assert result.deferral is not None
        assert result.deferral.reason == "database_down"
        cable.mend()
        await taken_over(broker)
        assert payloads(await pop(broker, batch=10)) == ["first", "second"]
