"""procrastinate: its app defers jobs; they are fetched and finished one by one, as its workers do."""

from __future__ import annotations

import json
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Status

from bench.contestants.contestant import Contestant, consume_batches, push_batches, split_batches


class Procrastinate(Contestant):
    name = "procrastinate"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connector: PsycopgConnector | None = None
        self._app: App | None = None
        self._batches: list[list[dict[str, Any]]] = []

    async def open(self, connections: int) -> None:
        self._connector = PsycopgConnector(conninfo=self._url, min_size=connections, max_size=connections)
        self._app = App(connector=self._connector)
        self._task = self._app.task(name="work", queue="bench")(_work)
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        if self._app is not None:
            await self._app.close_async()
            self._app = None

    async def prepare_push(self, size: int, messages: list[str]) -> None:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            await connection.execute("TRUNCATE procrastinate_jobs CASCADE")
        self._batches = split_batches([{"order": json.loads(message)} for message in messages], size)

    async def push(self, connections: int, deadline: float) -> int:
        async def send(_: int, batch: list[dict[str, Any]]) -> int:
            if len(batch) == 1:
                await self._task.defer_async(**batch[0])
            else:
                await self._task.batch_defer_async(*batch)
            return len(batch)

        return await push_batches(list(range(connections)), self._batches, send, deadline)

    async def count_messages(self) -> int:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            cursor = await connection.execute("SELECT count(*) FROM procrastinate_jobs")
            row = await cursor.fetchone()
            return int(row[0]) if row else 0

    async def prepare_consume(self, size: int, messages: list[str]) -> None:
        await self.prepare_push(1000, messages)
        await self.push(4, float("inf"))
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            await connection.execute("ANALYZE procrastinate_jobs")

    def can_consume(self, size: int) -> bool:
        return size == 1

    async def consume(self, size: int, connections: int, total: int, deadline: float) -> int:
        assert self._app is not None
        manager = self._app.job_manager
        worker = await manager.register_worker()

        async def fetch_and_finish(_: int) -> int:
            job = await manager.fetch_job(["bench"], worker)
            if job is None:
                return 0
            await manager.finish_job(job, Status.SUCCEEDED, delete_job=True)
            return 1

        handled = await consume_batches(list(range(connections)), fetch_and_finish, total, deadline)
        await manager.unregister_worker(worker)
        return handled


async def _work(order: dict[str, Any]) -> None:
    """The task of the jobs. It never runs: the benchmark fetches and finishes jobs without it."""
