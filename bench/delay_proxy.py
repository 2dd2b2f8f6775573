"""A TCP proxy that delays all data by some milliseconds, as if the server were far away.

Run it as its own process: `python -m bench.delay_proxy PORT SERVER_PORT DELAY_MS`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class ProxyConnection(asyncio.Protocol):
    """One side of a proxied connection. It forwards received data to its peer after the delay."""

    def __init__(self, delay_s: float, server_port: int | None = None) -> None:
        """`server_port` is set on the client's side, which opens the connection to the server."""
        self._delay_s = delay_s
        self._server_port = server_port
        self._loop = asyncio.get_running_loop()
        self._received_before_connect: list[bytes] = []
        self._peer: ProxyConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._server_port is not None:
            self._connecting = self._loop.create_task(self._connect(self._server_port))

    async def _connect(self, port: int) -> None:
        _, peer = await self._loop.create_connection(
            lambda: ProxyConnection(self._delay_s), "127.0.0.1", port
        )
        self._peer, peer._peer = peer, self
        for data in self._received_before_connect:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            self._received_before_connect.append(data)
        else:
            self._loop.call_later(self._delay_s, self._peer.write, data)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._peer is not None and self._peer.transport is not None:
            self._peer.transport.close()


async def main(port: int, server_port: int, delay_ms: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ProxyConnection(delay_ms / 1000, server_port), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
