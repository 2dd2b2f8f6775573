"""Send the same bytes to this server's protocol and to uvicorn's own, on real sockets, and compare."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any, NamedTuple

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.api.http.fast_protocol import FastHttpProtocol
from penstock.errors import MalformedRequest, PenstockError
from tests.deadlines import deadline_s
from tests.integration.api.http.raw_connections import RunningServer

QUIET_S, PATIENT_S = 0.03, 1.0
"""Silence after which a server counts as waiting for more; the second one confirms a difference."""
_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)")
NOT_HTTP = "The request is not valid HTTP/1.1"
UVICORN_REFUSAL = (400, b"Invalid HTTP request received.")


class Exchange(NamedTuple):
    """What a client sees: the responses, and what becomes of its connection."""

    responses: list[tuple[int, bytes]]
    is_closed: bool
    refusal: PenstockError | None = None
    """The error with which this server's protocol ended the connection."""
    is_reset: bool = False
    """The server closed the connection while the client still sent a body: the response may be lost."""


class _ResponseParser:
    def __init__(self) -> None:
        self.responses: list[tuple[int, bytes]] = []
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)
        self.feed = self._parser.feed_data

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body = _TIME.sub(b"TIME", _ID.sub(b"ID", self._body))
        self.responses.append((self._parser.get_status_code(), body))


async def exchange(
    server: RunningServer,
    protocol_class: type[HttpToolsProtocol],
    chunks: list[bytes],
    quiet_s: float = QUIET_S,
) -> Exchange:
    """Send the chunks one after the other; the protocol receives each of them by itself."""
    received = 0
    refusal: PenstockError | None = None
    has_received = asyncio.Event()

    class CountingProtocol(protocol_class):  # type: ignore[misc, valid-type]
        def data_received(self, data: bytes) -> None:
            nonlocal received
            received += len(data)
            super().data_received(data)
            has_received.set()

        def _refuse(self, error: PenstockError) -> None:
            nonlocal refusal
            refusal = error
            super()._refuse(error)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            has_received.set()

    uvicorn_server = server.uvicorn

    def create_protocol() -> Any:
        return CountingProtocol(
            config=uvicorn_server.config,
            server_state=uvicorn_server.server_state,
            app_state=uvicorn_server.lifespan.state,
        )

    loop = asyncio.get_running_loop()
    client_socket, server_socket = socket.socketpair()
    transport, protocol = await loop.connect_accepted_socket(create_protocol, server_socket)
    reader, writer = await asyncio.open_connection(sock=client_socket)
    parser, sent, is_reset = _ResponseParser(), 0, False
    try:
        async with asyncio.timeout(deadline_s(20)):
            for chunk in chunks:
                writer.write(chunk)
                sent += len(chunk)
                while received < sent and not transport.is_closing() and not protocol.flow.read_paused:
                    has_received.clear()
                    await has_received.wait()
            is_closed = await _read_until_quiet(reader, parser, protocol, quiet_s)
    except ConnectionError:
        is_closed = is_reset = True
    finally:
        writer.close()
        transport.abort()
    return Exchange(parser.responses, is_closed, refusal, is_reset)


async def _read_until_quiet(
    reader: asyncio.StreamReader, parser: _ResponseParser, protocol: Any, quiet_s: float
) -> bool:
    """Read until the end of the connection (True), or until the server only waits for more (False)."""
    while True:
        cycle = protocol.cycle
        is_answered = cycle is not None and cycle.response_complete and not protocol.pipeline
        try:
            async with asyncio.timeout(quiet_s / 10 if is_answered and quiet_s == QUIET_S else quiet_s):
                data = await reader.read(1 << 16)
        except TimeoutError:
            return False
        if not data:
            return True
        parser.feed(data)


async def compare(server: RunningServer, request: bytes, splits: list[list[bytes]]) -> None:
    """Assert that all ways to send the request have the result that uvicorn's own protocol gives."""
    reference = await exchange(server, HttpToolsProtocol, [request])
    for chunks in splits:
        result = await exchange(server, FastHttpProtocol, chunks)
        if is_same(result, reference):
            continue
        reference = await exchange(server, HttpToolsProtocol, [request], PATIENT_S)
        result = await exchange(server, FastHttpProtocol, chunks, PATIENT_S)
        assert is_same(result, reference), f"{result}\n  instead of\n{reference}\n  for {chunks}"


def is_same(result: Exchange, reference: Exchange) -> bool:
    """Whether both mean the same to the client: equal responses and the same end of the connection.

    This server's protocol says why a request is malformed, and refuses ambiguous ones that uvicorn accepts.
    Then it ends the connection with the error, or with the response to the request before.
    """
    if any(status >= 500 for status, _ in result.responses):
        return False
    if result.is_reset:
        return reference.is_closed
    if result.refusal is None:
        return result == reference
    if not result.is_closed or not isinstance(result.refusal, MalformedRequest):
        return False
    if UVICORN_REFUSAL in reference.responses:  # it may overtake the response to the request before
        return reference.is_closed
    is_ambiguous = not result.refusal.detail.startswith(NOT_HTTP)
    before = [response for response in result.responses if b'"malformed_request"' not in response[1]]
    return is_ambiguous and before == reference.responses[: len(before)]
