"""A real server in the test's event loop, and connections that send raw bytes to it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.api.server import SERVER_OPTIONS, tls_options
from penstock.broker.broker import Broker
from penstock.config import Settings
from tests.deadlines import deadline_s
from tests.integration.api.calls import app_services
from tests.waiting import wait_until_async

HOST = "Host: localhost"
JSON = "Content-Type: application/json"


class RunningServer:
    def __init__(self, app: FastAPI, server: uvicorn.Server, running: asyncio.Task[None]) -> None:
        self.app = app
        self.uvicorn = server
        self.running = running
        self.port: int = server.servers[0].sockets[0].getsockname()[1]

    @property
    def parked_pops(self) -> int:
        broker: Broker = app_services(self.app).broker
        return broker.parked_pops.count


@asynccontextmanager
async def run_server(settings: Settings, **options: Any) -> AsyncIterator[RunningServer]:
    app = create_app(settings)
    server_options = SERVER_OPTIONS | tls_options(settings) | options
    config = uvicorn.Config(app, port=0, log_level="warning", **server_options)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server._serve())
    await wait_until_async(lambda: is_true(server.started), 10, "the server listens")
    try:
        yield RunningServer(app, server, running)
    finally:
        server.should_exit = True
        await running


async def is_true(value: bool) -> bool:
    return value


class RawConnection:
    """A connection that sends raw bytes and reads responses one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, server: RunningServer, tls: ssl.SSLContext | None = None) -> RawConnection:
        name = "localhost" if tls else None
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, ssl=tls, server_hostname=name))

    def send(self, *chunks: bytes) -> None:
        self.writer.write(b"".join(chunks))

    async def read_response(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(deadline_s(10)):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            fields = (line.partition(": ") for line in lines[1:] if line)
            headers = {name.lower(): value for name, _, value in fields}
            length = int(headers.get("content-length", "0"))
            body = await self.reader.readexactly(length)
        status = int(lines[0].split()[1])
        return status, headers, json.loads(body) if body.startswith((b"{", b"[")) else body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(deadline_s(10)):
            return await self.reader.read(1) == b""


def push_body(queue: str, *payloads: int, partition: str = "p") -> bytes:
    items = [{"queue": queue, "partition": partition, "payload": n} for n in payloads]
    return json.dumps({"items": items}).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", HOST, JSON, f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", HOST, *headers]).encode() + b"\r\n\r\n"
