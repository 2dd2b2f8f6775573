"""Brokers that a client can talk to, and a line to them that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import uvicorn

from penstock.api.app import create_app
from penstock.api.server import SERVER_OPTIONS
from penstock.client import ClientSettings
from penstock.config import Settings
from tests.waiting import wait_until_async

QUICK = ClientSettings(retry_delay_s=0.01, max_retry_delay_s=0.1, retry_attempts=5)


@asynccontextmanager
async def serving(
    postgres_url: str, port: int = 0, redis_url: str = "redis://127.0.0.1:1/0", **more: Any
) -> AsyncIterator[str]:
    """The address of a broker, by default without Redis; what it leaves on disk is gone with it."""
    if not any(name.startswith("load_") for name in more):
        more["load_management"] = False  # what is answered must not depend on how busy the machine is
    with TemporaryDirectory() as home:
        settings = Settings(
            home=Path(home),
            postgres_url=postgres_url,
            redis_url=redis_url,
            clickhouse_url="http://127.0.0.1:1",
            **more,
        )
        async with _running(settings, port) as url:
            yield url


@asynccontextmanager
async def _running(settings: Settings, port: int) -> AsyncIterator[str]:
    server = uvicorn.Server(
        uvicorn.Config(create_app(settings), port=port, log_level="error", **SERVER_OPTIONS)
    )
    running = asyncio.create_task(server._serve())

    async def started() -> bool:
        return server.started

    await wait_until_async(started, 20, "the broker listens")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


class Line:
    """A TCP proxy to a broker that can lose answers."""

    def __init__(self, broker: str) -> None:
        url = httpx.URL(broker)
        self._host, self._port = url.host, url.port
        self._to_lose = 0
        self.lost = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lose_answers(self, count: int = 1) -> None:
        """The next answers of the broker do not arrive; the connection is cut instead."""
        self._to_lose += count

    async def __aenter__(self) -> Line:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_broker = await asyncio.open_connection(self._host, self._port)
        for source, target, answers in ((reader, to_broker[1], False), (to_broker[0], writer, True)):
            task = asyncio.create_task(self._pass_on(source, target, answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if answers and self._to_lose:
                    self._to_lose -= 1
                    self.lost += 1
                    break
                target.write(data)
                await target.drain()
        target.close()
