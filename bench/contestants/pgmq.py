"""pgmq: its SQL functions, called directly over asyncpg."""

from __future__ import annotations

from importlib.resources import files

import asyncpg

from bench.contestants.contestant import Contestant, batches, drain, share


class Pgmq(Contestant):
    name = "pgmq"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[asyncpg.Connection] = []
        self._work: list[list[str]] = []
        self._queue = "q0"
        self._number = 0

    async def open(self, connections: int) -> None:
        self._connections = [await asyncpg.connect(self._url) for _ in range(connections)]
        sql = (files("pgmq") / "sql" / "pgmq.sql").read_text()
        await self._connections[0].execute(sql)
        await self._connections[0].execute("SELECT pgmq.create('q0')")

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections = []

    async def _new_queue(self) -> None:
        first = self._connections[0]
        await first.execute(f"SELECT pgmq.drop_queue('{self._queue}')")
        self._number += 1
        self._queue = f"q{self._number}"
        await first.execute(f"SELECT pgmq.create('{self._queue}')")

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        await self._new_queue()
        self._work = batches(messages, size)

    async def push(self, connections: int, deadline: float) -> int:
        send = self._send if len(self._work[0]) == 1 else self._send_batch
        return await share(self._connections[:connections], self._work, send, deadline)

    async def _send(self, connection: asyncpg.Connection, batch: list[str]) -> int:
        await connection.fetchval("SELECT pgmq.send($1, $2::jsonb)", self._queue, batch[0])
        return 1

    async def _send_batch(self, connection: asyncpg.Connection, batch: list[str]) -> int:
        await connection.fetch("SELECT pgmq.send_batch($1, $2::jsonb[])", self._queue, batch)
        return len(batch)

    async def held(self) -> int:
        return await self._connections[0].fetchval(f"SELECT count(*) FROM pgmq.q_{self._queue}")

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        await self.prepare_push(1000, messages)
        await share(self._connections[:4], self._work, self._send_batch, float("inf"))
        await self._connections[0].execute(f"ANALYZE pgmq.q_{self._queue}")

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        async def take(connection: asyncpg.Connection) -> int:
            rows = await connection.fetch("SELECT * FROM pgmq.read($1, 60, $2)", self._queue, size)
            if len(rows) == 1:
                one = rows[0]["msg_id"]
                await connection.fetchval("SELECT pgmq.delete($1, $2::bigint)", self._queue, one)
            elif rows:
                ids = [row["msg_id"] for row in rows]
                await connection.fetch("SELECT pgmq.delete($1, $2::bigint[])", self._queue, ids)
            return len(rows)

        return await drain(self._connections[:connections], take, total, deadline)


class PgmqPop(Pgmq):
    """pgmq's own way to take without an acknowledgement: read and delete in one statement."""

    name = "pgmq pop"

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        async def take(connection: asyncpg.Connection) -> int:
            return len(await connection.fetch("SELECT * FROM pgmq.pop($1, $2)", self._queue, size))

        return await drain(self._connections[:connections], take, total, deadline)
