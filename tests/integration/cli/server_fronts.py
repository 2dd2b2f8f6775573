"""Fronts before real servers, for versions and rights that no package of the index has.

No package has PostgreSQL 13, ClickHouse 24.3 or a ClickHouse with several users. A front passes all bytes on
to the real server and back, and changes one thing: the version in PostgreSQL's greeting, or the text of a
question to ClickHouse, which the real engine then answers.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"


def with_port(url: str, port: int) -> str:
    """Return the URL with another port."""
    parts = urlsplit(url)
    userinfo = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{userinfo}@{LOOPBACK}:{port}").geturl()


@contextmanager
def postgres_front(url: str, major: int) -> Iterator[str]:
    """Yield the URL of a front whose PostgreSQL says that it has this major version."""

    def change_version(data: bytes) -> bytes:
        return re.sub(rb"(server_version\0)\d\d", rb"\g<1>%d" % major, data)

    with _tcp_front(urlsplit(url).port or 5432, change_version) as port:
        yield with_port(url, port)


@contextmanager
def _tcp_front(server_port: int, change: Callable[[bytes], bytes]) -> Iterator[int]:
    """Pass connections on; `change` gets what the server sends. The greeting arrives in one piece."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the listener is closed
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection((LOOPBACK, server_port))
                    threading.Thread(target=_copy, args=(client, server, bytes), daemon=True).start()
                    threading.Thread(target=_copy, args=(server, client, change), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(change(data))
        target.shutdown(socket.SHUT_WR)


@contextmanager
def clickhouse_front(url: str, pattern: str = "", replacement: str = "", settings: str = "") -> Iterator[str]:
    """Yield the URL of a front that replaces a part of each question before the engine answers it.

    `settings` are added to the settings of each question: `&name=value`.
    """
    server_port = urlsplit(url).port or 8123

    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            question = self.rfile.read(int(self.headers["Content-Length"])).decode()
            body = re.sub(pattern, replacement, question).encode()
            headers = {name: value for name, value in self.headers.items() if name != "Content-Length"}
            connection = http.client.HTTPConnection(LOOPBACK, server_port)
            connection.request("POST", self.path + settings, body, headers)
            response = connection.getresponse()
            answer = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)
            connection.close()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Front) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield with_port(url, server.server_port)
        server.shutdown()


@contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.create_server((LOOPBACK, 0), backlog=100) as listener:
        yield listener.getsockname()[1]


@contextmanager
def dropping_port() -> Iterator[int]:
    """Yield a port that drops new connections, like a firewall: its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect((LOOPBACK, port))
        yield port
