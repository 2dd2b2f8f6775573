"""The servers that Penstock works with: the form of their URLs, the oldest and the tested versions.

This is the one place that states versions. The probes of the servers raise the errors that are made here, so
all of them name the setting, never show a password and say what to do.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.errors import ServerStarting, ServerUnreachable, ServerUnusable
from penstock.redis_address import CLUSTER_SCHEMES, SENTINEL_SCHEMES, parse_redis_url

PROBE_TIMEOUT_S = 4.0
"""How long a server may take to log a client in or to answer a question."""

CONNECT_TIMEOUT_S = 1.0
"""How long a port may take to accept the connection that tells a wrong program from a missing one."""


@dataclass(frozen=True, slots=True)
class SupportedServer:
    """A kind of server that a URL in the settings names."""

    product: str
    setting: str
    example: str
    """A URL of the right form, for error messages."""
    schemes: tuple[str, ...]
    default_port: int
    minimum: tuple[int, ...]
    """The oldest version that works; it has as many numbers as a release series of the product."""
    tested: tuple[str, ...]
    """Product and release series that the tests run on."""

    def check_url(self, url: str) -> None:
        """Raise ServerUnusable if the URL cannot be one of this server. No part of the URL is shown."""
        scheme, separator, _ = url.partition("://")
        if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
            raise self.unusable("the URL has no scheme", f"Write it as {self.example}.")
        if scheme.lower() not in self.schemes:
            raise self.unusable(
                f"{scheme}:// is not the scheme of {self.product}", f"Write the URL as {self.example}."
            )
        user_and_host = re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0]
        if "@" in url and "@" not in user_and_host:
            raise self.unusable(
                "the URL has a special character in its user or password",
                "Write / as %2F, ? as %3F, # as %23 and @ as %40 there.",
            )
        try:
            self.host_and_port(url)
        except ValueError:
            raise self.unusable(
                "the URL has no valid host or port", f"Write it as {self.example}; special characters as %XX."
            ) from None

    def host_and_port(self, url: str) -> tuple[str, int]:
        """Return the first host of the URL and its port. A host that starts with `/` is a Unix socket."""
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        first = urlsplit(f"//{parts.netloc.rpartition('@')[2].partition(',')[0]}")
        host = first.hostname or options.get("host", [parts.path if parts.scheme == "unix" else ""])[0]
        default_port = 8443 if parts.scheme in ("https", "clickhouses") else self.default_port
        return host or "localhost", first.port or int(options.get("port", [default_port])[0])

    def address(self, url: str) -> str:
        """Return what to show of the URL: host and port, or the path of a Unix socket."""
        host, port = self.host_and_port(url)
        return host if host.startswith("/") else f"{host}:{port}"

    def describe(self, url: str) -> str:
        return f"{self.product} at {self.address(url)}"

    def unusable(self, problem: str, remedy: str) -> ServerUnusable:
        return ServerUnusable(self.setting, problem, remedy)

    def starting(self, url: str, answer: object) -> ServerStarting:
        problem = f"{self.describe(url)} takes no connections now ({one_line(answer)})"
        return ServerStarting(self.setting, problem, "Try again when it is up.")

    def no_answer(self, url: str, reason: object) -> ServerUnusable:
        """Return the error for a failed connection: no host, no server, or a server of another kind."""
        host, port = self.host_and_port(url)
        remedy = "Check host and port in the URL, and that the server runs and may be reached from here."
        try:
            if not host.startswith("/"):
                socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except socket.gaierror:
            return ServerUnreachable(
                self.setting, f"the host {host} is unknown", "Correct the host in the URL."
            )
        except TimeoutError:
            return ServerUnreachable(self.setting, f"no connection to {host}:{port} in time", remedy)
        except OSError as error:
            return ServerUnreachable(
                self.setting, f"no connection to {host}:{port} ({error.strerror or error})", remedy
            )
        if host.startswith("/"):
            return ServerUnreachable(self.setting, f"no answer on {host} ({one_line(reason)})", remedy)
        return self.unusable(
            f"the program on {host}:{port} does not answer as {self.product} ({one_line(reason)})",
            f"Name host and port of {self.product}, such as {self.example}.",
        )

    def wrong_password(self, url: str, user: str) -> ServerUnusable:
        return self.unusable(
            f"{self.describe(url)} does not accept the password of user {user}",
            "Correct user and password in the URL; write special characters as %XX.",
        )

    def check_version(self, url: str, version: str, product: str = "") -> str | None:
        """Return a warning if the version is not tested. Raises ServerUnusable if it is too old."""
        product = product or self.product
        numbers = tuple(int(number) for number in re.findall(r"\d+", version)[: len(self.minimum)])
        if numbers < self.minimum:
            raise self.unusable(
                f"{product} at {self.address(url)} is version {version}",
                f"Use {self.product} {_join(self.minimum)} or newer.",
            )
        release = f"{product} {_join(numbers)}"
        if release in self.tested:
            return None
        return (
            f"{self.setting}: {release} is not tested with Penstock, which continues. "
            f"Tested: {', '.join(self.tested)}."
        )


class RedisServer(SupportedServer):
    """Redis: one server, a cluster, or a server that Sentinel finds."""

    __slots__ = ()

    def check_url(self, url: str) -> None:
        SupportedServer.check_url(self, url)
        try:
            parse_redis_url(url)
        except ValueError as error:
            raise self.unusable(
                str(error),
                f"Write the URL as {self.example}, redis+cluster://host:6379,host:6379 or "
                "redis+sentinel://host:26379,host:26379/service.",
            ) from None


POSTGRES = SupportedServer(
    product="PostgreSQL",
    setting="PENSTOCK_POSTGRES_URL",
    example="postgresql://user:password@host:5432/database",
    schemes=("postgresql", "postgres"),
    default_port=5432,
    minimum=(14,),
    tested=("PostgreSQL 15", "PostgreSQL 18"),
)
REDIS = RedisServer(
    product="Redis",
    setting="PENSTOCK_REDIS_URL",
    example="redis://:password@host:6379/0",
    schemes=("redis", "rediss", "unix", *CLUSTER_SCHEMES, *SENTINEL_SCHEMES),
    default_port=6379,
    minimum=(7,),
    tested=("Valkey 9",),
)
# Since 24.7 ClickHouse remembers insert tokens for the views of a table as the pipeline needs it; 24.8 has
# long-term support.
CLICKHOUSE = SupportedServer(
    product="ClickHouse",
    setting="PENSTOCK_CLICKHOUSE_URL",
    example="http://user:password@host:8123/database",
    schemes=("http", "https", "clickhouse", "clickhouses"),
    default_port=8123,
    minimum=(24, 8),
    tested=("ClickHouse 26.9",),
)


def user_of(url: str, default: str) -> str:
    """Return the user name in a URL."""
    return unquote(urlsplit(url).username or default)


def one_line(text: object, max_length: int = 160) -> str:
    """Return the text of an error without line breaks, for the end of a sentence."""
    return " ".join(str(text).split())[:max_length].rstrip(".") or type(text).__name__


def _join(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
