"""Compress JSON responses for the console: long lists and series shrink to a tenth.

Only responses to GET are compressed, and only those without secrets: the length of a compressed response that
holds a secret beside a text of the caller's choice reveals the secret bit by bit (BREACH). Hot responses,
event streams and other responses in several pieces pass unchanged.
"""

from __future__ import annotations

import asyncio
import gzip

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COMPRESSED_PATHS = "/api/v1/"
EXCLUDED_PATHS = ("/api/v1/session", "/api/v1/login", "/api/v1/pop")
"""The session has the CSRF token, and pops are hot."""
MIN_BYTES = 2_048
"""Smaller responses fit into a packet or two, compressed or not."""
MAX_INLINE_BYTES = 32_768
"""Larger responses are compressed in a thread, so that the event loop goes on."""
LEVEL = 1
"""JSON compresses well at the fastest level."""


def accepts_gzip(headers: Headers) -> bool:
    """Return whether the client accepts gzip, according to `Accept-Encoding`."""
    for coding in headers.get("accept-encoding", "").split(","):
        name, _, parameters = coding.partition(";")
        if name.strip().lower() == "gzip":
            _, _, quality = parameters.partition("=")
            return quality.strip() not in ("0", "0.0", "0.00", "0.000")
    return False


class CompressionMiddleware:
    """Compresses with gzip if the client accepts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and scope["path"].startswith(COMPRESSED_PATHS)
            and not scope["path"].startswith(EXCLUDED_PATHS)
        ):
            response = _CompressedResponse(send, is_accepted=accepts_gzip(Headers(scope=scope)))
            await self._app(scope, receive, response.send)
        else:
            await self._app(scope, receive, send)


class _CompressedResponse:
    """Holds the head of a response back until its body is known."""

    def __init__(self, send: Send, *, is_accepted: bool) -> None:
        self._send = send
        self._is_accepted = is_accepted
        self._head: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not _is_compressible(message):
                await self._send(message)
                return
            MutableHeaders(raw=message["headers"]).add_vary_header("Accept-Encoding")
            self._head = message
            return
        head, self._head = self._head, None
        if head is not None:
            body = message.get("body", b"")
            if self._is_accepted and not message.get("more_body") and len(body) >= MIN_BYTES:
                message = {**message, "body": await _compress(body)}
                headers = MutableHeaders(raw=head["headers"])
                headers["Content-Encoding"] = "gzip"
                headers["Content-Length"] = str(len(message["body"]))
            await self._send(head)
        await self._send(message)


def _is_compressible(head: Message) -> bool:
    headers = Headers(raw=head["headers"])
    return (
        headers.get("content-type", "").startswith("application/json") and "content-encoding" not in headers
    )


async def _compress(body: bytes) -> bytes:
    if len(body) <= MAX_INLINE_BYTES:
        return gzip.compress(body, LEVEL)
    return await asyncio.to_thread(gzip.compress, body, LEVEL)
