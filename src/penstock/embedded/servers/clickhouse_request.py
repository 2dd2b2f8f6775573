"""Parse a ClickHouse HTTP request into statement, insert data, settings and parameters.

This module knows the protocol only and never touches the engine.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP

TRANSPORT_PARAMETERS = frozenset(
    {
        *("query", "database", "default_format", "user", "password", "quota_key", "role", "query_id"),
        *("session_id", "session_timeout", "session_check", "buffer_size", "wait_end_of_query"),
        *("client_protocol_version", "compress", "decompress", "enable_http_compression"),
        *("send_progress_in_http_headers", "http_headers_progress_interval_ms"),
        *("cancel_http_readonly_queries_on_client_close", "http_zlib_compression_level"),
    }
)
"""URL parameters for the transport or the connection; every other parameter is a setting of the query."""

NOT_IMPLEMENTED = 48
UNKNOWN_SETTING = 115
CANNOT_DECOMPRESS = 271

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    rb"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|--[^\n]*|/\*.*?\*/|\w+|[^\w\s]""", re.DOTALL
)
_TRAILING_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_PRODUCES_ROWS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(SELECT|WITH|SHOW|DESCRIBE|DESC|EXISTS|EXPLAIN|CHECK|VALUES|FROM)\b",
    re.IGNORECASE | re.DOTALL,
)


class ProtocolError(Exception):
    """A request that this server cannot serve, with the matching ClickHouse error code."""

    def __init__(self, code: int, message: str, name: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {message} ({name})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement. `data` holds the rows of an insert in `input_format`; otherwise it is None."""

    sql: str
    output_format: str = "TabSeparated"
    data: bytes | None = None
    input_format: str = ""
    database: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def result_format(self) -> str | None:
        """The format of the result, or None for a statement without a result."""
        if self.data is not None:
            return None
        explicit = _TRAILING_FORMAT.search(self.sql)
        if explicit:
            return explicit.group(1)
        return self.output_format if _PRODUCES_ROWS.match(self.sql) else None


def read_statement(query: Mapping[str, str], headers: Message, body: bytes) -> Statement:
    """Build a statement from URL parameters, headers and a complete body."""
    body = decode(body, headers.get("Content-Encoding", ""))
    content_type = headers.get("Content-Type", "")
    if content_type.startswith("multipart/form-data"):
        query = {**query, **_form_fields(content_type, body)}
        body = b""
    if query.get("compress") == "1" or query.get("decompress") == "1":
        raise ProtocolError(
            NOT_IMPLEMENTED, "The parameters compress and decompress are not supported", "NOT_IMPLEMENTED"
        )
    text = query.get("query", "").encode()
    sql, data, input_format = split_insert(text + b"\n" + body if text else body)
    return Statement(
        sql=sql,
        output_format=query.get("default_format") or headers.get("X-ClickHouse-Format", "") or "TabSeparated",
        data=data,
        input_format=input_format,
        database=query.get("database") or headers.get("X-ClickHouse-Database") or "",
        settings={
            k: v for k, v in query.items() if k not in TRANSPORT_PARAMETERS and not k.startswith("param_")
        },
        parameters={k.removeprefix("param_"): v for k, v in query.items() if k.startswith("param_")},
    )


def split_insert(content: bytes) -> tuple[str, bytes | None, str]:
    """Split `INSERT … FORMAT x` from the rows that follow it in the same body.

    Returns the statement, its rows (None when the content is only a statement) and their format.
    `INSERT … VALUES` and `INSERT … SELECT` count as statements, because the engine parses them itself.
    """
    depth = 0
    token_count = 0
    tokens = _TOKEN.finditer(content)
    for token in tokens:
        text = token.group()
        if text[:2] in (b"--", b"/*"):
            continue
        token_count += 1
        if token_count == 1 and text.upper() != b"INSERT":
            break
        if text == b"(":
            depth += 1
        elif text == b")":
            depth -= 1
        elif depth == 0 and text.upper() in (b"SELECT", b"WITH", b"VALUES"):
            break
        elif depth == 0 and text.upper() == b"FORMAT":
            name = next(tokens, None)
            if name is None or name.group().upper() == b"VALUES":
                break
            separator = re.compile(rb"[ \t\r]*;?[ \t\r]*\n?").match(content, name.end())
            start = separator.end() if separator else name.end()
            return content[: token.start()].decode(), content[start:], name.group().decode()
    return content.decode(errors="surrogateescape"), None, ""


def decode(body: bytes, encoding: str) -> bytes:
    """Decompress a body according to its Content-Encoding."""
    try:
        match encoding.strip().lower():
            case "" | "identity":
                return body
            case "lz4":
                import lz4.frame  # type: ignore[import-untyped]

                return bytes(lz4.frame.decompress(body))
            case "zstd":
                from backports import zstd

                try:
                    return bytes(zstd.decompress(body))
                except zstd.ZstdError as error:
                    raise ValueError(str(error)) from error
            case "gzip":
                return gzip.decompress(body)
            case "deflate":
                return zlib.decompress(body)
            case _:
                raise ProtocolError(
                    NOT_IMPLEMENTED, f"Content-Encoding {encoding!r} is not supported", "NOT_IMPLEMENTED"
                )
    except (OSError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise ProtocolError(
            CANNOT_DECOMPRESS, f"The body is not valid {encoding}: {error}", "CANNOT_DECOMPRESS"
        ) from error


def settings_statement(settings: Mapping[str, str]) -> str:
    """Build one SET for all settings. It quotes every value; the engine converts text to the type."""
    for name in settings:
        if not _NAME.fullmatch(name):
            raise ProtocolError(UNKNOWN_SETTING, f"Unknown setting {name!r}", "UNKNOWN_SETTING")
    return "SET " + ", ".join(f"{name} = {quote(value)}" for name, value in settings.items())


def quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    message = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
    )
    fields = {}
    for form_part in message.iter_parts():
        name = form_part.get_param("name", header="content-disposition")
        if form_part.get_filename():
            raise ProtocolError(NOT_IMPLEMENTED, "External data is not supported", "NOT_IMPLEMENTED")
        payload = form_part.get_payload(decode=True)
        fields[str(name)] = payload.decode() if isinstance(payload, bytes) else ""
    return fields
