"""HTTP load with as little work per request as Python allows.

Keep-alive connections, request bytes built beforehand, one callback per answer, no task per request: the
load generator shares the machine with what it measures and must not be what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

Next = Callable[[int, bytes], bytes | None]
"""Takes status and body of an answer; gives the next request, None to stop, b"" if `later` was called."""

RETRY_S = 0.002


class Connection(asyncio.Protocol):
    """One closed loop: the next request goes out when the answer to the last one is complete."""

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self._buffer = b""
        self._next: Next | None = None
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the broker closed the connection"))

    def start(self, request: bytes, next_request: Next) -> asyncio.Future[None]:
        """Begin with `request`; the future is done when `next_request` gave None."""
        self._next = next_request
        self._done = asyncio.get_running_loop().create_future()
        self._send(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        status = int(self._buffer[9:12])
        length = 0 if status == 204 else length_of(self._buffer, head)
        end = head + 4 + length
        if len(self._buffer) < end:
            return
        body = self._buffer[head + 4 : end]
        self._buffer = self._buffer[end:]
        assert self._next is not None
        assert self._done is not None
        try:
            request = self._next(status, body)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._done.set_exception(error)
            return
        if request is None:
            self._done.set_result(None)
        elif request:
            self._send(request)

    def _send(self, request: bytes) -> None:
        assert self.transport is not None
        self.transport.write(request)

    def later(self, request: bytes) -> None:
        """Send after a short pause: there was nothing to do."""
        asyncio.get_running_loop().call_later(RETRY_S, self._send, request)


def length_of(buffer: bytes, head: int) -> int:
    at = buffer.find(b"content-length: ", 0, head)
    if at < 0:
        at = buffer.lower().find(b"content-length: ", 0, head)
    return int(buffer[at + 16 : buffer.find(b"\r\n", at)])


async def connect(port: int, count: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(count)]
    return [protocol for _, protocol in made]


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: penstock\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: penstock\r\n\r\n".encode()


async def send_all(connections: list[Connection], requests: Iterator[bytes], expected: int) -> None:
    """Send every request, each connection taking the next one as soon as it is free."""

    def next_request(status: int, body: bytes) -> bytes | None:
        if status != expected:
            raise RuntimeError(f"answered {status}: {body[:300].decode(errors='replace')}")
        return next(requests, None)

    running = []
    for connection in connections:
        first = next(requests, None)
        if first is None:
            break
        running.append(connection.start(first, next_request))
    await asyncio.gather(*running)
