"""Reading a ClickHouse HTTP request: statement, insert data, settings, parameters.

Knows the protocol only; nothing here touches the engine.
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

TRANSPORT = frozenset(
    {
        *("query", "database", "default_format", "user", "password", "quota_key", "role", "query_id"),
        *("session_id", "session_timeout", "session_check", "buffer_size", "wait_end_of_query"),
        *("client_protocol_version", "compress", "decompress", "enable_http_compression"),
        *("send_progress_in_http_headers", "http_headers_progress_interval_ms"),
        *("cancel_http_readonly_queries_on_client_close", "http_zlib_compression_level"),
    }
)
"""URL parameters that steer the transport or the connection; every other one is a setting of the query."""

NOT_IMPLEMENTED = 48
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
    """A request this front cannot serve, with ClickHouse's error code for it."""

    def __init__(self, code: int, words: str, name: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {words} ({name})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Statement:
    """What to run. `data` is set for an insert whose rows follow in `input_format`, else None."""

    sql: str
    output_format: str = "TabSeparated"
    data: bytes | None = None
    input_format: str = ""
    database: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def result_format(self) -> str | None:
        """The format of the answer, or None for a statement that answers with nothing."""
        if self.data is not None:
            return None
        explicit = _TRAILING_FORMAT.search(self.sql)
        if explicit:
            return explicit.group(1)
        return self.output_format if _PRODUCES_ROWS.match(self.sql) else None


def read_statement(query: Mapping[str, str], headers: Message, body: bytes) -> Statement:
    """Make a statement of URL parameters, headers and a complete body."""
    body = decode(body, headers.get("Content-Encoding", ""))
    content_type = headers.get("Content-Type", "")
    if content_type.startswith("multipart/form-data"):
        query = {**query, **_form_fields(content_type, body)}
        body = b""
    if query.get("compress") == "1" or query.get("decompress") == "1":
        raise ProtocolError(NOT_IMPLEMENTED, "compress/decompress are not supported here", "NOT_IMPLEMENTED")
    text = query.get("query", "").encode()
    sql, data, input_format = split_insert(text + b"\n" + body if text else body)
    return Statement(
        sql=sql,
        output_format=query.get("default_format") or headers.get("X-ClickHouse-Format", "") or "TabSeparated",
        data=data,
        input_format=input_format,
        database=query.get("database") or headers.get("X-ClickHouse-Database") or "",
        settings={k: v for k, v in query.items() if k not in TRANSPORT and not k.startswith("param_")},
        parameters={k.removeprefix("param_"): v for k, v in query.items() if k.startswith("param_")},
    )


def split_insert(content: bytes) -> tuple[str, bytes | None, str]:
    """Split `INSERT … FORMAT x` from the rows that follow it in the same body.

    Returns the statement, its rows (None when the content is a statement and nothing else) and their format.
    `INSERT … VALUES` and `INSERT … SELECT` are statements: the engine reads them whole.
    """
    depth = 0
    words = 0
    tokens = _TOKEN.finditer(content)
    for token in tokens:
        text = token.group()
        if text[:2] in (b"--", b"/*"):
            continue
        words += 1
        if words == 1 and text.upper() != b"INSERT":
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
            rest = re.compile(rb"[ \t\r]*;?[ \t\r]*\n?").match(content, name.end())
            start = rest.end() if rest else name.end()
            return content[: token.start()].decode(), content[start:], name.group().decode()
    return content.decode(errors="surrogateescape"), None, ""


def decode(body: bytes, encoding: str) -> bytes:
    """The body without its Content-Encoding."""
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
                    NOT_IMPLEMENTED, f"Content-Encoding {encoding!r} is not supported here", "NOT_IMPLEMENTED"
                )
    except (OSError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise ProtocolError(
            CANNOT_DECOMPRESS, f"the body is not valid {encoding}: {error}", "CANNOT_DECOMPRESS"
        ) from error


def settings_statement(settings: Mapping[str, str]) -> str:
    """One SET for all settings. Every value is quoted: the engine converts text to the setting's type."""
    for name in settings:
        if not _NAME.fullmatch(name):
            raise ProtocolError(115, f"Unknown setting {name!r}", "UNKNOWN_SETTING")
    return "SET " + ", ".join(f"{name} = {quote(value)}" for name, value in settings.items())


def quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    message = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
    )
    fields = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if part.get_filename():
            raise ProtocolError(NOT_IMPLEMENTED, "external data is not supported here", "NOT_IMPLEMENTED")
        payload = part.get_payload(decode=True)
        fields[str(name)] = payload.decode() if isinstance(payload, bytes) else ""
    return fields
