"""Give each request an id, for its log lines and its response.

A client names its request with `X-Request-Id`, and its trace with `traceparent` (W3C Trace Context).
Requests of the application without an id get one. Hot requests do not: most of them log nothing, and an id
would cost each of them time and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.ids import new_id_text
from penstock.log_format import RequestIds, request_ids

REQUEST_ID = b"x-request-id"
TRACE_PARENT = b"traceparent"

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""What an id may consist of. Others are replaced: they would end up in logs and in a header."""
_TRACE_PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


def read_trace_id(fields: Mapping[bytes, bytes]) -> str | None:
    """Return the trace id of `traceparent`; None without a valid one."""
    value = fields.get(TRACE_PARENT)
    match = _TRACE_PARENT.fullmatch(value) if value is not None else None
    return match[1].decode() if match else None


def read_request_ids(fields: Mapping[bytes, bytes]) -> RequestIds | None:
    """Return the ids that a request brings; None if it brings none. A trace without an id gets one."""
    sent_id = fields.get(REQUEST_ID)
    trace_id = read_trace_id(fields)
    if sent_id is not None and _REQUEST_ID.fullmatch(sent_id):
        return RequestIds(sent_id.decode(), trace_id)
    return RequestIds(new_id_text(), trace_id) if sent_id is not None or trace_id is not None else None


class RequestIdMiddleware:
    """Sets the ids of requests of the application and adds `X-Request-Id` to their responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            ids = read_request_ids(dict(scope["headers"])) or RequestIds(new_id_text())
            # Not reset: the handler of unexpected errors runs outside of this middleware, in the same task.
            request_ids.set(ids)
            send = _send_with_id(send, ids.request_id)
        await self._app(scope, receive, send)


def _send_with_id(send: Send, request_id: str) -> Send:
    header = (REQUEST_ID, request_id.encode())

    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], header]
        await send(message)

    return send_with_id
