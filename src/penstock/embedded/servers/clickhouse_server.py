"""ClickHouse's HTTP interface in front of the embedded engine (chdb).

The engine is a library that one process may own, so this process owns the data directory and everybody else
talks to it with an ordinary ClickHouse client. Every request runs on an engine connection of its own (opening
one takes a fraction of a millisecond), so settings, `USE` and parameters of one request never reach another;
at most `WORKERS` requests run at once, the others wait their turn. An insert begins only when its body has
arrived whole.

Not offered: sessions and temporary tables across requests, external data, compressed answers, native TCP.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import chdb
from chdb import ChdbError

from penstock.embedded.servers.clickhouse_request import (
    ProtocolError,
    Statement,
    quote,
    read_statement,
    settings_statement,
)

WORKERS = 8
MAX_BODY_BYTES = 1 << 30
IDLE_S = 300
STOP_S = 5.0
AUTHENTICATION_FAILED = 516
_HTTP_STATUS = {60: 404, 81: 404, 46: 404, 47: 404, 62: 400, 27: 400, 115: 404, 48: 501, 516: 403, 271: 400}
_CODE = re.compile(r"Code: (\d+)\.")


class QueryFailed(Exception):
    """The engine refused a statement; carries ClickHouse's code and words."""

    def __init__(self, words: str) -> None:
        start = words.find("Code: ")
        super().__init__(
            words[start:] if start >= 0 else f"Code: 1001. DB::Exception: {words} (STD_EXCEPTION)"
        )
        found = _CODE.match(str(self))
        self.code = int(found.group(1)) if found else 1001


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    summary: Mapping[str, str]


class Engine:
    """The embedded engine on one data directory. Raises RuntimeError when another process owns it."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        # The engine lives as long as one connection is open: this one also answers pings, so that a ping
        # never waits behind queries.
        self._keeper = _connect(self._path)
        self._keeper_lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(WORKERS)
        self.timezone = self._keeper.query("SELECT timezone()", "TabSeparated").bytes().decode().strip()

    def ping(self) -> None:
        with self._keeper_lock:
            self._keeper.query("SELECT 1", "TabSeparated")

    def run(self, statement: Statement) -> Answer:
        with self._turns, self._connection() as connection:
            try:
                self._dress(connection, statement)
                if statement.data is not None:
                    return self._insert(connection, statement.sql, statement.input_format, statement.data)
                result = connection.query(
                    statement.sql, statement.output_format, params=dict(statement.parameters)
                )
                return Answer(
                    result.bytes() or b"",
                    _summary(result.elapsed(), read=(result.rows_read(), result.bytes_read())),
                )
            except (ChdbError, RuntimeError) as error:
                raise QueryFailed(str(error)) from error

    def _dress(self, connection: Any, statement: Statement) -> None:
        """Give a fresh connection the database, settings and, for an insert, parameters of its request."""
        if statement.database and statement.database != "default":
            connection.query("USE `{}`".format(statement.database.replace("`", "\\`")))
        if statement.settings:
            connection.query(settings_statement(statement.settings))
        if statement.data is not None:
            for name, value in statement.parameters.items():
                connection.query(f"SET param_{name} = {quote(value)}")

    def _insert(self, connection: Any, sql: str, input_format: str, data: bytes) -> Answer:
        with connection.send_insert(sql, input_format) as inserter:
            if data:
                inserter.append(data)
            result = inserter.finish()
        return Answer(b"", _summary(result.elapsed, written=(result.rows_written, result.bytes_written)))

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        connection = _connect(self._path)
        try:
            yield connection
        finally:
            connection.close()

    def close(self, deadline_s: float) -> None:
        """Wait for running statements as long as the deadline allows, then close the engine."""
        for _ in range(WORKERS):
            if not self._turns.acquire(timeout=deadline_s / WORKERS):
                return
        self._keeper.close()


def _connect(path: str) -> Any:
    return chdb.connect(path)


def _summary(
    elapsed_s: float, read: tuple[int, int] = (0, 0), written: tuple[int, int] = (0, 0)
) -> dict[str, str]:
    return {
        "read_rows": str(read[0]),
        "read_bytes": str(read[1]),
        "written_rows": str(written[0]),
        "written_bytes": str(written[1]),
        "elapsed_ns": str(int(elapsed_s * 1e9)),
    }


class Handler(BaseHTTPRequestHandler):
    """One client connection, kept open between requests."""

    engine: ClassVar[Engine]
    password: ClassVar[str] = ""
    protocol_version = "HTTP/1.1"
    server_version = "Penstock-ClickHouse"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = IDLE_S

    def do_GET(self) -> None:
        self._serve(b"")

    def do_HEAD(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        try:
            body = self._read_body()
        except ValueError as error:
            self.close_connection = True
            self._answer(400, f"{error}\n".encode(), {})
            return
        self._serve(body)

    def _serve(self, body: bytes) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        identity = {"X-ClickHouse-Query-Id": query.get("query_id", "")} if query.get("query_id") else {}
        try:
            if url.path in ("/ping", "/replicas_status") or (url.path == "/" and not query and not body):
                self.engine.ping()
                self._answer(200, b"Ok.\n", {})
                return
            self._authenticate(query)
            statement = read_statement(query, self.headers, body)
            answer = self.engine.run(statement)
        except (ProtocolError, QueryFailed) as error:
            code = {"X-ClickHouse-Exception-Code": str(error.code)}
            self._answer(_HTTP_STATUS.get(error.code, 500), f"{error}\n".encode(), {**identity, **code})
            return
        headers = {
            "X-ClickHouse-Summary": json.dumps(answer.summary),
            "X-ClickHouse-Timezone": self.engine.timezone,
            **identity,
        }
        if statement.result_format:
            headers["X-ClickHouse-Format"] = statement.result_format
        self._answer(200, answer.body, headers)

    def _authenticate(self, query: Mapping[str, str]) -> None:
        given = query.get("password") or (self.headers.get("X-ClickHouse-Key") or "")
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic":
            given = base64.b64decode(encoded).decode(errors="replace").partition(":")[2]
        if self.password and not hmac.compare_digest(given.encode(), self.password.encode()):
            raise ProtocolError(
                AUTHENTICATION_FAILED,
                "Authentication failed: the password is in the file `password` of PENSTOCK_HOME",
                "AUTHENTICATION_FAILED",
            )

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(self._chunks())
        length = int(self.headers.get("Content-Length", 0))
        _check_size(length)
        body = self.rfile.read(length)
        if len(body) != length:
            raise ValueError("the body ended early")
        return body

    def _chunks(self) -> Iterator[bytes]:
        total = 0
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            total += size
            _check_size(total)
            chunk = self.rfile.read(size)
            if len(chunk) != size:
                raise ValueError("the body ended early")
            self.rfile.readline()
            if size == 0:
                return
            yield chunk

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Keep-Alive", f"timeout={IDLE_S}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Requests are not logged; the engine's errors are part of the answer."""


def _check_size(length: int) -> None:
    if length > MAX_BODY_BYTES:
        raise ValueError(f"the body is larger than {MAX_BODY_BYTES} bytes: send it in several inserts")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is not worth a traceback."""
        if not isinstance(sys.exception(), (ConnectionError, socket.timeout)):
            super().handle_error(request, client_address)


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="ClickHouse's HTTP interface over the embedded engine")
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--password-file", type=Path)
    options = parser.parse_args()
    try:
        Handler.engine = Engine(options.path)
        server = Server(("127.0.0.1", options.port), Handler)
    except (RuntimeError, ChdbError, OSError) as error:
        sys.exit(f"cannot start: {error}")
    if options.password_file:
        Handler.password = options.password_file.read_text().strip()

    def leave(signum: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    print(f"ready on 127.0.0.1:{options.port}, data in {options.path}", flush=True)
    server.serve_forever(poll_interval=0.1)
    server.socket.close()
    Handler.engine.close(STOP_S)


if __name__ == "__main__":
    main()
