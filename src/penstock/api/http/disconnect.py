"""Noticing that a waiting client has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

T = TypeVar("T")


async def unless_disconnected(
    request: Request, work: Coroutine[Any, Any, T], leaving_now: Callable[[], None] = lambda: None
) -> T | None:
    """The result of `work`, or None once the client has left; the work is then cancelled.

    `leaving_now` is called before that: work that is about to end may not notice the cancellation.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done() and not working.done():
            leaving_now()
            return None
        return await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
