"""Serve ClickHouse's HTTP interface on top of the embedded engine (chdb).

The engine is a library, and only one process may open a data directory. This process owns the directory, and
all others use an ordinary ClickHouse client. Every request runs on its own engine connection (opening one
takes a fraction of a millisecond), so settings, `USE` and parameters of one request never reach another. At
most `MAX_CONCURRENT_QUERIES` requests run at once; the others wait. An insert starts when its whole body has
arrived.

Not supported: sessions and temporary tables across requests, external data, compressed responses, native TCP.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import ClassVar, Protocol
from urllib.parse import parse_qsl, urlsplit

if __name__ == "__main__":
    # The engine converts results with PyArrow if that is installed. This server never asks for it, and the
    # import takes longer than that of the engine, and 30 MB.
    sys.modules["pyarrow"] = None  # type: ignore[assignment]

import chdb
from chdb import ChdbError

from penstock import program_pages
from penstock.embedded.servers.clickhouse_request import (
    ProtocolError,
    Statement,
    quote,
    read_statement,
    settings_statement,
)
from penstock.log_format import configure_logging

logger = logging.getLogger("penstock.clickhouse")

MAX_CONCURRENT_QUERIES = 8
MAX_BODY_BYTES = 1 << 30
KEEP_ALIVE_TIMEOUT_S = 300
STOP_TIMEOUT_S = 5.0
ABORTED = 236
AUTHENTICATION_FAILED = 516
STD_EXCEPTION = 1001
COUNT_FAILED_INSERTS = "SELECT sum(value) FROM system.events WHERE event = 'FailedInsertQuery'"
LAST_ERROR = "SELECT code, name, last_error_message FROM system.errors ORDER BY last_error_time DESC LIMIT 1"
FAILED_MEANWHILE = "This insert, or one that ran at the same time, could not be stored. Repeat it."
_HTTP_STATUS = {60: 404, 81: 404, 46: 404, 47: 404, 62: 400, 27: 400, 115: 404, 48: 501, 516: 403, 271: 400}
_ERROR_CODE = re.compile(r"Code: (\d+)\.")


class QueryFailed(Exception):
    """The engine rejected a statement; carries ClickHouse's error code and message."""

    def __init__(self, message: str) -> None:
        start = message.find("Code: ")
        super().__init__(
            message[start:]
            if start >= 0
            else f"Code: {STD_EXCEPTION}. DB::Exception: {message} (STD_EXCEPTION)"
        )
        match = _ERROR_CODE.match(str(self))
        self.code = int(match.group(1)) if match else STD_EXCEPTION


class ChdbResult(Protocol):
    """The methods of chdb's query result that this module uses; chdb has no type hints."""

    def bytes(self) -> bytes | None: ...
    def elapsed(self) -> float: ...
    def rows_read(self) -> int: ...
    def bytes_read(self) -> int: ...


class ChdbInsertResult(Protocol):
    elapsed: float
    rows_written: int
    bytes_written: int


class ChdbInserter(Protocol):
    def append(self, data: bytes) -> object: ...
    def finish(self) -> ChdbInsertResult: ...


class ChdbConnection(Protocol):
    def query(self, sql: str, format: str = ..., params: dict[str, str] | None = ...) -> ChdbResult: ...
    def send_insert(self, sql: str, format: str) -> AbstractContextManager[ChdbInserter]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class QueryResult:
    body: bytes
    summary: Mapping[str, str]


class RunningInsert:
    """Whether another insert runs, or ran, at the same time."""

    overlaps = False


class InsertOverlap:
    """Knows which inserts run at the same time."""

    def __init__(self) -> None:
        self._running: set[RunningInsert] = set()
        self._lock = threading.Lock()

    @contextmanager
    def enter(self) -> Iterator[RunningInsert]:
        insert = RunningInsert()
        with self._lock:
            self._running.add(insert)
            if len(self._running) > 1:
                for running in self._running:
                    running.overlaps = True
        try:
            yield insert
        finally:
            with self._lock:
                self._running.remove(insert)


class ChdbEngine:
    """The embedded engine on one data directory. Raises RuntimeError when another process has opened it."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        # The engine lives as long as one connection is open. This connection keeps it alive and answers
        # pings, so a ping never waits for queries.
        self._ping_connection = _connect(self._path)
        self._ping_lock = threading.Lock()
        self._query_slots = threading.BoundedSemaphore(MAX_CONCURRENT_QUERIES)
        self._inserts = InsertOverlap()
        timezone = self._ping_connection.query("SELECT timezone()", "TabSeparated").bytes() or b""
        self.timezone = timezone.decode().strip()

    def ping(self) -> None:
        with self._ping_lock:
            self._ping_connection.query("SELECT 1", "TabSeparated")

    def run(self, statement: Statement) -> QueryResult:
        with self._query_slots, self._connection() as connection:
            try:
                self._apply_request_settings(connection, statement)
                if statement.data is not None:
                    return self._insert(connection, statement.sql, statement.input_format, statement.data)
                result = connection.query(
                    statement.sql, statement.output_format, params=dict(statement.parameters)
                )
                return QueryResult(
                    result.bytes() or b"",
                    _build_summary(result.elapsed(), read=(result.rows_read(), result.bytes_read())),
                )
            except (ChdbError, RuntimeError) as error:
                raise QueryFailed(str(error)) from error

    def _apply_request_settings(self, connection: ChdbConnection, statement: Statement) -> None:
        """Set database, settings and, for an insert, parameters of the request on a new connection."""
        if statement.database and statement.database != "default":
            connection.query("USE `{}`".format(statement.database.replace("`", "\\`")))
        if statement.settings:
            connection.query(settings_statement(statement.settings))
        if statement.data is not None:
            for name, value in statement.parameters.items():
                connection.query(f"SET param_{name} = {quote(value)}")

    def _insert(self, connection: ChdbConnection, sql: str, input_format: str, data: bytes) -> QueryResult:
        """Insert, and raise QueryFailed unless the rows are stored.

        chdb raises only if it cannot read the data. If it cannot write them, because the disk is full for
        example, it returns a result as if it had, and the engine counts a failed insert. It does not say
        which one, so all inserts that ran meanwhile are reported as aborted: repeated with its token, an
        insert that was stored counts once.
        """
        with self._inserts.enter() as insert:
            failed_before = _count_failed_inserts(connection)
            with connection.send_insert(sql, input_format) as inserter:
                if data:
                    inserter.append(data)
                result = inserter.finish()
            has_failed = _count_failed_inserts(connection) > failed_before
        if has_failed and insert.overlaps:
            raise QueryFailed(f"Code: {ABORTED}. DB::Exception: {FAILED_MEANWHILE} (ABORTED)")
        if has_failed:
            code, name, message = _query_row(connection, LAST_ERROR)
            raise QueryFailed(f"Code: {code}. DB::Exception: {message} ({name})")
        return QueryResult(
            b"", _build_summary(result.elapsed, written=(result.rows_written, result.bytes_written))
        )

    @contextmanager
    def _connection(self) -> Iterator[ChdbConnection]:
        connection = _connect(self._path)
        try:
            yield connection
        finally:
            connection.close()

    def close(self) -> None:
        """Close the engine. No statement may run any more: the engine would crash the process."""
        self._ping_connection.close()


def _connect(path: str) -> ChdbConnection:
    connect: Callable[[str], ChdbConnection] = chdb.connect  # chdb has no types
    return connect(path)


def _count_failed_inserts(connection: ChdbConnection) -> int:
    (count,) = _query_row(connection, COUNT_FAILED_INSERTS)
    return int(count)


def _query_row(connection: ChdbConnection, sql: str) -> list[str]:
    """Return the values of a result of one row."""
    row: list[str] = json.loads(connection.query(sql, "JSONCompactStringsEachRow").bytes() or b"[]")
    return row


def _build_summary(
    elapsed_s: float, read: tuple[int, int] = (0, 0), written: tuple[int, int] = (0, 0)
) -> dict[str, str]:
    return {
        "read_rows": str(read[0]),
        "read_bytes": str(read[1]),
        "written_rows": str(written[0]),
        "written_bytes": str(written[1]),
        "elapsed_ns": str(int(elapsed_s * 1e9)),
    }


class RequestGate:
    """Counts the requests that run, so that a stop can wait for their responses."""

    def __init__(self) -> None:
        self._running = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Count a request until the end of the block. Raises ProtocolError when the server stops."""
        with self._changed:
            if self._is_closed:
                raise ProtocolError(ABORTED, "The server is stopping. Retry when it runs again.", "ABORTED")
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for the running ones. Returns whether all of them have ended."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: self._running == 0, timeout_s)


class ClickHouseRequestHandler(BaseHTTPRequestHandler):
    """One client connection, kept open between requests."""

    engine: ClassVar[ChdbEngine]
    gate: ClassVar[RequestGate] = RequestGate()
    password: ClassVar[str] = ""
    protocol_version = "HTTP/1.1"
    server_version = "Penstock-ClickHouse"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = KEEP_ALIVE_TIMEOUT_S

    def do_GET(self) -> None:
        self._serve(b"")

    def do_HEAD(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        try:
            body = self._read_body()
        except ValueError as error:
            self.close_connection = True
            self._respond(400, f"{error}\n".encode(), {})
            return
        self._serve(body)

    def _serve(self, body: bytes) -> None:
        try:
            with self.gate.enter():
                self._execute(body)
        except ProtocolError as error:
            self.close_connection = True
            self._respond(503, f"{error}\n".encode(), {"X-ClickHouse-Exception-Code": str(error.code)})

    def _execute(self, body: bytes) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        query_id_header = (
            {"X-ClickHouse-Query-Id": query.get("query_id", "")} if query.get("query_id") else {}
        )
        try:
            if url.path in ("/ping", "/replicas_status") or (url.path == "/" and not query and not body):
                self.engine.ping()
                self._respond(200, b"Ok.\n", {})
                return
            self._authenticate(query)
            statement = read_statement(query, self.headers, body)
            result = self.engine.run(statement)
        except (ProtocolError, QueryFailed) as error:
            code_header = {"X-ClickHouse-Exception-Code": str(error.code)}
            self._respond(
                _HTTP_STATUS.get(error.code, 500), f"{error}\n".encode(), {**query_id_header, **code_header}
            )
            return
        headers = {
            "X-ClickHouse-Summary": json.dumps(result.summary),
            "X-ClickHouse-Timezone": self.engine.timezone,
            **query_id_header,
        }
        if statement.result_format:
            headers["X-ClickHouse-Format"] = statement.result_format
        self._respond(200, result.body, headers)

    def _authenticate(self, query: Mapping[str, str]) -> None:
        password = query.get("password") or (self.headers.get("X-ClickHouse-Key") or "")
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic":
            password = base64.b64decode(encoded).decode(errors="replace").partition(":")[2]
        if self.password and not hmac.compare_digest(password.encode(), self.password.encode()):
            raise ProtocolError(
                AUTHENTICATION_FAILED,
                "Authentication failed. The password is in the file `password` in PENSTOCK_HOME.",
                "AUTHENTICATION_FAILED",
            )

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(self._read_chunks())
        length = int(self.headers.get("Content-Length", 0))
        _check_size(length)
        body = self.rfile.read(length)
        if len(body) != length:
            raise ValueError("The body is shorter than its declared length.")
        return body

    def _read_chunks(self) -> Iterator[bytes]:
        total = 0
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            total += size
            _check_size(total)
            chunk = self.rfile.read(size)
            if len(chunk) != size:
                raise ValueError("The body is shorter than its declared length.")
            self.rfile.readline()
            if size == 0:
                return
            yield chunk

    def _respond(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Keep-Alive", f"timeout={KEEP_ALIVE_TIMEOUT_S}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Do not log requests; a response contains the engine's error."""

    def log_message(self, format: str, *args: object) -> None:
        """Log an HTTP request that cannot be parsed."""
        logger.warning(format, *args)


def _check_size(length: int) -> None:
    if length > MAX_BODY_BYTES:
        raise ValueError(f"The body is larger than {MAX_BODY_BYTES} bytes. Send it in several inserts.")


class ClickHouseHttpServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Log an unexpected error, and nothing when a client disconnects."""
        if not isinstance(sys.exception(), (ConnectionError, socket.timeout)):
            logger.exception("A request failed")


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="ClickHouse's HTTP interface over the embedded engine")
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--password-file", type=Path)
    options = parser.parse_args()
    configure_logging(component="clickhouse")
    try:
        ClickHouseRequestHandler.engine = ChdbEngine(options.path)
        server = ClickHouseHttpServer(("127.0.0.1", options.port), ClickHouseRequestHandler)
    except (RuntimeError, ChdbError, OSError) as error:
        logger.critical("Cannot start the ClickHouse server: %s", error)
        sys.exit(1)
    if options.password_file:
        ClickHouseRequestHandler.password = options.password_file.read_text().strip()

    def shut_down(signum: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, shut_down)
    signal.signal(signal.SIGINT, shut_down)
    logger.info("ready on 127.0.0.1:%d, data in %s", options.port, options.path)
    program_pages.keep_releasing()
    server.serve_forever(poll_interval=0.5)
    server.socket.close()
    if ClickHouseRequestHandler.gate.close(STOP_TIMEOUT_S):
        ClickHouseRequestHandler.engine.close()
    # The threads of connections still exist; the engine crashes when the interpreter ends below them.
    os._exit(0)


if __name__ == "__main__":
    main()
