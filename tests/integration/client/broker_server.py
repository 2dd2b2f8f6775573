"""Run a broker on a socket, and a proxy in front of it that drops responses."""

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

FAST_RETRIES = ClientSettings(retry_delay_s=0.01, max_retry_delay_s=0.1, retry_attempts=5)


@asynccontextmanager
async def run_broker(
    postgres_url: str,
    port: int = 0,
    redis_url: str = "redis://127.0.0.1:1/0",
    clickhouse_url: str = "http://127.0.0.1:1",
    **options: Any,
) -> AsyncIterator[str]:
    """Run a broker and yield its URL. It has no Redis and no ClickHouse by default; its files are deleted.

    `options` are further settings. Load management is off unless they set a load threshold: responses must
    not depend on the load of the machine.
    """
    if not any(name.startswith("load_") for name in options):
        options["load_management"] = False
    with TemporaryDirectory() as home:
        settings = Settings(
            home=Path(home),
            postgres_url=postgres_url,
            redis_url=redis_url,
            clickhouse_url=clickhouse_url,
            **options,
        )
        async with _run_server(settings, port) as url:
            yield url


@asynccontextmanager
async def _run_server(settings: Settings, port: int) -> AsyncIterator[str]:
    server = uvicorn.Server(
        uvicorn.Config(create_app(settings), port=port, log_level="error", **SERVER_OPTIONS)
    )
    server_task = asyncio.create_task(server._serve())

    async def is_started() -> bool:
        return server.started

    await wait_until_async(is_started, 20, "the broker listens")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await server_task


class LossyProxy:
    """A TCP proxy to a broker that can drop responses."""

    def __init__(self, broker_url: str) -> None:
        url = httpx.URL(broker_url)
        self._host, self._port = url.host, url.port
        self._responses_to_drop = 0
        self.dropped = 0
        """Number of dropped responses."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def drop_responses(self, count: int = 1) -> None:
        """Close the connection instead of forwarding the broker's next responses."""
        self._responses_to_drop += count

    async def __aenter__(self) -> LossyProxy:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        for reader, writer, is_response in (
            (client_reader, broker_writer, False),
            (broker_reader, client_writer, True),
        ):
            task = asyncio.create_task(self._forward(reader, writer, is_response))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_response: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if is_response and self._responses_to_drop:
                    self._responses_to_drop -= 1
                    self.dropped += 1
                    break
                writer.write(data)
                await writer.drain()
        writer.close()
