"""Fetch the next messages or tasks: wait out outages, and stop without losing what the broker is sending."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from penstock.client.errors import ApiError, ClientError, NoAnswer, Overloaded, Unavailable
from penstock.client.http.connections import RequestCancellation
from penstock.client.http.transport import retry_delay_s
from penstock.client.settings import ClientSettings

RESPONSE_GRACE_S = 0.2
"""How long a waiting call may still get a response when its caller stops."""

CLOSE_TIMEOUT_S = 2.0
"""How long the broker may take to close its side of a connection that was half-closed."""

T = TypeVar("T")

logger = logging.getLogger("penstock.client")


class WorkFetcher(Generic[T]):
    """The pops of a consumer or the dequeues of a worker, any number at once.

    `action` names the call in the log. `release` returns work that arrives after its caller was cancelled.
    """

    def __init__(
        self, action: str, settings: ClientSettings, release: Callable[[list[T]], Awaitable[None]]
    ) -> None:
        self._action = action
        self._settings = settings
        self._release = release
        self.pending: dict[asyncio.Task[list[T]], RequestCancellation] = {}

    async def fetch(self, call: Callable[[RequestCancellation], Awaitable[list[T]]]) -> list[T]:
        """Return what the call returns; an empty list if it got nothing in time, or the caller stops."""
        cancellation = RequestCancellation()
        task = asyncio.create_task(self._retry(call, cancellation))
        self.pending[task] = cancellation
        try:
            await asyncio.wait({task})
            return [] if task.cancelled() else task.result()
        except asyncio.CancelledError:
            _cancel_gracefully(task, cancellation)
            await asyncio.wait({task})
            if not task.cancelled() and task.exception() is None and task.result():
                await self._release(task.result())
            raise
        finally:
            del self.pending[task]

    def stop(self) -> None:
        """End the waiting calls soon."""
        for task, cancellation in self.pending.items():
            _cancel_gracefully(task, cancellation)

    async def _retry(
        self, call: Callable[[RequestCancellation], Awaitable[list[T]]], cancellation: RequestCancellation
    ) -> list[T]:
        attempt = 1
        while True:
            try:
                return await call(cancellation)
            except ClientError as error:
                if cancellation.is_final_attempt:
                    return []
                if not is_temporary(error):
                    raise
                attempt += 1
                await wait_before_retry(self._action, error, attempt, self._settings)


def is_temporary(error: ClientError) -> bool:
    """Whether a consumer or worker waits until the error is over, however long it takes."""
    return isinstance(error, NoAnswer | Overloaded | Unavailable) or error.status == 500


async def wait_before_retry(action: str, error: ClientError, attempt: int, settings: ClientSettings) -> None:
    """Log the error and wait: longer before each attempt, and as long as the broker asks for."""
    retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
    delay_s = retry_delay_s(attempt, settings, retry_after_s, random.random())
    logger.warning("Cannot %s: %s Retrying in %.1f s.", action, error, delay_s)
    await asyncio.sleep(delay_s)


def _cancel_gracefully(call: asyncio.Task[list[T]], cancellation: RequestCancellation) -> None:
    """End a waiting call soon, without losing messages or tasks that the broker is sending.

    A call that the broker is answering may finish. Then the client half-closes the connection: the broker
    rarely sends a response after that, and the client still reads it.
    """
    if cancellation.is_final_attempt:
        return
    cancellation.is_final_attempt = True
    call_later = asyncio.get_running_loop().call_later

    def half_close() -> None:
        if cancellation.half_close():
            call_later(CLOSE_TIMEOUT_S, call.cancel)
        else:
            call.cancel()

    if cancellation.connection is None:
        call.cancel()
    else:
        call_later(RESPONSE_GRACE_S, half_close)
