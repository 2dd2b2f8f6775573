"""pgmq: its SQL functions, called directly over asyncpg."""

from __future__ import annotations

from importlib.resources import files

import asyncpg

from bench.contestants.contestant import Contestant, consume_batches, push_batches, split_batches


class Pgmq(Contestant):
    name = "pgmq"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[asyncpg.Connection] = []
        self._batches: list[list[str]] = []
        self._queue = "q0"
        self._queue_number = 0

    async def open(self, connections: int) -> None:
        self._connections = [await asyncpg.connect(self._url) for _ in range(connections)]
        sql = (files("pgmq") / "sql" / "pgmq.sql").read_text()
        await self._connections[0].execute(sql)
        await self._connections[0].execute("SELECT pgmq.create('q0')")

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections = []

    async def _replace_queue(self) -> None:
        connection = self._connections[0]
        await connection.execute(f"SELECT pgmq.drop_queue('{self._queue}')")
        self._queue_number += 1
        self._queue = f"q{self._queue_number}"
        await connection.execute(f"SELECT pgmq.create('{self._queue}')")

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        await self._replace_queue()
        self._batches = split_batches(messages, size)

    async def push(self, connections: int, deadline: float) -> int:
        send = self._send if len(self._batches[0]) == 1 else self._send_batch
        return await push_batches(self._connections[:connections], self._batches, send, deadline)

    async def _send(self, connection: asyncpg.Connection, batch: list[str]) -> int:
        await connection.fetchval("SELECT pgmq.send($1, $2::jsonb)", self._queue, batch[0])
        return 1

    async def _send_batch(self, connection: asyncpg.Connection, batch: list[str]) -> int:
        await connection.fetch("SELECT pgmq.send_batch($1, $2::jsonb[])", self._queue, batch)
        return len(batch)

    async def count_messages(self) -> int:
        return int(await self._connections[0].fetchval(f"SELECT count(*) FROM pgmq.q_{self._queue}"))

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        await self.prepare_push(1000, messages)
        await push_batches(self._connections[:4], self._batches, self._send_batch, float("inf"))
        await self._connections[0].execute(f"ANALYZE pgmq.q_{self._queue}")

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        async def read_and_delete(connection: asyncpg.Connection) -> int:
            rows = await connection.fetch("SELECT * FROM pgmq.read($1, 60, $2)", self._queue, size)
            if len(rows) == 1:
                message_id = rows[0]["msg_id"]
                await connection.fetchval("SELECT pgmq.delete($1, $2::bigint)", self._queue, message_id)
            elif rows:
                message_ids = [row["msg_id"] for row in rows]
                await connection.fetch("SELECT pgmq.delete($1, $2::bigint[])", self._queue, message_ids)
            return len(rows)

        return await consume_batches(self._connections[:connections], read_and_delete, total, deadline)
