"""File work in a thread of its own, one piece after the other: the event loop never waits for a disk."""

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
    def __init__(self, name: str, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, name)

    def close(self) -> None:
        """Wait for what is being done."""
        self._executor.shutdown()

    async def do(
        self,
        work: Callable[P, R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """The result of the work. What the disk refuses is told in words, as JournalFull or JournalFailed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._executor, partial(work, *args, **kwargs)
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise JournalFull(
                    f"the disk under {self._path} is full: make room there; what was accepted stays"
                ) from error
            raise JournalFailed(f"{self._path} cannot be used: {error.strerror or error}") from error

    async def get(self, work: Callable[[], R], give_back: Callable[[R], None]) -> R:
        """The same for what must be given back: whoever is cancelled does not leave with it."""
        getting = asyncio.ensure_future(self.do(work))
        try:
            return await asyncio.shield(getting)
        except asyncio.CancelledError:
            getting.add_done_callback(partial(_return, give_back))
            raise

    def later(self, work: Callable[[], None]) -> None:
        """Do it after everything that was asked for before."""
        self._executor.submit(work)


def _return(give_back: Callable[[R], None], got: asyncio.Future[R]) -> None:
    if not got.cancelled() and got.exception() is None:
        give_back(got.result())
