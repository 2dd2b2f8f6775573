"""The responses of the API that the tests of the page fake."""

from __future__ import annotations

import asyncio
import mimetypes
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Route

from penstock.api.http.security_headers import HEADERS
from penstock.console import STATIC
from tests.waiting import wait_until_async

ORIGIN = "http://127.0.0.1:7480"
LOCAL_SESSION = {
    "authenticated": True,
    "subject": "local",
    "name": "local",
    "role": None,
    "environment": "default/default/default",
    "environments": ["default/default/default"],
    "scopes": ["read", "read:payload", "produce", "consume", "operate", "configure", "admin"],
    "platformAdministrator": True,
    "csrfToken": None,
    "login": {"oidc": None, "token": True},
}
"""The session of a broker that requires no login."""
FakeResponse = tuple[int, dict[str, Any]]
"""Status and JSON body."""


@dataclass
class FakeApi:
    """The responses of the API, and the number of requests per path.

    `reachable = False` simulates a stopped broker, and a cleared `gate` a slow one.
    """

    queues: list[str] = field(default_factory=list)
    depth: int = 7
    run_queues: FakeResponse = (200, {"queues": [], "total": 0})
    health: FakeResponse = (
        200,
        {"status": "ok", "parts": {"postgres": {"status": "up", "detail": "reachable"}}},
    )
    metrics: FakeResponse | None = None
    error_groups: FakeResponse = (200, {"groups": [], "complete": True, "pagination": {"total": 0}})
    session: dict[str, Any] = field(default_factory=lambda: dict(LOCAL_SESSION))
    reachable: bool = True
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    requests: Counter[str] = field(default_factory=Counter)

    async def handle(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path == "/" or path.startswith("/console/"):
            await serve_file(route, "index.html")
            return
        if path.startswith("/static/"):
            await serve_file(route, path.removeprefix("/static/"))
            return
        self.requests[path] += 1
        await self.gate.wait()
        if not self.reachable:
            await route.abort("connectionrefused")
            return
        status, body = self.response(path)
        await route.fulfill(status=status, json=body)

    async def wait_for_requests(self, path: str, more_than: int) -> None:
        async def has_requests() -> bool:
            return self.requests[path] > more_than

        await wait_until_async(has_requests, 5, f"the page requests {path}")

    def response(self, path: str) -> FakeResponse:
        if path == "/health":
            return self.health
        if path == "/api/v1/resources/queues":
            queues = [{"name": name, "partitions": 1, "depth": self.depth} for name in self.queues]
            return 200, {"queues": queues, "total": len(queues)}
        if path == "/api/v1/session":
            return 200, self.session
        if path == "/api/v1/run-queues":
            return self.run_queues
        if path == "/api/v1/dlq/groups":
            return self.error_groups
        return self.metrics or (200, metrics_response([(2, False), (2, True), (5, False)]))


async def serve_file(route: Route, name: str) -> None:
    content_type, _ = mimetypes.guess_type(name)
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    await route.fulfill(path=STATIC / name, headers={**headers, "content-type": content_type or ""})


def metrics_response(depths: list[tuple[int, bool]], delayed: list[int] | None = None) -> dict[str, Any]:
    """A metrics response with one 5-second point per (depth, carried) and ten pushed messages in each.

    It has columns. Without `delayed` the delayed tasks are unknown.
    """
    count = len(depths)
    delayed_values = [delayed[i] if delayed else None for i in range(count)]
    values, carried = [depth for depth, _ in depths], [is_carried for _, is_carried in depths]
    columns = {
        "timestamp": [f"2026-01-01T00:00:{5 * i:02d}.000Z" for i in range(count)],
        "throughput": {"enqueued": [10] * count, "dequeued": [5] * count, "completed": [5] * count},
        "queue_depth": {"max": values, "last": values},
        "delayed": dict.fromkeys(("max", "last"), delayed_values),
        "latency": {"avg_wait_ms": [20] * count, "p95_wait_ms": [40] * count, "max_age_ms": [90] * count},
        "failures": {"nack": [1] * count, "dlq": [0] * count, "ttl_expired": [0] * count},
        "carried": carried,
        "complete": [True] * count,
    }
    end = f"2026-01-01T00:00:{5 * count:02d}.000Z"
    return {
        "queue": "any",
        "period": {"start": "2026-01-01T00:00:00.000Z", "end": end},
        "resolution": "5s",
        "freshness": end,
        "completeness": {"complete_until": end, "lost": 0, "rejected": 0, "streams_replaced": 0},
        "columns": columns,
    }
