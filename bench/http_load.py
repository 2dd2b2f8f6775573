"""Closed-loop HTTP load with as little work per request as Python allows.

It uses keep-alive connections, request bytes built beforehand, one callback per response and no task per
request: the load generator shares the machine with the broker and must not limit the measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

ResponseHandler = Callable[[int, bytes], bytes | None]
"""Takes status and body of a response. Returns the next request, None to stop, or b"" after it has called
`send_after_pause`."""

PAUSE_S = 0.002


class Connection(asyncio.Protocol):
    """One closed loop: it sends the next request when the response to the previous one is complete."""

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self._buffer = b""
        self._handler: ResponseHandler | None = None
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("The broker closed the connection."))

    def start(self, request: bytes, handler: ResponseHandler) -> asyncio.Future[None]:
        """Send `request` first. The future is done when `handler` returns None."""
        self._handler = handler
        self._done = asyncio.get_running_loop().create_future()
        self._send(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        status = int(self._buffer[9:12])
        length = 0 if status == 204 else content_length(self._buffer, head)
        end = head + 4 + length
        if len(self._buffer) < end:
            return
        body = self._buffer[head + 4 : end]
        self._buffer = self._buffer[end:]
        assert self._handler is not None
        assert self._done is not None
        try:
            request = self._handler(status, body)
        except Exception as error:  # noqa: BLE001 - the future passes it on
            self._done.set_exception(error)
            return
        if request is None:
            self._done.set_result(None)
        elif request:
            self._send(request)

    def _send(self, request: bytes) -> None:
        assert self.transport is not None
        self.transport.write(request)

    def send_after_pause(self, request: bytes, pause_s: float = PAUSE_S) -> None:
        """Send `request` later: after an empty response, or when the rate of a load says so."""
        asyncio.get_running_loop().call_later(pause_s, self._send, request)

    def close(self) -> None:
        assert self.transport is not None
        self.transport.close()


def content_length(buffer: bytes, head: int) -> int:
    """Return the value of the content-length header; the headers end at offset `head`."""
    start = buffer.find(b"content-length: ", 0, head)
    if start < 0:
        start = buffer.lower().find(b"content-length: ", 0, head)
    return int(buffer[start + 16 : buffer.find(b"\r\n", start)])


async def connect(port: int, count: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(count)]
    return [protocol for _, protocol in pairs]


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a POST request with a JSON body."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def get(path: str) -> bytes:
    """Return the bytes of a GET request."""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def unexpected_response(status: int, body: bytes) -> RuntimeError:
    """Return the error that ends a benchmark after a response with the wrong status."""
    return RuntimeError(f"The broker responded with {status}: {body[:300].decode(errors='replace')}")


async def send_all(connections: list[Connection], requests: Iterator[bytes], expected_status: int) -> None:
    """Send every request. Each connection takes the next one as soon as it is free."""

    def next_request(status: int, body: bytes) -> bytes | None:
        if status != expected_status:
            raise unexpected_response(status, body)
        return next(requests, None)

    loops = []
    for connection in connections:
        first = next(requests, None)
        if first is None:
            break
        loops.append(connection.start(first, next_request))
    await asyncio.gather(*loops)
