"""Refuse requests that a web page of another site makes a browser send.

A browser sends requests to any address for any page, also to the broker on its own machine. Three checks of
the head keep such a page from reading or changing anything, with and without tokens:

- `Host` is a name of the broker. A page that points its own name at the broker (DNS rebinding) fails here. An
  IP address is never such a name.
- A request that changes something does not come from a page of another origin.
- A body is declared as JSON, which a browser sends to another origin only with permission.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api import problems
from penstock.config import PREFIX, Settings
from penstock.errors import ConfigError, CrossOrigin, PenstockError, UnknownHost, UnsupportedMediaType

SETTING = f"{PREFIX}ALLOWED_HOSTS"
JSON_TYPE = b"application/json"
MAX_HOST_LENGTH = 261
"""253 characters of a name, a trailing dot, a colon and a port."""
POP_PATH = b"/api/v1/pop"
"""The prefix of the routes that change something although their method is GET."""
_HOST_PATTERN = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*")
_READING_METHODS = (b"GET", b"HEAD", b"OPTIONS", b"TRACE")


class OriginCheck:
    """The checks for the names that this broker is reached by."""

    def __init__(self, settings: Settings) -> None:
        names = [name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip()]
        for name in names:
            if name != "*" and not _HOST_PATTERN.fullmatch(name):
                raise ConfigError(
                    f"{SETTING} must be name[,name] without scheme and port, not {name!r}. *.example.com "
                    "stands for all names below example.com, * for every name."
                )
        machine = socket.gethostname().lower()
        names += ["localhost", "*.localhost", settings.host.lower(), machine, machine.partition(".")[0]]
        self._accepts_any_name = "*" in names
        self._names = frozenset(name for name in names if not name.startswith("*"))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    def check(self, method: bytes, path: bytes, fields: Mapping[bytes, bytes]) -> None:
        """Raise UnknownHost, CrossOrigin or UnsupportedMediaType unless the request may be served."""
        host = fields.get(b"host")
        if host is not None:  # HTTP/1.0, which no browser speaks, does not require it
            self._check_host(host)
        if changes_something(method, path):
            _check_origin(fields, host)
        if method not in _READING_METHODS:
            _check_content_type(fields)

    def _check_host(self, host: bytes) -> None:
        name = _name_of(host[:MAX_HOST_LENGTH])
        if name is None or self._accepts_any_name or name in self._names or name.endswith(self._suffixes):
            return
        raise UnknownHost(
            f"The broker does not serve the host {name!r}. Use localhost or an IP address, or "
            f"add the name to {SETTING}."
        )


def changes_something(method: bytes, path: bytes) -> bool:
    """Whether a request may change something, so that a page of another site must not make it."""
    return method not in _READING_METHODS or path.startswith(POP_PATH)


@lru_cache(maxsize=256)
def _name_of(host: bytes) -> str | None:
    """The name in a Host header, without its port; None if it is an IP address."""
    text = host.decode("latin-1").strip().lower()
    bracketed, bracket, _ = text.removeprefix("[").partition("]")
    name = bracketed if bracket else text.partition(":")[0].removesuffix(".")
    try:
        ip_address(name)
    except ValueError:
        return name
    return None


def _check_origin(fields: Mapping[bytes, bytes], host: bytes | None) -> None:
    site = fields.get(b"sec-fetch-site")
    origin = fields.get(b"origin")
    if site is not None:
        if site in (b"same-origin", b"none"):
            return
    elif origin is not None:
        if origin.partition(b"://")[2] == host:
            return
    elif not is_sent_by_browser(fields):
        return
    else:  # a browser that reaches the broker over plain HTTP sends neither header with a GET
        origin = fields.get(b"referer", b"a page that it does not name")
        if origin.partition(b"://")[2].partition(b"/")[0] == host:
            return
    source = (origin or b"another origin").decode("latin-1")
    raise CrossOrigin(
        f"A browser sent this request for {source[:200]}. Requests that change something are accepted from "
        "the broker's own pages and from programs that are no browser."
    )


def is_sent_by_browser(fields: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sends the request. Over plain HTTP it sends no `Sec-Fetch-Site`."""
    user_agent = fields.get(b"user-agent", b"")
    is_named_like_browser = user_agent.startswith(b"Mozilla/") and b"PowerShell/" not in user_agent
    return b"sec-fetch-site" in fields or is_named_like_browser


def _check_content_type(fields: Mapping[bytes, bytes]) -> None:
    if fields.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in fields:
        return
    content_type = fields.get(b"content-type", b"")
    if content_type.partition(b";")[0].strip().lower() != JSON_TYPE:
        declared = content_type.decode("latin-1")[:100]
        raise UnsupportedMediaType(
            f"The body is declared as {declared or 'nothing'}, not as JSON. Send the header Content-Type: "
            "application/json; with curl: -H 'Content-Type: application/json'."
        )


class OriginCheckMiddleware:
    """Applies the check to requests of the application. The fast path applies it itself."""

    def __init__(self, app: ASGIApp, origin_check: OriginCheck) -> None:
        self._app = app
        self._origin_check = origin_check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                path = scope["path"].encode(errors="surrogateescape")
                self._origin_check.check(scope["method"].encode(), path, dict(scope["headers"]))
            except PenstockError as error:
                await problems.from_penstock_error(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)
