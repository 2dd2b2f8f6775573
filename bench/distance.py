"""A line to a server that is far away: everything arrives, some milliseconds later.

Run as a process of its own: `python -m bench.distance PORT SERVER_PORT MS`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class End(asyncio.Protocol):
    """One end of a line; what it hears the other end says, later."""

    def __init__(self, delay_s: float, server_port: int | None = None) -> None:
        self._delay_s = delay_s
        self._server_port = server_port
        self._loop = asyncio.get_running_loop()
        self._early: list[bytes] = []
        self._other: End | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._server_port is not None:
            self._connecting = self._loop.create_task(self._connect(self._server_port))

    async def _connect(self, port: int) -> None:
        _, other = await self._loop.create_connection(lambda: End(self._delay_s), "127.0.0.1", port)
        self._other, other._other = other, self
        for data in self._early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            self._loop.call_later(self._delay_s, self._other.say, data)

    def say(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.close()


async def main(port: int, server_port: int, ms: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: End(ms / 1000, server_port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
