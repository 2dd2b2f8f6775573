"""The same client for plain threads.

Nothing is implemented twice: a thread of its own runs an event loop, and every method here hands the call of
the asynchronous one to it and waits. Signatures and documentation are taken over with the methods.
"""

from __future__ import annotations

import asyncio
import signal
import threading
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
F = TypeVar("F", bound="Face[Any]")
W = TypeVar("W", Consumer, Worker)


class Portal:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the client's own event loop: use the asynchronous client here")
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """The result of the work. Whoever is interrupted while waiting takes it back."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Face(Generic[A]):
    """A synchronous face of something asynchronous."""

    def __init__(self, portal: Portal, behind: A) -> None:
        self._portal = portal
        self._behind = behind


def waited(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Face[A], P], R]:
    """The method, called on the client's event loop and waited for."""

    @wraps(method)
    def call(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return face._portal.wait(method(face._behind, *args, **kwargs))

    return call


def faced(
    method: Callable[Concatenate[B, P], A], kind: Callable[[Portal, A], F]
) -> Callable[Concatenate[Face[B], P], F]:
    """The method, whose result gets a synchronous face too."""

    @wraps(method)
    def call(face: Face[B], /, *args: P.args, **kwargs: P.kwargs) -> F:
        async def make() -> A:
            return method(face._behind, *args, **kwargs)

        return kind(face._portal, face._portal.wait(make()))

    return call


def chained(
    method: Callable[Concatenate[Transaction, P], Transaction],
) -> Callable[Concatenate[SyncTransaction, P], SyncTransaction]:
    """The method, which returns what it was called on. It sends nothing, so nothing is waited for."""

    @wraps(method)
    def call(face: SyncTransaction, /, *args: P.args, **kwargs: P.kwargs) -> SyncTransaction:
        method(face._behind, *args, **kwargs)
        return face

    return call


class SyncBuffer(Face[Buffer]):
    """`Buffer` for plain threads, of which several may push at once."""

    push = waited(Buffer.push)
    flush = waited(Buffer.flush)
    close = waited(Buffer.close)

    def __len__(self) -> int:
        return len(self._behind)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncTransaction(Face[Transaction]):
    """`Transaction` for plain threads; `with` commits at its end."""

    push = chained(Transaction.push)
    ack = chained(Transaction.ack)
    nack = chained(Transaction.nack)
    retry = chained(Transaction.retry)
    dead_letter = chained(Transaction.dead_letter)
    commit = waited(Transaction.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.wait(self._behind.__aexit__(kind, error, trace))


class SyncRunner(Face[W]):
    """What runs until it is stopped: `run()` blocks, `with` runs it in the background."""

    _running: Future[None] | None = None

    def run(self, *, stop_on: Iterable[signal.Signals] = ()) -> None:
        """Run until `stop()`, or until one of the signals arrives (only in the main thread)."""
        with _told_by(self, stop_on):
            future = self._portal.start(self._behind.run())
            try:
                future.result()
            except KeyboardInterrupt:
                self.stop()
                future.result()
                raise

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop: a handler that takes long may ask, and end early by raising."""
        return self._behind.stopping

    def stop(self) -> None:
        """Take no more work and end in good order. Callable from any thread, and more than once."""
        self._behind.stop()

    def __enter__(self) -> Self:
        self._running = self._portal.start(self._behind.run())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._running is not None:
            self._running.result()


class SyncConsumer(SyncRunner[Consumer]):
    """`Consumer` for plain threads."""


class SyncWorker(SyncRunner[Worker]):
    """`Worker` for plain threads."""


class SyncTasks(Face[Tasks]):
    """`Tasks` for plain threads."""

    enqueue = waited(Tasks.enqueue)
    enqueue_many = waited(Tasks.enqueue_many)
    dequeue = waited(Tasks.dequeue)
    ack = waited(Tasks.ack)
    nack = waited(Tasks.nack)
    heartbeat = waited(Tasks.heartbeat)
    give_back = waited(Tasks.give_back)
    ack_many = waited(Tasks.ack_many)
    nack_many = waited(Tasks.nack_many)
    heartbeat_many = waited(Tasks.heartbeat_many)
    give_back_many = waited(Tasks.give_back_many)
    get = waited(Tasks.get)
    queues = waited(Tasks.queues)
    queue = waited(Tasks.queue)
    delete_queue = waited(Tasks.delete_queue)
    set_limit = waited(Tasks.set_limit)
    pause = waited(Tasks.pause)
    resume = waited(Tasks.resume)
    limits = waited(Tasks.limits)
    set_limits = waited(Tasks.set_limits)
    dead_letters = waited(Tasks.dead_letters)
    redrive = waited(Tasks.redrive)
    delete_dead = waited(Tasks.delete_dead)
    worker = faced(Tasks.worker, SyncWorker)


class SyncOperations(Face[Operations]):
    """`Operations` for plain threads."""

    get = waited(Operations.get)
    list = waited(Operations.list)
    stats = waited(Operations.stats)
    retry = waited(Operations.retry)
    delete = waited(Operations.delete)
    wait = waited(Operations.wait)


class SyncClient(Face[Client]):
    """`Client` for plain threads, of which any number may use it at once. Close it, or use `with`."""

    def __init__(self, urls: str | Sequence[str], settings: ClientSettings | None = None) -> None:
        portal = Portal()
        try:
            super().__init__(portal, Client(urls, settings))
        except BaseException:
            portal.close()
            raise
        self.tasks = SyncTasks(portal, self._behind.tasks)
        """Run queues: enqueue, dequeue, workers, limits."""

    push = waited(Client.push)
    push_many = waited(Client.push_many)
    pop = waited(Client.pop)
    ack = waited(Client.ack)
    nack = waited(Client.nack)
    retry = waited(Client.retry)
    dead_letter = waited(Client.dead_letter)
    ack_many = waited(Client.ack_many)
    nack_many = waited(Client.nack_many)
    retry_many = waited(Client.retry_many)
    dead_letter_many = waited(Client.dead_letter_many)
    extend = waited(Client.extend)
    configure = waited(Client.configure)
    options_of = waited(Client.options_of)

    @property
    def operations(self) -> SyncOperations:
        """What the broker accepted to do later."""
        return SyncOperations(self._portal, self._behind.operations)

    buffered = faced(Client.buffered, SyncBuffer)
    transaction = faced(Client.transaction, SyncTransaction)
    consume = faced(Client.consume, SyncConsumer)

    def close(self) -> None:
        """Stop consumers, push what is buffered, close connections, end the thread. May be called twice.

        Raises FlushFailed with what could not be pushed.
        """
        if self._portal.closed:
            return
        try:
            self._portal.wait(self._behind.close())
        finally:
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _told_by(runner: SyncRunner[Any], signals: Iterable[signal.Signals]) -> Iterator[None]:
    """While this lasts, these signals stop it."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        runner.stop()

    before = {number: signal.signal(number, on_signal) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
