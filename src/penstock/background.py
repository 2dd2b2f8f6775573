"""Run a coroutine in the background from `start` to `stop`."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import ClassVar

logger = logging.getLogger(__name__)

CANCEL_AGAIN_S = 5.0
"""How long a cancelled task may take to end before it is cancelled again."""


class BackgroundTask(ABC):
    """An object with a loop in the background.

    `start` and `stop` may be called twice, and `stop` before `start`. A stopped loop can start again. An
    error that ends the loop is logged at once.
    """

    task_name: ClassVar[str]
    _task: asyncio.Task[None] | None = None
    _is_stopping = False
    """For loops that may swallow a cancellation, as the Redis client does: they end when it is True."""

    @abstractmethod
    async def _run(self) -> None:
        """Run until cancelled."""

    @property
    def is_started(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._task is not None

    async def start(self) -> None:
        if self._task is None:
            self._is_stopping = False
            self._task = asyncio.create_task(self._run(), name=self.task_name)
            self._task.add_done_callback(_log_error)

    async def stop(self) -> None:
        """Cancel the loop and wait until it has ended."""
        task = self._task
        if task is not None:
            self._is_stopping = True
            await cancel_and_wait(task)
            self._task = None


async def cancel_and_wait(*tasks: asyncio.Task[None], again_s: float = CANCEL_AGAIN_S) -> None:
    """Cancel tasks and wait until all have ended, whatever their results are.

    A task that swallowed its cancellation, as a client library may do, is cancelled again.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=again_s)


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("The background task %r ended with an error", task.get_name(), exc_info=error)
