"""HTTP/1.1 over asyncio streams: the part that a broker, or a proxy in front of it, uses.

A general HTTP library takes more time for a push than the broker does. Redirects, cookies and proxies from
the environment are not supported.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from penstock.client.tracing.spans import Tracing

MAX_IDLE_S = 60.0
"""Less than the 75 s after which a broker closes an idle connection."""

READ_LIMIT_BYTES = 1024 * 1024
CA_VARIABLE = "PENSTOCK_CA"
DEFAULT_PORTS = {"http": 80, "https": 443}


class Unreachable(Exception):
    """The connection could not be opened: nothing was sent."""


class ConnectionLost(Exception):
    """The request was sent, and no complete response arrived."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: Mapping[bytes, bytes]
    """By name in lower case."""
    body: bytes
    is_reusable: bool


class RequestCancellation:
    """Cancel a request without losing a response that the broker is already sending.

    First the request is not repeated any more (`is_final_attempt`). Then the client half-closes its
    connection: a broker that has not answered yet treats that as a disconnect, and the client reads a
    response that was sent. A pop is therefore either released or delivered.
    """

    def __init__(self) -> None:
        self.is_final_attempt = False
        self.is_half_closed = False
        self.connection: Connection | None = None
        """The connection on which the response is awaited."""

    def half_close(self) -> bool:
        """Half-close the connection. Returns False if nothing was sent, or if TLS does not support it."""
        self.is_final_attempt = self.is_half_closed = True
        return self.connection is not None and self.connection.end_sending()


class BrokerEndpoint:
    """The address of a broker, and the idle connections to it."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(
                f"A broker needs a URL such as http://127.0.0.1:7480, not {_without_user(url)!r}."
            )
        self.url = _without_user(url)
        """The address for error messages."""
        self.host = parts.hostname
        self.port = parts.port or DEFAULT_PORTS[parts.scheme]
        self.path_prefix = parts.path.rstrip("/")
        self.tls = (tls or default_tls_context()) if parts.scheme == "https" else None
        host = parts.netloc.rpartition("@")[2].encode()
        self._headers = b"Host: " + host + b"\r\nUser-Agent: penstock-client\r\n" + _authorization(token)
        self._tracing = tracing
        self._idle: list[Connection] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        connect_timeout_s: float,
        response_timeout_s: float,
        cancellation: RequestCancellation | None = None,
    ) -> HttpResponse:
        """Send one request. Raises Unreachable or ConnectionLost. A cancelled call closes its connection."""
        connection = self._take_idle() or await self._connect(connect_timeout_s)
        response: HttpResponse | None = None
        if cancellation is not None:
            cancellation.connection = connection
        try:
            async with asyncio.timeout(response_timeout_s):
                response = await connection.exchange(self._build_head(method, path, body), body or b"")
        except TimeoutError:
            raise ConnectionLost(f"no response within {response_timeout_s:g} s") from None
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error
        finally:
            if cancellation is not None:
                cancellation.connection = None
            if (
                response is not None
                and response.is_reusable
                and not (cancellation and cancellation.is_half_closed)
            ):
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.close()
        return response

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> Connection | None:
        """Return the most recently used connection that is usable, and close unusable ones."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

    async def _connect(self, timeout_s: float) -> Connection:
        try:
            async with asyncio.timeout(timeout_s):
                return Connection(
                    *await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=READ_LIMIT_BYTES)
                )
        except TimeoutError:
            raise Unreachable(f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(str(error) or type(error).__name__) from error

    def _build_head(self, method: str, path: str, body: bytes | None) -> bytes:
        line = f"{method} {self.path_prefix}{path} HTTP/1.1\r\n".encode("ascii")
        head = line + self._headers
        if self._tracing is not None:
            head += self._tracing.header()
        if body is None:
            return head + b"\r\n"
        return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)


def _authorization(token: str | None) -> bytes:
    """Return the header with the token. Raises ValueError, without its text, if no header can carry it."""
    if not token:
        return b""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError("The token has characters that no token has. Check token= and PENSTOCK_TOKEN.")
    return f"Authorization: Bearer {token}\r\n".encode()


def _without_user(url: str) -> str:
    """Return the URL without a user and password, which errors must not show."""
    scheme, separator, address = url.partition("://")
    return scheme + separator + address.rpartition("@")[2]


def default_tls_context() -> ssl.SSLContext:
    """Return a context that trusts the CAs in the file of PENSTOCK_CA, else those of this machine."""
    return ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE) or None)


class Connection:
    """One HTTP/1.1 connection, used for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since = 0.0

    def is_usable(self) -> bool:
        is_fresh = time.monotonic() - self.idle_since < MAX_IDLE_S
        return is_fresh and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    def end_sending(self) -> bool:
        """Close the sending side and keep reading. Returns False if TLS does not support it."""
        if not self._writer.can_write_eof():
            return False
        self._writer.write_eof()
        return True

    async def exchange(self, head: bytes, body: bytes) -> HttpResponse:
        self._writer.write(head + body)
        await self._writer.drain()
        status = 100
        while status < 200:  # such as 103, which precedes the response
            version, status, headers = _parse_head(await self._reader.readuntil(b"\r\n\r\n"))
        is_reusable = version == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
        if status in (204, 304):
            return HttpResponse(status, headers, b"", is_reusable)
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return HttpResponse(status, headers, await self._read_chunks(), is_reusable)
        if b"content-length" in headers:
            content = await self._reader.readexactly(int(headers[b"content-length"]))
            return HttpResponse(status, headers, content, is_reusable)
        return HttpResponse(status, headers, await self._reader.read(), False)

    async def _read_chunks(self) -> bytes:
        chunks = []
        while size := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            chunks.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass  # ignore trailers
        return b"".join(chunks)


def _parse_head(head: bytes) -> tuple[bytes, int, dict[bytes, bytes]]:
    status_line, *lines = head[:-4].split(b"\r\n")
    version, status = status_line.split(b" ", 2)[:2]
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"{status_line[:40]!r} is not an HTTP/1.1 response")
    fields = (line.partition(b":") for line in lines)
    return version, int(status), {name.lower(): value.strip() for name, _, value in fields}
