"""An HTTP server with scripted responses, such as those of an overloaded broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class ScriptedResponse:
    status: int
    body: object = None
    retry_after: str | None = None

    @classmethod
    def problem(cls, status: int, code: str, retry_after: str | None = None) -> ScriptedResponse:
        """Return a response with problem details."""
        body = {"title": code, "status": status, "detail": f"scripted: {code}", "code": code}
        return cls(status, body, retry_after)


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    method: str
    path: str
    body: Any
    received_s: float
    """On the monotonic clock."""


class ScriptedBroker:
    """Send the responses of each path one after the other, and repeat the last one."""

    def __init__(self, responses: Mapping[str, list[ScriptedResponse]]) -> None:
        self._responses = {path: list(responses_of_path) for path, responses_of_path in responses.items()}
        self.requests: list[ReceivedRequest] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def times_s(self, path: str) -> list[float]:
        """Return when the requests with this path arrived."""
        return [request.received_s for request in self.requests if request.path == path]

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                request_line, *header_lines = head.strip().split("\r\n")
                method, path, _ = request_line.split(" ")
                headers = dict(line.lower().split(": ", 1) for line in header_lines)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                decoded_body = msgspec.json.decode(body) if body else None
                self.requests.append(ReceivedRequest(method, path, decoded_body, time.monotonic()))
                writer.write(self._next_response(path))
                await writer.drain()

    def _next_response(self, path: str) -> bytes:
        responses = self._responses.get(path) or [ScriptedResponse.problem(404, "not_found")]
        response = responses.pop(0) if len(responses) > 1 else responses[0]
        body = b"" if response.body is None else msgspec.json.encode(response.body)
        head = f"HTTP/1.1 {response.status} X\r\nContent-Length: {len(body)}\r\n"
        if response.retry_after is not None:
            head += f"Retry-After: {response.retry_after}\r\n"
        return f"{head}\r\n".encode() + body
