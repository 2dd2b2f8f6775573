"""The client for threads, without an event loop of the caller.

Nothing is implemented twice: a background thread runs an event loop, and every method here runs the
asynchronous one on it and waits. Signatures and documentation come from the asynchronous methods.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from types import FrameType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from penstock.client.buffer import Buffer
from penstock.client.client import Client
from penstock.client.consumer import Consumer
from penstock.client.operations import Operations
from penstock.client.settings import ClientSettings
from penstock.client.tasks import Tasks
from penstock.client.transaction import Transaction
from penstock.client.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
F = TypeVar("F", bound="SyncWrapper[Any]")
W = TypeVar("W", Consumer, Worker)


class EventLoopThread:
    """An event loop in a background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "This code runs on the client's own event loop. Use the asynchronous client here."
            )
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("The client is closed.")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Return the result of the coroutine. An interrupted caller cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class SyncWrapper(Generic[A]):
    """A synchronous wrapper of an asynchronous object."""

    def __init__(self, loop_thread: EventLoopThread, wrapped: A) -> None:
        self._loop_thread = loop_thread
        self._wrapped = wrapped


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncWrapper[A], P], R]:
    """Turn an asynchronous method into one that runs on the client's event loop and blocks."""

    @wraps(method)
    def call(wrapper: SyncWrapper[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrapper._loop_thread.wait(method(wrapper._wrapped, *args, **kwargs))

    return call


def wrapping(
    method: Callable[Concatenate[B, P], A], wrapper_type: Callable[[EventLoopThread, A], F]
) -> Callable[Concatenate[SyncWrapper[B], P], F]:
    """Turn a method into one whose result is wrapped too."""

    @wraps(method)
    def call(wrapper: SyncWrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> F:
        async def create() -> A:
            return method(wrapper._wrapped, *args, **kwargs)

        return wrapper_type(wrapper._loop_thread, wrapper._loop_thread.wait(create()))

    return call


def chaining(
    method: Callable[Concatenate[Transaction, P], Transaction],
) -> Callable[Concatenate[SyncTransaction, P], SyncTransaction]:
    """Turn a chaining method into one that returns the wrapper. It sends nothing, so it does not block."""

    @wraps(method)
    def call(wrapper: SyncTransaction, /, *args: P.args, **kwargs: P.kwargs) -> SyncTransaction:
        method(wrapper._wrapped, *args, **kwargs)
        return wrapper

    return call


class SyncClosable(SyncWrapper[A], ABC):
    """A wrapper that `with` closes at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class SyncBuffer(SyncClosable[Buffer]):
    """`Buffer` for threads; several may push at once."""

    push = blocking(Buffer.push)
    flush = blocking(Buffer.flush)
    close = blocking(Buffer.close)

    def __len__(self) -> int:
        return len(self._wrapped)


class SyncTransaction(SyncWrapper[Transaction]):
    """`Transaction` for threads; `with` commits at its end."""

    push = chaining(Transaction.push)
    ack = chaining(Transaction.ack)
    nack = chaining(Transaction.nack)
    retry = chaining(Transaction.retry)
    dead_letter = chaining(Transaction.dead_letter)
    commit = blocking(Transaction.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop_thread.wait(self._wrapped.__aexit__(kind, error, trace))


class SyncRunner(SyncWrapper[W]):
    """A consumer or worker: `run()` blocks, `with` runs it in the background."""

    _running: Future[None] | None = None

    def run(self, *, stop_on: Iterable[signal.Signals] = ()) -> None:
        """Run until `stop()`, or until one of the signals arrives (only in the main thread)."""
        with _stop_on_signals(self, stop_on):
            future = self._loop_thread.start(self._wrapped.run())
            try:
                future.result()
            except KeyboardInterrupt:
                self.stop()
                future.result()
                raise

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: a long handler may check it and end early by raising."""
        return self._wrapped.stopping

    def stop(self) -> None:
        """Take no more work and shut down gracefully. May be called from any thread, and more than once."""
        self._wrapped.stop()

    def __enter__(self) -> Self:
        self._running = self._loop_thread.start(self._wrapped.run())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._running is not None:
            self._running.result()


class SyncConsumer(SyncRunner[Consumer]):
    """`Consumer` for threads."""


class SyncWorker(SyncRunner[Worker]):
    """`Worker` for threads."""


class SyncTasks(SyncWrapper[Tasks]):
    """`Tasks` for threads."""

    enqueue = blocking(Tasks.enqueue)
    enqueue_many = blocking(Tasks.enqueue_many)
    dequeue = blocking(Tasks.dequeue)
    ack = blocking(Tasks.ack)
    nack = blocking(Tasks.nack)
    heartbeat = blocking(Tasks.heartbeat)
    give_back = blocking(Tasks.give_back)
    ack_many = blocking(Tasks.ack_many)
    nack_many = blocking(Tasks.nack_many)
    heartbeat_many = blocking(Tasks.heartbeat_many)
    give_back_many = blocking(Tasks.give_back_many)
    get = blocking(Tasks.get)
    queues = blocking(Tasks.queues)
    queue = blocking(Tasks.queue)
    delete_queue = blocking(Tasks.delete_queue)
    set_limit = blocking(Tasks.set_limit)
    pause = blocking(Tasks.pause)
    resume = blocking(Tasks.resume)
    limits = blocking(Tasks.limits)
    set_limits = blocking(Tasks.set_limits)
    dead_letters = blocking(Tasks.dead_letters)
    redrive = blocking(Tasks.redrive)
    delete_dead = blocking(Tasks.delete_dead)
    worker = wrapping(Tasks.worker, SyncWorker)


class SyncOperations(SyncWrapper[Operations]):
    """`Operations` for threads."""

    get = blocking(Operations.get)
    list = blocking(Operations.list)
    stats = blocking(Operations.stats)
    retry = blocking(Operations.retry)
    delete = blocking(Operations.delete)
    wait = blocking(Operations.wait)


class SyncClient(SyncClosable[Client]):
    """`Client` for threads; any number of them may share it. Close it, or use `with`."""

    def __init__(
        self, urls: str | Sequence[str], settings: ClientSettings | None = None, *, token: str | None = None
    ) -> None:
        loop_thread = EventLoopThread()
        try:
            super().__init__(loop_thread, Client(urls, settings, token=token))
        except BaseException:
            loop_thread.close()
            raise
        self.tasks = SyncTasks(loop_thread, self._wrapped.tasks)
        """Run queues: enqueue, dequeue, workers, limits."""

    push = blocking(Client.push)
    push_many = blocking(Client.push_many)
    pop = blocking(Client.pop)
    ack = blocking(Client.ack)
    nack = blocking(Client.nack)
    retry = blocking(Client.retry)
    dead_letter = blocking(Client.dead_letter)
    ack_many = blocking(Client.ack_many)
    nack_many = blocking(Client.nack_many)
    retry_many = blocking(Client.retry_many)
    dead_letter_many = blocking(Client.dead_letter_many)
    extend = blocking(Client.extend)
    configure = blocking(Client.configure)
    options_of = blocking(Client.options_of)

    @property
    def operations(self) -> SyncOperations:
        """Deferred operations."""
        return SyncOperations(self._loop_thread, self._wrapped.operations)

    buffered = wrapping(Client.buffered, SyncBuffer)
    transaction = wrapping(Client.transaction, SyncTransaction)
    consume = wrapping(Client.consume, SyncConsumer)

    def close(self) -> None:
        """Stop consumers and workers, push buffered messages, close connections, end the thread.

        May be called twice. Raises FlushFailed with the messages that could not be pushed.
        """
        if self._loop_thread.is_closed:
            return
        try:
            self._loop_thread.wait(self._wrapped.close())
        finally:
            self._loop_thread.close()


@contextmanager
def _stop_on_signals(runner: SyncRunner[Any], signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Stop the runner when one of the signals arrives within the block."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        runner.stop()

    previous_handlers = {number: signal.signal(number, on_signal) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
