"""A real HTTP server that receives notices, and fails in the ways that receivers do."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import wait_until_async

HANG = b""
"""Instead of a response: read the request and never answer."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def http_response(status: int, body: bytes = b"", **headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", "Connection: close"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*head, "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class HttpReceiver:
    """Answers each request with the next response, and all further ones with the last."""

    responses: list[bytes]
    scheme: str = "http"
    host: str = "localhost"
    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    concurrent: int = 0
    most_concurrent: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/hook/path-token?sig=query-token"

    async def wait_for_requests(self, count: int) -> list[ReceivedRequest]:
        async def has_enough() -> bool:
            return len(self.requests) >= count

        await wait_until_async(has_enough, 20, f"{count} requests arrive")
        return self.requests

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_request(reader)
            self.concurrent += 1
            self.most_concurrent = max(self.most_concurrent, self.concurrent)
            self.requests.append(request)
            response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
            if response == HANG:
                await reader.read()  # until the sender gives up
            else:
                writer.write(response)
                await writer.drain()
            self.concurrent -= 1
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            return  # the sender closed the connection
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in headers.items()}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(head[0].split(" ")[1], headers, body)


@asynccontextmanager
async def receive_http(
    responses: Sequence[bytes] = (OK,), tls_context: ssl.SSLContext | None = None, host: str = "localhost"
) -> AsyncIterator[HttpReceiver]:
    """Listen on a free port of the loopback address, or of another address of this machine."""
    receiver = HttpReceiver(list(responses), "https" if tls_context else "http", host)
    address = "127.0.0.1" if host == "localhost" else host
    server = await asyncio.start_server(receiver.handle, address, 0, ssl=tls_context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
