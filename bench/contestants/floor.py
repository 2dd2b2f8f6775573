"""The floor: the same bytes into a plain table (id bigserial, payload bytea), and nothing else done.

No queue can be quicker on the same server with one transaction per batch; the distance to it is what a
queue's order, leases and bookkeeping cost.
"""

from __future__ import annotations

import asyncpg

from bench.contestants.contestant import Contestant, batches, share


class Floor(Contestant):
    consumes = False

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[asyncpg.Connection] = []
        self._work: list[list[bytes]] = []

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
        self._work = batches([message.encode() for message in messages], size)

    async def push(self, connections: int, deadline: float) -> int:
        return await share(self._connections[:connections], self._work, self.write, deadline)

    async def held(self) -> int:
        return await self._connections[0].fetchval(f"SELECT count(*) FROM {self.table}")

    table: str

    async def write(self, connection: asyncpg.Connection, batch: list[bytes]) -> int:
        raise NotImplementedError


class Copy(Floor):
    name = "floor: COPY"
    table = "floor_copy"

    async def write(self, connection: asyncpg.Connection, batch: list[bytes]) -> int:
        rows = [(payload,) for payload in batch]
        await connection.copy_records_to_table(self.table, records=rows, columns=["payload"])
        return len(batch)


class Insert(Floor):
    name = "floor: INSERT"
    table = "floor_insert"

    async def write(self, connection: asyncpg.Connection, batch: list[bytes]) -> int:
        await connection.execute(f"INSERT INTO {self.table} (payload) SELECT unnest($1::bytea[])", batch)
        return len(batch)
