"""A receiver of webhooks that writes every delivery to the history, and sometimes fails or hangs up."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from contextlib import suppress

from standardwebhooks import Webhook, WebhookVerificationError

from chaos.history import HistoryWriter, Outcome

SIGNING_SECRET = f"whsec_{base64.b64encode(b'the secret of the chaos receiver').decode()}"
STALL_S = 30.0
"""Longer than an attempt of a sender may take."""
MAX_BODY_BYTES = 1_000_000
READ_TIMEOUT_S = 60.0

ANSWERS = ("ok", "error", "stall", "hang up")
WEIGHTS = (75, 15, 3, 7)


class WebhookReceiver:
    """An HTTP server. A delivery that it did not answer in full has an unknown outcome."""

    def __init__(self, history: HistoryWriter, source: random.Random) -> None:
        self._history, self._source = history, source
        self._server: asyncio.Server | None = None
        self.misbehaving = True
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(READ_TIMEOUT_S):
                headers, body = await read_request(reader)
            await self._answer(headers, body, writer)
        writer.close()

    async def _answer(self, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        number = self._history.invoke("receiver", "webhook", describe_delivery(headers, body))
        answer = self._source.choices(ANSWERS, WEIGHTS)[0] if self.misbehaving else "ok"
        outcome: Outcome = "unknown"
        try:
            if answer == "stall":
                await asyncio.sleep(STALL_S)
            elif answer in ("ok", "error"):
                status = "200 OK" if answer == "ok" else "500 Internal Server Error"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
                outcome = "ok" if answer == "ok" else "fail"
        finally:
            self._history.complete(number, outcome, {"answer": answer})


async def read_request(reader: asyncio.StreamReader) -> tuple[dict[str, str], bytes]:
    """Read a request with a length. Raises IncompleteReadError if the connection ends before."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.partition(":") for line in head.splitlines()[1:] if line]
    headers = {name.lower(): value.strip() for name, _, value in lines}
    return headers, await reader.readexactly(min(int(headers.get("content-length", 0)), MAX_BODY_BYTES))


def describe_delivery(headers: dict[str, str], body: bytes) -> dict[str, object]:
    """Return what the checker needs to know of a delivery."""
    try:
        Webhook(SIGNING_SECRET).verify(body.decode(), headers)
        is_signed = True
    except WebhookVerificationError:
        is_signed = False
    notice = json.loads(body)["data"]
    return {
        "id": headers.get("webhook-id", ""),
        "incident": notice["incidentId"],
        "transition": notice["transition"],
        "signed": is_signed,
    }
