"""Headers that keep browsers from misusing responses: content security policy, framing, sniffing, caching.

The middleware sets them on every response of the application. Hot responses (push, pop, ack) go to programs
and do without them.
"""

from __future__ import annotations

from ipaddress import ip_address

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.http.client_address import is_https

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # Swagger's style sheet has its icons in it
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # The origin check needs the referrer of the broker's own pages.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
NO_STORE = (b"cache-control", b"no-store")
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
STATIC_PATHS = ("/static/", "/static-offline-docs/")
"""Files that are the same for every caller. Browsers may keep them."""


class SecurityHeadersMiddleware:
    """Adds the headers. Responses that may hold data of an environment are not stored by caches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_headers_for(scope, message["headers"])]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _headers_for(scope: Scope, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    added = list(HEADERS)
    if not scope["path"].startswith(STATIC_PATHS) and all(name != b"cache-control" for name, _ in headers):
        added.append(NO_STORE)
    connection = HTTPConnection(scope)
    if is_https(connection) and not _is_local_name(connection.url.hostname or ""):
        added.append(STRICT_TRANSPORT)
    return added


def _is_local_name(host: str) -> bool:
    """Whether strict transport must not hold: it would apply to every port of `localhost`."""
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return True
