"""A TCP proxy whose connections can be cut, delayed, held back and refused while it runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_CHUNK_BYTES = 65_536


class FaultProxy:
    """Forward connections from a port of this machine to others, in turn, with the faults of the moment."""

    def __init__(self, server_port: int) -> None:
        self._server_ports = [server_port]
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._delay_s = 0.0
        self._refusing = False
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.heal()
        self.cut()
        await self._server.wait_closed()

    def add_server(self, port: int) -> None:
        """Give every other new connection to a further server."""
        self._server_ports.append(port)

    def remove_server(self, port: int) -> None:
        """Give no new connection to this server. Its connections stay."""
        if port in self._server_ports:
            self._server_ports.remove(port)

    def cut(self) -> None:
        """Reset all connections. New ones are accepted."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def delay(self, delay_s: float) -> None:
        """Hold all data back for this long, in each direction."""
        self._delay_s = delay_s

    def drop(self) -> None:
        """Pass no data until `heal`, as if packets were lost; connections stay open."""
        self._passing.clear()

    def refuse(self) -> None:
        """Reset all connections and every new one until `heal`."""
        self._refusing = True
        self.cut()

    def heal(self) -> None:
        self._delay_s, self._refusing = 0.0, False
        self._passing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._refusing:
                return
            await self._connect(reader, writer)
        except OSError:
            return  # the server is down: the client sees its connection end
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self._open_server()
        self._writers.add(server_writer)
        directions = [
            asyncio.create_task(self._forward(reader, server_writer)),
            asyncio.create_task(self._forward(server_reader, writer)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            server_writer.transport.abort()
            self._writers.discard(server_writer)

    async def _open_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server whose turn it is, or to the next one that accepts. Raises OSError."""
        self._server_ports.append(self._server_ports.pop(0))
        *others, last = self._server_ports
        for port in others:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return await asyncio.open_connection("127.0.0.1", last)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._passing.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
