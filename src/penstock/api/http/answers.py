"""Bodies of the cold routes: read within bounds, written with payloads as they were pushed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http import request_parsing
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import get_services
from penstock.broker.queues.message_actions import DecryptedPayload
from penstock.clock import iso

T = TypeVar("T")


async def body(request: Request, decoder: msgspec.json.Decoder[T], default: T | None = None) -> T:
    """The decoded body; `default`, if there is one, where the request has none."""
    raw = await request_parsing.body(request, get_services(request).settings.max_body_bytes)
    if default is not None and not raw.strip():
        return default
    return request_parsing.decode(decoder, raw)


def described(kind: type[msgspec.Struct], *, required: bool = True) -> dict[str, Any]:
    """What the API's own description tells of a body."""
    schema = msgspec.json.schema(kind, ref_template="{name}")
    content = {"application/json": {"schema": _whole(schema, schema["$defs"])}}
    return {"requestBody": {"required": required, "content": content}}


def _whole(shape: Any, known: dict[str, Any]) -> Any:
    """The shape with what it refers to in its place: the description of a body stands on its own."""
    if isinstance(shape, list):
        return [_whole(part, known) for part in shape]
    if not isinstance(shape, dict):
        return shape
    if "$ref" in shape:
        return _whole(known[shape["$ref"]], known)
    return {name: _whole(part, known) for name, part in shape.items() if name != "$defs"}


def answer(content: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(content), headers=headers, media_type="application/json")


def moment(value: datetime | None) -> str | None:
    return None if value is None else iso(value)


def data(opened: DecryptedPayload) -> dict[str, Any]:
    """A payload for an answer: as it was pushed, or why it cannot be told."""
    if opened.payload is None:
        return {"data": None, "dataProblem": opened.problem}
    return {"data": msgspec.Raw(opened.payload)}
