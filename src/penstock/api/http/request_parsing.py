"""Reading requests: bodies within bounds, parameters that fit, errors that say what to send instead."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from penstock.errors import InvalidRequest, MalformedBody, PayloadTooLarge

T = TypeVar("T")
NAME_LIMIT = 255


async def body(request: Request, limit: int) -> bytes:
    """The whole body; PayloadTooLarge as soon as it is clear that it is past the limit."""
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {limit} bytes; send fewer items per request")


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """The decoded body; 422 where a field does not fit, 400 where it is not JSON at all."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from None
    except msgspec.DecodeError as error:
        raise MalformedBody(f"the body is not valid JSON: {error}") from None


def check_name(what: str, name: str) -> str:
    """The name, if it can be one: 1 to 255 characters, none of them a control character.

    The names of queues and groups are parts of paths, so they have no slash.
    """
    in_paths = what in ("queue", "consumerGroup")
    if not name or len(name) > NAME_LIMIT or not name.isprintable() or (in_paths and "/" in name):
        shown = name if len(name) <= 40 else name[:40] + "…"
        rule = f"use 1 to {NAME_LIMIT} printable characters" + (" without a slash" if in_paths else "")
        raise InvalidRequest(f"{what} {shown!r} is not a name: {rule}", field=what)
    return name


def integer(parameters: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise InvalidRequest(f"{name} must be a whole number from {low} to {high}, not {text!r}", field=name)
    return int(text)


def flag(parameters: Mapping[str, str], name: str, default: bool = False) -> bool:
    text = parameters.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}", field=name)
    return text == "true"


def subscription(parameters: Mapping[str, str]) -> str:
    """Where a new group starts: `all`, `new`, or the moment of `subscriptionFrom` in ISO 8601."""
    moment = parameters.get("subscriptionFrom")
    if moment == "now":
        return "new"
    if moment:
        try:
            parsed = datetime.fromisoformat(moment)
            return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        except ValueError:
            raise InvalidRequest(
                f"subscriptionFrom must be now or an ISO 8601 time, not {moment!r}", field="subscriptionFrom"
            ) from None
    mode = parameters.get("subscriptionMode") or "all"
    if mode not in ("all", "from_beginning", "new", "new-only"):
        raise InvalidRequest(f"subscriptionMode must be all or new, not {mode!r}", field="subscriptionMode")
    return "new" if mode.startswith("new") else "all"
