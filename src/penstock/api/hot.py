"""A short way to the hot routes.

Push, pop and ack are most of the traffic, and the framework's middleware and route search cost more than
they do themselves. This front looks their paths up directly and hands everything else to the application.
The same endpoints are registered there too, so both ways answer alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.api import problems
from penstock.api.routes import messages, settle
from penstock.errors import PenstockError

Endpoint = Callable[[Request], Awaitable[Response]]

POP_PREFIX = "/api/v1/pop/queue/"


class HotRoutes:
    """The application with a short way to its hot routes."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._posts: dict[str, Endpoint] = {
            "/api/v1/push": messages.push,
            "/api/v1/ack": settle.ack,
            "/api/v1/ack/batch": settle.ack_batch,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoint(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.app
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except ClientDisconnect:
            return
        except PenstockError as error:
            response = await problems.on_penstock_error(request, error)
        except Exception as error:  # noqa: BLE001 - the last line of defence, as in the application
            response = await problems.on_unexpected(request, error)
        await response(scope, receive, send)

    def let_go(self) -> None:
        """Answer pops that wait, with nothing: the server is about to stop."""
        self.app.state.services.broker.waiters.let_go()

    def _endpoint(self, scope: Scope) -> Endpoint | None:
        path: str = scope["path"]
        if scope["method"] == "POST":
            return self._posts.get(path)
        if scope["method"] == "GET" and path.startswith(POP_PREFIX):
            queue, slash, _ = path.removeprefix(POP_PREFIX).partition("/")
            if queue and not slash:
                scope["path_params"] = {"queue": queue}
                return messages.pop
        return None
