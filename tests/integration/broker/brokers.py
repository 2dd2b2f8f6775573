"""Start brokers in the test process, each with its own connections; shortcuts for push, pop and ack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

import pytest

from penstock.broker.broker import Broker
from penstock.broker.journal.push_journal import Journal
from penstock.broker.messages import Ack, AckReceipt, MessageLease, NewMessage, PopResult, PushResult
from penstock.broker.queues.pop import PopOptions
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.caller import LOCAL_CALLER
from penstock.durable import log
from penstock.durable.pool import Database
from penstock.encryption import PayloadCipher
from penstock.model import DEFAULT_SCOPE, MAX_RESPONSE_BYTES
from penstock.streams.emitter import Emitter
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

UNREACHABLE_REDIS_URL = "redis://127.0.0.1:1/0"


class Brokers:
    """Starts brokers on one database and stops them at the end of a test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.running: list[tuple[Broker, QueueMetrics, Database]] = []

    async def start(
        self,
        *,
        lease_ms: int = 60_000,
        cipher: PayloadCipher | None = None,
        emitter: Emitter | None = None,
        journal: Journal | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Broker:
        database = Database(self.url, 4)
        metrics = QueueMetrics(emitter or Emitter(UNREACHABLE_REDIS_URL, buffer=100, enabled=False), database)
        broker = Broker(
            database,
            metrics,
            lease_ms=lease_ms,
            max_response_bytes=max_response_bytes,
            cipher=cipher,
            journal=journal,
        )
        await metrics.start()
        await self._start(broker)
        self.running.append((broker, metrics, database))
        return broker

    async def _start(self, broker: Broker) -> None:
        """Start the broker and wait until it receives notifications.

        It then resyncs its caches, which must not happen in the middle of a test.
        """
        connected = asyncio.Event()
        resync = broker.notifications._resync

        def resync_and_continue() -> None:
            resync()
            connected.set()

        broker.notifications._resync = resync_and_continue
        await broker.start()
        async with asyncio.timeout(deadline_s(20)):
            await connected.wait()

    async def stop(self) -> None:
        for broker, metrics, database in self.running:
            await broker.stop()
            await metrics.stop()
            await database.close()


async def create_queue(broker: Broker, queue: str = "q") -> None:
    await broker.queues.configure(DEFAULT_SCOPE, queue, {})


async def push(
    broker: Broker, *payloads: str, queue: str = "q", partition: str = "Default"
) -> list[PushResult]:
    return await broker.push(DEFAULT_SCOPE, [NewMessage(queue, partition, p.encode()) for p in payloads])


async def pop(
    broker: Broker,
    queue: str = "q",
    group: str = "g",
    *,
    wait_s: float = 0,
    batch: int = 1,
    partition: str | None = None,
) -> PopResult:
    options = PopOptions(batch=batch, partition=partition, wait_s=wait_s)
    return await broker.pop(LOCAL_CALLER, queue, group, options)


def start_waiting_pop(broker: Broker, *, partition: str | None = None) -> asyncio.Task[PopResult]:
    """Start a pop that waits longer than any test takes."""
    return asyncio.create_task(pop(broker, wait_s=60, partition=partition))


def payloads(popped: PopResult) -> list[str]:
    return [message.payload.decode() for message in popped.messages]


def acks_of(popped: PopResult, status: str = "completed") -> list[Ack]:
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    return [Ack(m.partition_id, *lease, m.transaction_id, status) for m in popped.messages]


async def ack(broker: Broker, popped: PopResult, status: str = "completed") -> list[AckReceipt]:
    return await broker.ack(DEFAULT_SCOPE, acks_of(popped, status))


async def wait_for_parked_pops(broker: Broker, count: int) -> None:
    async def are_parked() -> bool:
        return broker.parked_pops.count == count

    await wait_until_async(are_parked, 20, f"{count} pops are parked")


class CuttableProxy:
    """A TCP proxy to PostgreSQL that can be cut: open connections break, and new ones are refused."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_cut = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[str]:
        """Run the proxy; yields the database URL that goes through it."""
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        credentials = self._target.netloc.rpartition("@")[0]
        try:
            yield urlunsplit(self._target._replace(netloc=f"{credentials}@127.0.0.1:{port}"))
        finally:
            self.cut()
            server.close()

    def cut(self) -> None:
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def restore(self) -> None:
        self.is_cut = False

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        target_reader, target_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        writers = {writer, target_writer}
        self._writers |= writers
        try:
            await asyncio.gather(_copy(reader, target_writer), _copy(target_reader, writer))
        finally:
            self._writers -= writers
            for open_writer in writers:
                open_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class DelayedPops:
    """Holds back the database's rows of pops while the gate is closed, or raises an error once instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.executed = 0
        """Number of pops whose rows have arrived from the database."""
        for name in ("pop", "pop_single"):
            monkeypatch.setattr(log, name, self._delay(getattr(log, name)))

    def _delay(
        self, original: Callable[..., Awaitable[list[object]]]
    ) -> Callable[..., Awaitable[list[object]]]:
        async def pop(*args: object, **options: object) -> list[object]:
            error, self.error = self.error, None
            if error is not None:
                raise error
            rows = await original(*args, **options)
            self.executed += bool(rows)
            await self.gate.wait()
            return rows

        return pop
