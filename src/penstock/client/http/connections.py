"""HTTP/1.1 over asyncio's streams: as much of it as a broker, or a proxy before it, answers with.

A general HTTP library takes more time for a push than the broker does. What such a library has and this has
not are redirects, cookies, and proxies that the environment names.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

IDLE_S = 60.0
"""Less than the 75 s after which a broker closes a connection nobody uses."""

BUFFER = 1024 * 1024
SCHEMES = {"http": 80, "https": 443}


class Unreachable(Exception):
    """No connection could be made: nothing was sent."""


class Broken(Exception):
    """Something was sent, and no whole answer came back."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[bytes, bytes]
    """By their names in lower case."""
    body: bytes
    reusable: bool


class Parting:
    """A way to leave a request without losing an answer that is already on its way.

    First it is only not repeated any more (`last`). Then our end of the connection says that it will send no
    more: a broker that has not answered yet takes that as the client's leaving, and one that has is heard to
    the end. So a pop is either given back or delivered.
    """

    def __init__(self) -> None:
        self.last = False
        self.left = False
        self.connection: Connection | None = None
        """Where an answer is waited for."""

    def leave(self) -> bool:
        """Whether there is an end to wait for. If not, nothing was sent, or TLS has no such way to leave."""
        self.last = self.left = True
        return self.connection is not None and self.connection.end_sending()


class Place:
    """A broker's address, and the idle connections to it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"name brokers by their URLs, such as http://127.0.0.1:7480, not {url!r}")
        self.url = url
        self.host = parts.hostname
        self.port = parts.port or SCHEMES[parts.scheme]
        self.prefix = parts.path.rstrip("/")
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._named = parts.netloc.rpartition("@")[2].encode()
        self._idle: list[Connection] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        connect_s: float,
        answer_s: float,
        parting: Parting | None = None,
    ) -> Response:
        """One exchange. Raises Unreachable or Broken. Who is cancelled leaves no connection behind."""
        connection = self._take() or await self._connect(connect_s)
        response: Response | None = None
        if parting is not None:
            parting.connection = connection
        try:
            async with asyncio.timeout(answer_s):
                response = await connection.exchange(self._head(method, path, body), body or b"")
        except TimeoutError:
            raise Broken(f"nothing within {answer_s:g} s") from None
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise Broken(str(error) or type(error).__name__) from error
        finally:
            if parting is not None:
                parting.connection = None
            if response is not None and response.reusable and not (parting and parting.left):
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.close()
        return response

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Connection | None:
        """The connection used last, if it can still be used; the others of its age are closed with it."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.close()
        return None

    async def _connect(self, connect_s: float) -> Connection:
        try:
            async with asyncio.timeout(connect_s):
                return Connection(
                    *await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=BUFFER)
                )
        except TimeoutError:
            raise Unreachable(f"no connection within {connect_s:g} s") from None
        except OSError as error:
            raise Unreachable(str(error) or type(error).__name__) from error

    def _head(self, method: str, path: str, body: bytes | None) -> bytes:
        line = f"{method} {self.prefix}{path} HTTP/1.1\r\n".encode("ascii")
        head = line + b"Host: " + self._named + b"\r\nUser-Agent: penstock-client\r\n"
        if body is None:
            return head + b"\r\n"
        return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since = 0.0

    def usable(self) -> bool:
        fresh = time.monotonic() - self.idle_since < IDLE_S
        return fresh and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    def end_sending(self) -> bool:
        """Say that no more comes from here, and go on reading; False where TLS does not allow it."""
        if not self._writer.can_write_eof():
            return False
        self._writer.write_eof()
        return True

    async def exchange(self, head: bytes, body: bytes) -> Response:
        self._writer.write(head + body)
        await self._writer.drain()
        status = 100
        while status < 200:  # such as 103, which announces the answer
            version, status, headers = _parse(await self._reader.readuntil(b"\r\n\r\n"))
        reusable = version == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
        if status in (204, 304):
            return Response(status, headers, b"", reusable)
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return Response(status, headers, await self._chunks(), reusable)
        if b"content-length" in headers:
            content = await self._reader.readexactly(int(headers[b"content-length"]))
            return Response(status, headers, content, reusable)
        return Response(status, headers, await self._reader.read(), False)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers say nothing a client needs
        return b"".join(parts)


def _parse(head: bytes) -> tuple[bytes, int, dict[bytes, bytes]]:
    first, *lines = head[:-4].split(b"\r\n")
    version, status = first.split(b" ", 2)[:2]
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"{first[:40]!r} is not an answer in HTTP/1.1")
    fields = (line.partition(b":") for line in lines)
    return version, int(status), {name.lower(): value.strip() for name, _, value in fields}
