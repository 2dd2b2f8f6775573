"""How objects of the client begin and end: `async with`, run, and stop."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self


class AsyncClosable(ABC):
    """An object that `async with` closes at its end."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None: ...


class Runner(Coroutine[Any, Any, None]):
    """A consumer or a worker: it runs once, until it is stopped.

    It is a coroutine object, so `await` takes it, and so do `asyncio.create_task` and task groups.

    `registry` holds the running consumers or workers of a client, so that closing the client stops them.
    """

    def __init__(self, registry: set[Any]) -> None:
        self._registry = registry
        self._stop_requested = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: asyncio.Task[None] | None = None
        self._coroutine: Coroutine[Any, Any, None] | None = None
        self.ended = asyncio.Event()

    def __await__(self) -> Generator[object, None, None]:
        return self.run().__await__()

    def send(self, value: Any) -> Any:
        """Continue `run()`: called by the task that runs this object."""
        return self._started_run().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside `run()`: called by the task that runs this object."""
        return self._started_run().throw(*error)

    def close(self) -> None:
        """End `run()` at once, without returning work. Called by Python; use `stop()`."""
        if self._coroutine is not None:
            self._coroutine.close()

    def _started_run(self) -> Coroutine[Any, Any, None]:
        if self._coroutine is None:
            self._coroutine = self.run()
        return self._coroutine

    async def __aenter__(self) -> Self:
        """Run in the background; the end of the block stops it and waits for its end."""
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
        """Whether `stop` was called: a long handler may check it and end early by raising."""
        return self._stop_requested

    def stop(self) -> None:
        """Take no more work and shut down gracefully. May be called from any thread, and more than once."""
        self._stop_requested = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start_stopping)

    async def run(self, *, stop_on: Iterable[signal.Signals] = ()) -> None:
        """Run until `stop()`, or until one of the signals arrives (signals need the main thread).

        Raises errors that a retry cannot fix, such as InvalidRequest, after returning what it held.
        """
        if self._loop is not None:
            raise RuntimeError(f"This {type(self).__name__.lower()} has already run. Create another one.")
        self._loop = asyncio.get_running_loop()
        self._registry.add(self)
        try:
            if not self._stop_requested:
                with stop_on_signals(self.stop, stop_on):
                    await self._run()
        finally:
            self._registry.discard(self)
            self.ended.set()

    @abstractmethod
    async def _run(self) -> None:
        """Work until stopping was requested and everything is acked or returned."""

    @abstractmethod
    def _start_stopping(self) -> None:
        """Called on the event loop after `stop()`."""


@contextmanager
def stop_on_signals(stop: Callable[[], None], signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Call `stop` when one of the signals arrives within the block."""
    loop = asyncio.get_running_loop()
    signal_numbers = list(signals)
    for number in signal_numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signal_numbers:
            loop.remove_signal_handler(number)
