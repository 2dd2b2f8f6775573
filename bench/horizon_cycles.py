"""One cycle of each contestant of the horizon benchmark: push a batch, pop a batch, ack it.

Each loop repeats its cycle on a connection of its own and starts the next one when the last has ended.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files

import asyncpg

from bench import http_load
from bench.contestants.penstock import Penstock, ack_request, decode_messages
from bench.payloads import generate_payloads
from bench.servers import RunningBroker

EMPTY_PAUSE_S = 0.002
MAX_PREPARE_S = 120.0
MAX_CYCLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Cycle:
    """A completed cycle: when it ended (of time.perf_counter), and how long it took."""

    ended_at: float
    took_ms: float


class CycleContestant(ABC):
    """A message queue on a database whose vacuum horizon may be held."""

    name: str

    def __init__(self, url: str, size: int, loops: int) -> None:
        self.url = url
        self._size = size
        self._loops = loops
        self._payloads = generate_payloads(max(size, 100), seed=1)

    @abstractmethod
    async def open(self) -> None:
        """Create tables, queues and connections. Not timed."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def run_cycle(self, loop: int, deadline: float) -> None:
        """Push a batch, pop a batch and ack it. Raises TimeoutError if it pops nothing until the deadline."""

    async def run_turn(self, seconds: float) -> list[Cycle]:
        cycles: list[Cycle] = []
        deadline = time.perf_counter() + seconds

        async def run_loop(loop: int) -> None:
            while (started := time.perf_counter()) < deadline:
                await self.run_cycle(loop, deadline + MAX_CYCLE_S)
                ended = time.perf_counter()
                cycles.append(Cycle(ended, (ended - started) * 1000))

        await asyncio.gather(*(run_loop(loop) for loop in range(self._loops)))
        return cycles

    def _batch(self) -> list[str]:
        return self._payloads[: self._size]


class PenstockCycles(CycleContestant):
    """Penstock over HTTP. Batches go to random partitions of one queue."""

    def __init__(self, name: str, broker: RunningBroker, size: int, loops: int, partitions: int) -> None:
        super().__init__(broker.database_url, size, loops)
        self.name = name
        self._broker = broker
        self._partitions = partitions
        self._queue = f"horizon-{size}-{partitions}"
        self._random = random.Random(partitions)
        self._connections: list[http_load.Connection] = []
        self._pop = http_load.get(f"/api/v1/pop/queue/{self._queue}?batch={size}")

    async def open(self) -> None:
        """Create all partitions: push one message to each, and consume them."""
        filler = Penstock(self.name, self._broker, partitions=self._partitions, queue=self._queue)
        await filler.open(16)
        await filler.prepare_consume(1, ['"first"'] * self._partitions)
        deadline = time.perf_counter() + MAX_PREPARE_S
        await filler.consume(1, 16, self._partitions, deadline)
        await filler.close()

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections = []

    async def run_turn(self, seconds: float) -> list[Cycle]:
        # The broker closes connections that are idle for a while, as between turns.
        await self.close()
        self._connections = await http_load.connect(self._broker.port, self._loops)
        return await super().run_turn(seconds)

    async def run_cycle(self, loop: int, deadline: float) -> None:
        connection = self._connections[loop]
        partition = self._random.randrange(self._partitions)
        target = f'"queue":"{self._queue}","partition":"p{partition}"'
        items = ",".join(f'{{{target},"payload":{payload}}}' for payload in self._batch())
        push = http_load.post("/api/v1/push", f'{{"items":[{items}]}}'.encode())
        await _request(connection, push, 201)
        while time.perf_counter() < deadline:
            body = await _request(connection, self._pop, 200, 204)
            if body:
                await _request(connection, ack_request(decode_messages(body)), 200)
                return
            await asyncio.sleep(EMPTY_PAUSE_S)
        raise TimeoutError(f"{self.name} popped nothing for {MAX_CYCLE_S:.0f} s.")


async def _request(connection: http_load.Connection, request: bytes, *expected: int) -> bytes:
    """Send one request and return the body of its response."""
    bodies: list[bytes] = []

    def on_response(status: int, body: bytes) -> None:
        if status not in expected:
            raise http_load.unexpected_response(status, body)
        bodies.append(body)

    await connection.start(request, on_response)
    return bodies[0]


class SqlCycles(CycleContestant):
    """A contestant that is called over connections to PostgreSQL."""

    def __init__(self, url: str, size: int, loops: int) -> None:
        super().__init__(url, size, loops)
        self._connections: list[asyncpg.Connection] = []

    async def open(self) -> None:
        self._connections = [await asyncpg.connect(self.url) for _ in range(self._loops)]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections = []

    async def run_cycle(self, loop: int, deadline: float) -> None:
        await self._push(loop)
        while not await self._pop_and_ack(loop):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{self.name} popped nothing for {MAX_CYCLE_S:.0f} s.")
            await asyncio.sleep(EMPTY_PAUSE_S)

    @abstractmethod
    async def _push(self, loop: int) -> None: ...

    @abstractmethod
    async def _pop_and_ack(self, loop: int) -> bool: ...


class PgmqCycles(SqlCycles):
    name = "pgmq, held"
    _numbers = itertools.count()

    async def open(self) -> None:
        await super().open()
        connection = self._connections[0]
        if not await connection.fetchval("SELECT to_regnamespace('pgmq') IS NOT NULL"):
            await connection.execute((files("pgmq") / "sql" / "pgmq.sql").read_text())
        self._queue = f"q{next(self._numbers)}"
        await connection.execute(f"SELECT pgmq.create('{self._queue}')")

    async def _push(self, loop: int) -> None:
        query = "SELECT pgmq.send_batch($1, $2::jsonb[])"
        await self._connections[loop].fetch(query, self._queue, self._batch())

    async def _pop_and_ack(self, loop: int) -> bool:
        connection = self._connections[loop]
        rows = await connection.fetch("SELECT * FROM pgmq.read($1, 60, $2)", self._queue, self._size)
        message_ids = [row["msg_id"] for row in rows]
        if message_ids:
            await connection.fetch("SELECT pgmq.delete($1, $2::bigint[])", self._queue, message_ids)
        return bool(message_ids)


class PgqueuerCycles(SqlCycles):
    name = "pgqueuer, held"

    async def open(self) -> None:
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import EntrypointExecutionParameter, Queries

        await super().open()
        self._queries = [Queries(AsyncpgDriver(connection)) for connection in self._connections]
        if not await self._connections[0].fetchval("SELECT to_regclass('pgqueuer') IS NOT NULL"):
            await self._queries[0].install()
        self._entrypoint = f"work{self._size}"
        self._entrypoints = {self._entrypoint: EntrypointExecutionParameter(0)}
        self._manager_id = uuid.uuid4()

    async def _push(self, loop: int) -> None:
        payloads: list[bytes | None] = [payload.encode() for payload in self._batch()]
        count = len(payloads)
        await self._queries[loop].enqueue([self._entrypoint] * count, payloads, [0] * count)

    async def _pop_and_ack(self, loop: int) -> bool:
        queries = self._queries[loop]
        jobs = await queries.dequeue(
            self._size, self._entrypoints, self._manager_id, None, timedelta(seconds=60)
        )
        if jobs:
            await queries.log_jobs([(job, "successful", None) for job in jobs])
        return bool(jobs)
