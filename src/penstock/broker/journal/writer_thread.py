"""Run file operations in a thread, one after the other, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from penstock.errors import JournalFailed, JournalFull

P = ParamSpec("P")
R = TypeVar("R")


class FileThread:
    """A single thread for the file operations of one journal."""

    def __init__(self, name: str, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, name)

    def close(self) -> None:
        """Wait for pending operations and end the thread."""
        self._executor.shutdown()

    async def run(
        self,
        operation: Callable[P, R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run an operation and return its result. Raises JournalFull or JournalFailed for a disk error."""
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._executor, partial(operation, *args, **kwargs)
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise JournalFull(
                    f"The disk of {self._path} is full: free some space. Accepted pushes are kept."
                ) from error
            raise JournalFailed(
                f"{self._path} cannot be used ({error.strerror or error}). Check its disk and permissions."
            ) from error

    async def acquire(self, operation: Callable[[], R], release: Callable[[R], None]) -> R:
        """Run an operation that acquires a resource. If the caller is cancelled, the resource is released."""
        acquiring = asyncio.ensure_future(self.run(operation))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(partial(_release_result, release))
            raise

    def submit(self, operation: Callable[[], None]) -> None:
        """Run an operation after all earlier ones, without waiting for it."""
        self._executor.submit(operation)


def _release_result(release: Callable[[R], None], acquired: asyncio.Future[R]) -> None:
    if not acquired.cancelled() and acquired.exception() is None:
        release(acquired.result())
