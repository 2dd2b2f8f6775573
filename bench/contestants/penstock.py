"""Penstock over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import asyncpg
import msgspec

from bench import http_load
from bench.contestants.contestant import Contestant, batches
from bench.servers import RunningBroker

LARGEST_FILL = 100


class _Message(msgspec.Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None


class _Popped(msgspec.Struct):
    messages: list[_Message]


class _Ack(msgspec.Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None
    status: str = "completed"


class _Acks(msgspec.Struct):
    acknowledgments: list[_Ack]


_decode = msgspec.json.Decoder(_Popped).decode
_encode = msgspec.json.Encoder().encode


class Penstock(Contestant):
    """Batches go round over `partitions` partitions of one queue; `keyed` sends transaction ids along."""

    def __init__(
        self,
        name: str,
        broker: RunningBroker,
        *,
        partitions: int,
        keyed: bool = False,
        auto_ack: bool = False,
        queue: str = "",
    ) -> None:
        """With `queue` that one is used throughout, otherwise a new one for every turn."""
        self.name = name
        self.broker = broker
        self._partitions = partitions
        self._keyed = keyed
        self._auto_ack = auto_ack
        self._connections: list[http_load.Connection] = []
        self._count = 1
        self._requests: list[tuple[bytes, int]] = []
        self._queue = queue
        self._fixed = bool(queue)
        self._number = 0

    async def open(self, connections: int) -> None:
        self._count = connections

    async def close(self) -> None:
        for connection in self._connections:
            assert connection.transport is not None
            connection.transport.close()
        self._connections = []

    async def _new_queue(self) -> None:
        # The broker closes connections that were idle for a while, as between turns: begin with new ones.
        await self.close()
        self._connections = await http_load.connect(self.broker.port, self._count)
        self._number += 1
        if self._fixed:
            return
        self._queue = f"{self.name.replace(' ', '-').replace(',', '')}-{self._number}"

    def _request(self, batch: list[str], number: int) -> bytes:
        where = f'"queue":"{self._queue}","partition":"p{number % self._partitions}"'
        if self._keyed:
            items = (
                f'{{{where},"transactionId":"{self._queue}-{number}-{at}","payload":{payload}}}'
                for at, payload in enumerate(batch)
            )
        else:
            items = (f'{{{where},"payload":{payload}}}' for payload in batch)
        return http_load.post("/api/v1/push", f'{{"items":[{",".join(items)}]}}'.encode())

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        await self._new_queue()
        # One push to every partition, so that making them is not what is measured.
        make = [self._request(['"first"'], number) for number in range(self._partitions)]
        await http_load.send_all(self._connections[:1], iter(make), 201)
        self._requests = [
            (self._request(batch, number + self._partitions), len(batch))
            for number, batch in enumerate(batches(messages, size))
        ]

    async def push(self, connections: int, deadline: float) -> int:
        sent = 0

        def requests() -> Iterator[bytes]:
            nonlocal sent
            for request, size in self._requests:
                if time.perf_counter() > deadline:
                    return
                sent += size
                yield request

        await http_load.send_all(self._connections[:connections], requests(), 201)
        return sent

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        await self._new_queue()
        # What is consumed in batches of a size was pushed in such batches, going round over the partitions.
        items = [
            f'{{"queue":"{self._queue}","partition":"p{at // size % self._partitions}","payload":{payload}}}'
            for at, payload in enumerate(messages)
        ]
        fill = [
            http_load.post("/api/v1/push", f'{{"items":[{",".join(some)}]}}'.encode())
            for some in batches(items, LARGEST_FILL)
        ]
        await http_load.send_all(self._connections[:1], iter(fill), 201)

    async def held(self) -> int:
        url = self.broker.database_url
        connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"})
        try:
            find = "SELECT queue_size_v1(id) FROM queues WHERE name = $1"
            return await connection.fetchval(find, self._queue)
        finally:
            await connection.close()

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        loop = _Consumers(self._queue, size, total, deadline, self._auto_ack)
        await loop.run(self._connections[:connections])
        return loop.handled


class _Consumers:
    """Every connection pops a batch, acknowledges all of it in one request, and pops again."""

    def __init__(self, queue: str, size: int, total: int, deadline: float, auto_ack: bool) -> None:
        suffix = "&autoAck=true" if auto_ack else ""
        self._pop = http_load.get(f"/api/v1/pop/queue/{queue}?batch={size}{suffix}")
        self._size = size
        self._total = total
        self._deadline = deadline
        self._auto_ack = auto_ack
        self.handled = 0

    async def run(self, connections: list[http_load.Connection]) -> None:
        running = [c.start(self._pop, self._next(c)) for c in connections]
        for one in running:
            await one

    def _next(self, connection: http_load.Connection) -> http_load.Next:
        acking = 0

        def next_request(status: int, body: bytes) -> bytes | None:
            nonlocal acking
            if status == 204:
                if self._over():
                    return None
                connection.later(self._pop)
                return b""
            if status != 200:
                raise RuntimeError(f"answered {status}: {body[:300].decode(errors='replace')}")
            if acking:
                if body.count(b'"success":true') != acking:
                    raise RuntimeError(f"an ack was refused: {body[:300].decode(errors='replace')}")
                self.handled += acking
                acking = 0
                return None if self._over() else self._pop
            messages = _decode(body).messages
            if self._auto_ack:
                self.handled += len(messages)
                return None if self._over() else self._pop
            acking = len(messages)
            return _ack_request(messages)

        return next_request

    def _over(self) -> bool:
        return self.handled >= self._total or time.perf_counter() > self._deadline


def _ack_request(messages: list[_Message]) -> bytes:
    acks = [_Ack(m.transactionId, m.partitionId, m.leaseId) for m in messages]
    if len(acks) == 1:
        return http_load.post("/api/v1/ack", _encode(acks[0]))
    return http_load.post("/api/v1/ack/batch", _encode(_Acks(acks)))
