"""An HTTP server that gives the answers it was told to: what a broker under load says, when asked to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: object = None
    retry_after: str | None = None

    @classmethod
    def problem(cls, status: int, code: str, retry_after: str | None = None) -> Reply:
        return cls(
            status, {"title": code, "status": status, "detail": f"told: {code}", "code": code}, retry_after
        )


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    body: Any
    at: float


class Scripted:
    """Each path has replies, given one after the other; the last one is given again and again."""

    def __init__(self, replies: Mapping[str, list[Reply]]) -> None:
        self._replies = {path: list(given) for path, given in replies.items()}
        self.asked: list[Asked] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def times(self, path: str) -> list[float]:
        return [asked.at for asked in self.asked if asked.path == path]

    async def __aenter__(self) -> Scripted:
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
                first, *lines = head.strip().split("\r\n")
                method, path, _ = first.split(" ")
                headers = dict(line.lower().split(": ", 1) for line in lines)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked.append(
                    Asked(method, path, msgspec.json.decode(body) if body else None, time.monotonic())
                )
                writer.write(self._answer(path))
                await writer.drain()

    def _answer(self, path: str) -> bytes:
        replies = self._replies.get(path) or [Reply.problem(404, "not_found")]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        body = b"" if reply.body is None else msgspec.json.encode(reply.body)
        head = f"HTTP/1.1 {reply.status} X\r\nContent-Length: {len(body)}\r\n"
        if reply.retry_after is not None:
            head += f"Retry-After: {reply.retry_after}\r\n"
        return f"{head}\r\n".encode() + body
