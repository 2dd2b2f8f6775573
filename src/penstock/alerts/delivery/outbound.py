"""Connections to receivers: checked addresses, no redirects, bounded responses.

It uses httpcore, the transport of httpx, directly: httpx logs every URL, and the URLs of some channels are
secrets. Proxies of the environment are not used: behind a proxy, the check of addresses would mean nothing.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import certifi
import httpcore
import httpx

from penstock import __version__
from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.delivery_errors import DeliveryFailed

MAX_RESPONSE_BYTES = 4_096
"""Bytes of a response that are read. The rest only matters to the receiver."""
MAX_QUOTED_CHARACTERS = 200
"""Characters of a response that an error quotes."""
CONNECT_TIMEOUT_S = 5.0
"""How long one address may take to connect before the next one is tried."""

SocketOption = httpcore.SOCKET_OPTION


def create_tls_context() -> ssl.SSLContext:
    """Trust the public authorities of certifi and those that the system knows besides."""
    context = ssl.create_default_context(cafile=certifi.where())
    context.load_default_certs()
    return context


class CheckedBackend(httpcore.AnyIOBackend):
    """Connects to allowed addresses only. TLS and the Host header still use the name."""

    def __init__(self, address_check: AddressCheck) -> None:
        self._address_check = address_check

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        last_error: Exception | None = None
        for address in await self._address_check.resolve(host, port):
            try:
                return await super().connect_tcp(
                    address, port, CONNECT_TIMEOUT_S, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last_error = error
        raise last_error or httpcore.ConnectError("the name has no address")


@dataclass(frozen=True, slots=True)
class Outbound:
    """How senders reach receivers."""

    address_check: AddressCheck
    tls_context: ssl.SSLContext = field(default_factory=create_tls_context)

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        final_status: int | None = None,
    ) -> None:
        """Send JSON. Raises DeliveryFailed unless the response is a 2xx; with `final_status`, for good."""
        target = httpx.URL(url)
        all_headers = {
            "Content-Type": "application/json",
            "User-Agent": f"Penstock/{__version__}",
            **(headers or {}),
        }
        pool = httpcore.AsyncConnectionPool(
            ssl_context=self.tls_context, network_backend=CheckedBackend(self.address_check)
        )
        try:
            async with (
                pool,
                pool.stream(
                    "POST",
                    httpcore.URL(
                        scheme=target.raw_scheme,
                        host=target.raw_host,
                        port=target.port,
                        target=target.raw_path,
                    ),
                    headers=list(all_headers.items()),
                    content=body,
                ) as response,
            ):
                if not 200 <= response.status < 300:
                    raise _refusal(response, await _read_start(response), target.host, final_status)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            reason = str(error) or type(error).__name__
            raise DeliveryFailed(f"The request to {target.host} failed: {reason}.") from None

    async def open_socket(self, host: str, port: int) -> socket.socket:
        """Connect to a host, for protocols other than HTTP."""
        loop = asyncio.get_running_loop()
        last_error: Exception | None = None
        for address in await self.address_check.resolve(host, port):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await asyncio.wait_for(loop.sock_connect(connection, (address, port)), CONNECT_TIMEOUT_S)
            except (OSError, TimeoutError) as error:
                connection.close()
                last_error = error
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        reason = str(last_error) or type(last_error).__name__
        raise DeliveryFailed(f"No connection to {host}:{port}: {reason}.")


async def _read_start(response: httpcore.Response) -> bytes:
    """Read at most MAX_RESPONSE_BYTES of a response."""
    content = b""
    async for chunk in response.aiter_stream():
        content += chunk
        if len(content) >= MAX_RESPONSE_BYTES:
            break
    return content[:MAX_RESPONSE_BYTES]


def _refusal(
    response: httpcore.Response, content: bytes, host: str, final_status: int | None
) -> DeliveryFailed:
    status = response.status
    if 300 <= status < 400:
        return DeliveryFailed(
            f"{host} answered with a redirect (HTTP {status}), which is not followed. Set the final URL."
        )
    quoted = " ".join(content.decode(errors="replace").split())[:MAX_QUOTED_CHARACTERS]
    detail = f"{host} answered HTTP {status}" + (f": {quoted}" if quoted else ".")
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    return DeliveryFailed(
        detail,
        requested_delay_s=parse_retry_after(headers.get(b"retry-after", "")),
        is_final=status == final_status,
    )


def parse_retry_after(text: str, now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or the time until a date."""
    with suppress(ValueError, OverflowError):
        seconds = float(text)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    with suppress(ValueError):
        date = parsedate_to_datetime(text)
        return max(
            0.0, (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
        )
    return None
