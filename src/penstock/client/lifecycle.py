"""What consumers and workers have in common: they run until they are stopped, and end in good order."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from types import TracebackType
from typing import Any, Self

from penstock.client.stopping import told_by


class Runner(ABC):
    """Runs once. `siblings` has those of a client that are running, so that closing it can stop them."""

    def __init__(self, siblings: set[Any]) -> None:
        self._siblings = siblings
        self._stop_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()

    async def __aenter__(self) -> Self:
        """Run in the background; the end of the block stops it and waits until it has."""
        self._background = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._background is not None:
            await self._background

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop: a handler that takes long may ask, and end early by raising."""
        return self._stop_asked

    def stop(self) -> None:
        """Take no more and end in good order. Callable from any thread, and more than once."""
        self._stop_asked = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin_to_stop)

    async def run(self, *, stop_on: Iterable[signal.Signals] = ()) -> None:
        """Go on until `stop()`, or until one of the signals arrives (then only in the main thread).

        Raises what is not worth trying again, such as InvalidRequest; what was held is given back before.
        """
        if self._loop is not None:
            raise RuntimeError(f"this {type(self).__name__.lower()} has run already: make another one")
        self._loop = asyncio.get_running_loop()
        self._siblings.add(self)
        try:
            if not self._stop_asked:
                with told_by(self.stop, stop_on):
                    await self._run()
        finally:
            self._siblings.discard(self)
            self.ended.set()

    @abstractmethod
    async def _run(self) -> None:
        """Until stopping was asked for, and all is in order."""

    @abstractmethod
    def _begin_to_stop(self) -> None:
        """Called on the event loop after `stop()`."""
