"""Penstock over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import asyncpg
import msgspec

from bench import http_load
from bench.contestants.contestant import Contestant, split_batches
from bench.servers import RunningBroker

MAX_PREPARE_BATCH = 100


class _Message(msgspec.Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None


class _PopResponse(msgspec.Struct):
    messages: list[_Message]


class _Ack(msgspec.Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None
    status: str = "completed"


class _AckBatch(msgspec.Struct):
    acknowledgments: list[_Ack]


_decode = msgspec.json.Decoder(_PopResponse).decode
_encode = msgspec.json.Encoder().encode


class Penstock(Contestant):
    """Batches rotate over `partitions` partitions of one queue.

    With `own_ids` the client chooses the transaction ids.
    """

    def __init__(
        self,
        name: str,
        broker: RunningBroker,
        *,
        partitions: int,
        own_ids: bool = False,
        auto_ack: bool = False,
        queue: str = "",
    ) -> None:
        """With `queue`, all turns use that queue, otherwise each turn creates a new one."""
        self.name = name
        self.broker = broker
        self._partitions = partitions
        self._own_ids = own_ids
        self._auto_ack = auto_ack
        self._connections: list[http_load.Connection] = []
        self._connection_count = 1
        self._requests: list[tuple[bytes, int]] = []
        self._queue = queue
        self._has_fixed_queue = bool(queue)
        self._turn = 0

    async def open(self, connections: int) -> None:
        self._connection_count = connections

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections = []

    async def _start_turn(self) -> None:
        # The broker closes connections that are idle for a while, as between turns. Each turn opens new ones.
        await self.close()
        self._connections = await http_load.connect(self.broker.port, self._connection_count)
        self._turn += 1
        if self._has_fixed_queue:
            return
        self._queue = f"{self.name.replace(' ', '-').replace(',', '')}-{self._turn}"

    def _push_request(self, batch: list[str], number: int) -> bytes:
        target = f'"queue":"{self._queue}","partition":"p{number % self._partitions}"'
        if self._own_ids:
            items = (
                f'{{{target},"transactionId":"{self._queue}-{number}-{index}","payload":{payload}}}'
                for index, payload in enumerate(batch)
            )
        else:
            items = (f'{{{target},"payload":{payload}}}' for payload in batch)
        return http_load.post("/api/v1/push", f'{{"items":[{",".join(items)}]}}'.encode())

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        await self._start_turn()
        # One push to every partition creates it, so that the measurement does not include that.
        first_pushes = [self._push_request(['"first"'], number) for number in range(self._partitions)]
        await http_load.send_all(self._connections[:1], iter(first_pushes), 201)
        self._requests = [
            (self._push_request(batch, number + self._partitions), len(batch))
            for number, batch in enumerate(split_batches(messages, size))
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
        await self._start_turn()
        # Messages are pushed in batches of the size in which they are consumed. The batches rotate over the
        # partitions.
        items = [
            f'{{"queue":"{self._queue}","partition":"p{n // size % self._partitions}","payload":{payload}}}'
            for n, payload in enumerate(messages)
        ]
        pushes = [
            http_load.post("/api/v1/push", f'{{"items":[{",".join(batch)}]}}'.encode())
            for batch in split_batches(items, MAX_PREPARE_BATCH)
        ]
        await http_load.send_all(self._connections[:1], iter(pushes), 201)

    async def count_messages(self) -> int:
        url = self.broker.database_url
        connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"})
        try:
            query = "SELECT queue_size_v1(id) FROM queues WHERE name = $1"
            return int(await connection.fetchval(query, self._queue))
        finally:
            await connection.close()

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        consumers = _Consumers(self._queue, size, total, deadline, self._auto_ack)
        await consumers.run(self._connections[:connections])
        return consumers.handled


class _Consumers:
    """Consumers, one per connection. Each pops a batch, acks it in one request, and pops again."""

    def __init__(self, queue: str, size: int, total: int, deadline: float, auto_ack: bool) -> None:
        suffix = "&autoAck=true" if auto_ack else ""
        self._pop = http_load.get(f"/api/v1/pop/queue/{queue}?batch={size}{suffix}")
        self._size = size
        self._total = total
        self._deadline = deadline
        self._auto_ack = auto_ack
        self.handled = 0

    async def run(self, connections: list[http_load.Connection]) -> None:
        loops = [c.start(self._pop, self._response_handler(c)) for c in connections]
        for loop in loops:
            await loop

    def _response_handler(self, connection: http_load.Connection) -> http_load.ResponseHandler:
        acks_in_flight = 0

        def next_request(status: int, body: bytes) -> bytes | None:
            nonlocal acks_in_flight
            if status == 204:
                if self._is_finished():
                    return None
                connection.send_after_pause(self._pop)
                return b""
            if status != 200:
                raise http_load.unexpected_response(status, body)
            if acks_in_flight:
                if body.count(b'"success":true') != acks_in_flight:
                    raise RuntimeError(f"The broker refused an ack: {body[:300].decode(errors='replace')}")
                self.handled += acks_in_flight
                acks_in_flight = 0
                return None if self._is_finished() else self._pop
            messages = decode_messages(body)
            if self._auto_ack:
                self.handled += len(messages)
                return None if self._is_finished() else self._pop
            acks_in_flight = len(messages)
            return ack_request(messages)

        return next_request

    def _is_finished(self) -> bool:
        return self.handled >= self._total or time.perf_counter() > self._deadline


def decode_messages(body: bytes) -> list[_Message]:
    """Return the messages of a response to a pop."""
    return _decode(body).messages


def ack_request(messages: list[_Message]) -> bytes:
    """Return the request that acks all messages."""
    acks = [_Ack(m.transactionId, m.partitionId, m.leaseId) for m in messages]
    if len(acks) == 1:
        return http_load.post("/api/v1/ack", _encode(acks[0]))
    return http_load.post("/api/v1/ack/batch", _encode(_AckBatch(acks)))
