"""Writes of the same bytes to a plain table (id bigserial, payload bytea), without any queue.

No queue can be faster on the same server with one transaction per batch. The difference is the cost of a
queue's order, leases and bookkeeping. The results call these contestants the floor.
"""

from __future__ import annotations

import asyncpg

from bench.contestants.contestant import Contestant, push_batches, split_batches


class PlainTable(Contestant):
    consumes = False
    table: str

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[asyncpg.Connection] = []
        self._batches: list[list[bytes]] = []

    async def open(self, connections: int) -> None:
        self._connections = [await asyncpg.connect(self._url) for _ in range(connections)]
        await self._connections[0].execute(
            f"CREATE TABLE {self.table} (id bigserial PRIMARY KEY, payload bytea NOT NULL)"
        )

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections = []

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        await self._connections[0].execute(f"TRUNCATE {self.table}")
        self._batches = split_batches([message.encode() for message in messages], size)

    async def push(self, connections: int, deadline: float) -> int:
        return await push_batches(self._connections[:connections], self._batches, self.write, deadline)

    async def count_messages(self) -> int:
        return int(await self._connections[0].fetchval(f"SELECT count(*) FROM {self.table}"))

    async def write(self, connection: asyncpg.Connection, batch: list[bytes]) -> int:
        raise NotImplementedError


class CopyToTable(PlainTable):
    name = "floor: COPY"
    table = "floor_copy"

    async def write(self, connection: asyncpg.Connection, batch: list[bytes]) -> int:
        rows = [(payload,) for payload in batch]
        await connection.copy_records_to_table(self.table, records=rows, columns=["payload"])
        return len(batch)


class InsertIntoTable(PlainTable):
    name = "floor: INSERT"
    table = "floor_insert"

    async def write(self, connection: asyncpg.Connection, batch: list[bytes]) -> int:
        await connection.execute(f"INSERT INTO {self.table} (payload) SELECT unnest($1::bytea[])", batch)
        return len(batch)
