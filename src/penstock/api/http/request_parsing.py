"""Read requests: bodies of bounded size, checked parameters, errors that say what to send instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar
from uuid import uuid4

import msgspec
from starlette.requests import Request

from penstock.api.services import get_services
from penstock.body_error_text import describe_body_error
from penstock.errors import InvalidRequest, MalformedBody, PayloadTooLarge
from penstock.validation_text import shorten

T = TypeVar("T")
MAX_TEXT_LENGTH = 255
MAX_NAME_LENGTH = 255
MAX_BATCH_ITEMS = 10_000

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for a body that is invalid, not UTF-8, or nested too deeply."""
LONE_SURROGATE_ERROR = "It has a lone surrogate, such as \\ud800 without its second half. Send valid Unicode."
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape in JSON: a pair of surrogates, a lone one (the group), or any other."""


async def read_body(request: Request) -> bytes:
    """The whole body. Raises PayloadTooLarge as soon as it exceeds the setting `max_body_bytes`.

    Raises MalformedBody if less arrives than the request announces: a lost body is never an empty one.
    """
    max_bytes = get_services(request).settings.max_body_bytes
    declared_length = int(request.headers.get("content-length", "-1"))
    if declared_length > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise _incomplete(declared_length, size)
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body"):
            if declared_length not in (-1, size):
                raise _incomplete(declared_length, size)
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {max_bytes} bytes. Send fewer items per request.")


def _incomplete(declared_length: int, size: int) -> MalformedBody:
    announced = "" if declared_length < 0 else f" of {declared_length}"
    return MalformedBody(f"Only {size}{announced} bytes of the body arrived. Send the request again.")


async def read_json(request: Request, decoder: msgspec.json.Decoder[T], default: T | None = None) -> T:
    """The decoded body; `default`, if there is one, for an empty body."""
    raw = await read_body(request)
    if default is not None and not raw.strip():
        return default
    return decode(decoder, raw)


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """The decoded body; InvalidRequest (422) if a field is invalid, MalformedBody (400) if it is not JSON."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        sentence, field = describe_body_error(error)
        raise InvalidRequest(sentence, field=field) from None
    except DECODE_ERRORS as error:
        reason = LONE_SURROGATE_ERROR if mark_lone_surrogates(data)[1] else decode_error_text(error)
        raise MalformedBody(f"The body is not valid JSON: {reason}") from None


def decode_error_text(error: Exception) -> str:
    """Why a decoder refused a body or an item."""
    if isinstance(error, RecursionError):
        return "It is nested too deeply."
    return f"It is not UTF-8: {error}" if isinstance(error, UnicodeDecodeError) else str(error)


def mark_lone_surrogates(data: bytes) -> tuple[bytes, bytes]:
    """Replace the escapes of lone surrogates in JSON by a marker, which occurs nowhere else.

    The decoder refuses them wherever they are. Returns the JSON and the marker, which is empty if there are
    none.
    """
    marker = f"lone surrogate {uuid4().hex}".encode()
    marked = _ESCAPE.sub(lambda escape: marker if escape[1] else escape[0], data)
    return (marked, marker) if marker in marked else (data, b"")


def check_payload(payload: bytes) -> bytes:
    """Return the payload if it is valid UTF-8. Otherwise no consumer could decode a response that has it."""
    if not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"The payload is not valid UTF-8 at byte {error.start}. Encode binary data, for example as "
                "base64.",
                field="payload",
            ) from None
    return payload


def request_body_schema(body_type: type[msgspec.Struct], *, required: bool = True) -> dict[str, object]:
    """The OpenAPI `requestBody` of a route that decodes this type itself."""
    schema = msgspec.json.schema(body_type, ref_template="{name}")
    content = {"application/json": {"schema": _inline_references(schema, schema["$defs"])}}
    return {"requestBody": {"required": required, "content": content}}


def _inline_references(schema: object, definitions: dict[str, object]) -> object:
    """Replace every `$ref` by the schema it names, so that the description of a body is self-contained."""
    if isinstance(schema, list):
        return [_inline_references(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline_references(definitions[schema["$ref"]], definitions)
    return {key: _inline_references(value, definitions) for key, value in schema.items() if key != "$defs"}


PATH_SEGMENTS = ("queue", "consumerGroup")


def check_name(field: str, name: str) -> str:
    """Return the name if it is valid: 1 to 255 characters, none of them a control character.

    Names of queues and consumer groups are parts of URL paths, so they have no slash.
    """
    is_valid = 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
    if is_valid and ("/" not in name or field not in PATH_SEGMENTS):
        return name
    rule = f"Use 1 to {MAX_NAME_LENGTH} printable characters" + (
        " without a slash." if field in PATH_SEGMENTS else "."
    )
    raise InvalidRequest(f"{field} {shorten(name)!r} is not a valid name. {rule}", field=field)


def check_batch_size(field: str, count: int) -> None:
    """Raise InvalidRequest if a request has more items than one transaction should take."""
    if count > MAX_BATCH_ITEMS:
        raise InvalidRequest(
            f"{field} has {count} entries. Send at most {MAX_BATCH_ITEMS} in one request.", field=field
        )


def parse_integer(parameters: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not (is_decimal(text) and low <= int(text) <= high):
        raise InvalidRequest(
            f"{name} must be a whole number from {low} to {high}, not {shorten(text)!r}.", field=name
        )
    return int(text)


def is_decimal(text: str) -> bool:
    """Whether a text is a number of ASCII digits that fits into 64 bits. `int` refuses very long ones."""
    return text.isascii() and text.isdigit() and len(text) < 19


def as_utc(time: datetime) -> datetime:
    """The time in UTC. A time without a zone is taken as UTC. Raises ValueError past the calendar's ends."""
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        raise ValueError("The time is outside the years 1 to 9999 in UTC.") from None


def parse_time(field: str, text: object, forms: str = "a time in ISO 8601") -> datetime:
    """The ISO 8601 time in a field; InvalidRequest, which names the valid `forms`, if it is not one."""
    try:
        if isinstance(text, str):
            return as_utc(datetime.fromisoformat(text))
    except ValueError:
        pass  # reported below
    raise InvalidRequest(f"{field} must be {forms}, not {shorten(str(text))!r}.", field=field)


def parse_boolean(parameters: Mapping[str, str], name: str, default: bool = False) -> bool:
    text = parameters.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}.", field=name)
    return text == "true"


def parse_subscription(parameters: Mapping[str, str]) -> str:
    """Where a new group starts: `all`, `new`, or the time in `subscriptionFrom` in ISO 8601."""
    start_time = parameters.get("subscriptionFrom")
    if start_time == "now":
        return "new"
    if start_time:
        return parse_time("subscriptionFrom", start_time, "now or a time in ISO 8601").isoformat()
    mode = parameters.get("subscriptionMode") or "all"
    if mode not in ("all", "from_beginning", "new", "new-only"):
        raise InvalidRequest(f"subscriptionMode must be all or new, not {mode!r}.", field="subscriptionMode")
    return "new" if mode.startswith("new") else "all"


def check_optional_name(field: str, name: str | None) -> str | None:
    """Return the name of a queue, partition or group, or None. Raises InvalidRequest."""
    return None if name is None else check_name(field, name)


def check_text(field: str, text: str | None) -> str | None:
    """Return a text to search for, or None. Raises InvalidRequest."""
    if text is not None and (not 0 < len(text) <= MAX_TEXT_LENGTH or "\0" in text):
        raise InvalidRequest(
            f"{field} must have 1 to {MAX_TEXT_LENGTH} characters, none of them NUL.", field=field
        )
    return text


def parse_optional_time(field: str, text: str | None) -> datetime | None:
    """Return a time, or None. Raises InvalidRequest."""
    return None if text is None else parse_time(field, text)
