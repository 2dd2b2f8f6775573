"""pgqueuer: its query layer over asyncpg, which dequeues jobs and logs them as successful in batches."""

from __future__ import annotations

import uuid
from datetime import timedelta

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import EntrypointExecutionParameter, Queries

from bench.contestants.contestant import Contestant, consume_batches, push_batches, split_batches

ENTRYPOINT = "work"


class Pgqueuer(Contestant):
    name = "pgqueuer"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[asyncpg.Connection] = []
        self._queries: list[Queries] = []
        self._batches: list[list[bytes]] = []
        self._manager_id = uuid.uuid4()

    async def open(self, connections: int) -> None:
        self._connections = [await asyncpg.connect(self._url) for _ in range(connections)]
        self._queries = [Queries(AsyncpgDriver(connection)) for connection in self._connections]
        await self._queries[0].install()

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections = []

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        await self._connections[0].execute("TRUNCATE pgqueuer, pgqueuer_log")
        self._batches = split_batches([message.encode() for message in messages], size)

    async def push(self, connections: int, deadline: float) -> int:
        return await push_batches(self._queries[:connections], self._batches, self._send, deadline)

    @staticmethod
    async def _send(queries: Queries, batch: list[bytes]) -> int:
        if len(batch) == 1:
            await queries.enqueue(ENTRYPOINT, batch[0])
        else:
            await queries.enqueue([ENTRYPOINT] * len(batch), list(batch), [0] * len(batch))
        return len(batch)

    async def count_messages(self) -> int:
        return int(await self._connections[0].fetchval("SELECT count(*) FROM pgqueuer"))

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        await self.prepare_push(1000, messages)
        await self.push(4, float("inf"))
        await self._connections[0].execute("ANALYZE pgqueuer")

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        entrypoints = {ENTRYPOINT: EntrypointExecutionParameter(0)}

        async def dequeue_and_log(queries: Queries) -> int:
            jobs = await queries.dequeue(size, entrypoints, self._manager_id, None, timedelta(seconds=60))
            if jobs:
                await queries.log_jobs([(job, "successful", None) for job in jobs])
            return len(jobs)

        return await consume_batches(self._queries[:connections], dequeue_and_log, total, deadline)
