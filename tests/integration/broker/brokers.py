"""Brokers in this process, each with connections of its own, and short ways to use one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

import pytest

from penstock.broker.broker import Broker
from penstock.broker.encryption import PayloadCipher
from penstock.broker.journal.push_journal import Journal
from penstock.broker.messages import MessageLease, NewMessage, PopResult, PushResult, AckRequest, AckOutcome
from penstock.broker.queues.pop import PopOptions
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.durable import log
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from penstock.streams.emitter import Emitter
from tests.waiting import wait_until_async

NOBODY = "redis://127.0.0.1:1/0"
"""An address where no Redis answers."""


class Brokers:
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
    ) -> Broker:
        database = Database(self.url, 4)
        metrics = QueueMetrics(emitter or Emitter(NOBODY, buffer=100, enabled=False), database)
        broker = Broker(database, metrics, lease_ms=lease_ms, cipher=cipher, journal=journal)
        await metrics.start()
        await self._start(broker)
        self.running.append((broker, metrics, database))
        return broker

    async def _start(self, broker: Broker) -> None:
        """Return once the broker hears others: it then looks everything up again, which must not come in
        the middle of a test."""
        connected = asyncio.Event()
        missed = broker.notifications._missed

        def looked() -> None:
            missed()
            connected.set()

        broker.notifications._missed = looked
        await broker.start()
        async with asyncio.timeout(20):
            await connected.wait()

    async def stop(self) -> None:
        for broker, metrics, database in self.running:
            await broker.stop()
            await metrics.stop()
            await database.close()


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
    return await broker.pop(DEFAULT_SCOPE, queue, group, options)


def waiting(broker: Broker, *, partition: str | None = None) -> asyncio.Task[PopResult]:
    """A pop that waits, for longer than any test."""
    return asyncio.create_task(pop(broker, wait_s=60, partition=partition))


def payloads(popped: PopResult) -> list[str]:
    return [message.payload.decode() for message in popped.messages]


async def ack(broker: Broker, popped: PopResult, status: str = "completed") -> list[AckOutcome]:
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    settlements = [AckRequest(m.partition_id, m.transaction_id, lease, status) for m in popped.messages]
    return await broker.ack(DEFAULT_SCOPE, settlements)


async def parked(broker: Broker, count: int) -> None:
    """Wait until the broker has so many parked pops."""

    async def enough() -> bool:
        return broker.parked_pops.count == count

    await wait_until_async(enough, 20, f"{count} pops are parked")


class Cable:
    """A way to a server that can be cut: what is under way breaks, and nothing new comes through."""

    def __init__(self, url: str) -> None:
        self._far = urlsplit(url)
        self._connected: set[asyncio.StreamWriter] = set()
        self.cut = False

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        """The address of the near end."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        host = self._far.netloc.rpartition("@")[0]
        try:
            yield urlunsplit(self._far._replace(netloc=f"{host}@127.0.0.1:{port}"))
        finally:
            self.sever()
            server.close()

    def sever(self) -> None:
        self.cut = True
        for writer in self._connected:
            writer.transport.abort()

    def mend(self) -> None:
        self.cut = False

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._far.hostname, self._far.port)
        ends = {writer, far_writer}
        self._connected |= ends
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._connected -= ends
            for end in ends:
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class SlowAnswers:
    """Pops whose answer from the database is held back on its way, or replaced by an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.answered = 0
        for name in ("pop", "pop_single"):
            monkeypatch.setattr(log, name, self._slow(getattr(log, name)))

    def _slow(self, real: Callable[..., Awaitable[list[object]]]) -> Callable[..., Awaitable[list[object]]]:
        async def pop(*args: object, **options: object) -> list[object]:
            error, self.error = self.error, None
            if error is not None:
                raise error
            rows = await real(*args, **options)
            self.answered += bool(rows)
            await self.gate.wait()
            return rows

        return pop
