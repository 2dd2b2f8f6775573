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
from penstock.trace_context import TraceContext

REQUEST_ID = b"x-request-id"
TRACE_PARENT = b"traceparent"

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""What an id may consist of. Others are replaced: they would end up in logs and in a header."""


def read_trace_context(fields: Mapping[bytes, bytes]) -> TraceContext | None:
    """Return the trace context of `traceparent`; None without a valid one."""
    value = fields.get(TRACE_PARENT)
    return TraceContext.parse(value.decode("latin-1")) if value is not None else None


def read_request_ids(fields: Mapping[bytes, bytes]) -> RequestIds | None:
    """Return the ids that a request brings; None if it brings none. A trace without an id gets one."""
    sent_id = fields.get(REQUEST_ID)
    context = read_trace_context(fields)
    if sent_id is None and context is None:
        return None
    is_valid = sent_id is not None and _REQUEST_ID.fullmatch(sent_id)
    request_id = sent_id.decode() if sent_id is not None and is_valid else new_id_text()
    return RequestIds(request_id, context.trace_id if context else None, context)


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
