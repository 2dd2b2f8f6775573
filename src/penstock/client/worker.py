"""Workers of run queues: dequeue, call the handler, settle, again; and how they stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.client.ack import Held, Settling
from penstock.client.delivery import cancelled, is_async
from penstock.client.errors import ApiError, ClientError, text_of
from penstock.client.http.connections import Parting
from penstock.client.http.transport import delay_before
from penstock.client.lifecycle import Runner
from penstock.client.settings import ClientSettings
from penstock.client.stopping import leave, passes
from penstock.client.task_types import Task
from penstock.client.tasks import Tasks

logger = logging.getLogger("penstock.client")

TaskHandler = Callable[[Task], object]
"""Called with each task. A plain function, or one that returns something to await."""

LostCallback = Callable[[Task], None]

RELEASE_S = 10.0
"""How long settling may take when a worker has no time left."""


class Worker(Runner):
    """Calls a handler with tasks until it is stopped.

    - Up to `concurrency` handlers run at once, here; the queue's and the environment's limits hold for all
      workers together, and the broker sees to them.
    - A handler that is no coroutine function runs in a thread of its own.
    - Heartbeats hold a task for as long as its handler takes, three in every `visibility_s`. If it is lost
      all the same (the broker was away for longer), that is logged and told to `on_lost`, the handler is
      cancelled, and another worker has the task.
    - While brokers or their Redis are away it waits and tries again, for as long as it takes.

    `await worker` (or `run()`) returns after `stop()`: handlers that run get `grace_s` to end, then they are
    cancelled, and their tasks are given back without counting an attempt. Cancelling `run()` does the same
    with no grace. A thread cannot be cancelled: its task comes again when its time is up. Whatever happens,
    a task that was not acked comes again.
    """

    def __init__(
        self,
        tasks: Tasks,
        queue: str | None,
        handler: TaskHandler,
        *,
        siblings: set[Worker],
        settings: ClientSettings,
        concurrency: int,
        visibility_s: float,
        wait_s: float,
        grace_s: float,
        name: str,
        on_lost: LostCallback | None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        super().__init__(siblings)
        self._tasks = tasks
        self._queue = queue
        self._handler = handler
        self._settings = settings
        self._concurrency = concurrency
        self._visibility_s = visibility_s
        self._wait_s = wait_s
        self._grace_s = grace_s
        self._name = name
        self._on_lost = on_lost
        self._held: dict[int, Held] = {}
        self._settling = Settling(tasks, self._lose)
        self._room = asyncio.Event()
        self._waiting: tuple[asyncio.Task[list[Task]], Parting] | None = None
        self._threads: ThreadPoolExecutor | None = None

    async def _run(self) -> None:
        self._threads = ThreadPoolExecutor(self._concurrency, "penstock-worker")
        fetching = asyncio.create_task(self._fetch())
        beating = asyncio.create_task(self._beat())
        try:
            await asyncio.wait({fetching})
            self._stop_asked = True
            if handlers := [held.running for held in self._held.values() if held.running]:
                await asyncio.wait(handlers, timeout=self._grace_s)
        finally:
            self._stop_asked = True
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            await self._end_handlers()
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            self._threads.shutdown(wait=False)
        if not fetching.cancelled() and (error := fetching.exception()) is not None:
            raise error

    async def _end_handlers(self) -> None:
        handlers = [held.running for held in self._held.values() if held.running]
        for handler in handlers:
            handler.cancel()
        if handlers:
            _, late = await asyncio.wait(handlers, timeout=RELEASE_S)
            for handler in late:
                handler.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)

    def _begin_to_stop(self) -> None:
        self._room.set()
        if self._waiting is not None:
            leave(*self._waiting)

    async def _fetch(self) -> None:
        while not self._stop_asked:
            free = self._concurrency - len(self._held)
            if not free:
                self._room.clear()
                await self._room.wait()
                continue
            for task in await self._next(free):
                held = self._held[id(task)] = Held(task)
                held.running = asyncio.create_task(self._work(held))

    async def _next(self, limit: int) -> list[Task]:
        """The next tasks; none if there were none in time, or if it is time to stop."""
        parting = Parting()
        call = asyncio.create_task(self._dequeue(limit, parting))
        self._waiting = (call, parting)
        try:
            await asyncio.wait({call})
            return [] if call.cancelled() else call.result()
        except asyncio.CancelledError:
            leave(call, parting)
            await asyncio.wait({call})
            if not call.cancelled() and call.exception() is None:
                for task in call.result():
                    await self._settling.settle(Held(task), "give-back")
            raise
        finally:
            self._waiting = None

    async def _dequeue(self, limit: int, parting: Parting) -> list[Task]:
        attempt = 1
        while True:
            try:
                return await self._tasks.take(
                    self._queue, limit, self._visibility_s, self._wait_s, self._name, parting
                )
            except ClientError as error:
                if parting.last:
                    return []
                if not passes(error):
                    raise
                attempt += 1
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                delay = delay_before(attempt, self._settings, asked_s, random.random())
                logger.warning("nothing can be dequeued: %s; again in %.1f s", error, delay)
                await asyncio.sleep(delay)

    async def _work(self, held: Held) -> None:
        task = held.task
        try:
            await self._call(held)
        except asyncio.CancelledError:
            # Told to end: by a stop without time left, or because somebody else has the task.
            if not held.lost and not held.left:
                await self._settling.settle(held, "give-back")
        except Exception as error:
            words = text_of(error)
            logger.warning("task %s of %s failed: %s", task.id, task.queue, words, exc_info=error)
            await self._settling.settle(held, "nack", words)
        else:
            await self._settling.settle(held, "ack")
        finally:
            del self._held[id(task)]
            self._room.set()

    async def _call(self, held: Held) -> None:
        try:
            if is_async(self._handler):
                result = self._handler(held.task)
            else:
                result = await self._in_thread(held)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            if cancelled():
                raise
            raise RuntimeError("the handler was cancelled from inside") from None

    async def _in_thread(self, held: Held) -> object:
        assert self._threads is not None
        running = self._threads.submit(self._handler, held.task)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancel() and not running.done():
                held.left = True
                logger.warning(
                    "a handler did not end in time: its thread goes on, and task %s will come again",
                    held.task.id,
                )
            raise

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._visibility_s / 3)
            beaten = [held for held in self._held.values() if not held.settling and not held.lost]
            try:
                results = await self._tasks.heartbeat_many([h.task for h in beaten], self._visibility_s)
            except ClientError as error:
                logger.warning("%d tasks could not be held for longer: %s", len(beaten), error)
                continue
            for held, result in zip(beaten, results, strict=True):
                if not result.success and not held.settling and id(held.task) in self._held:
                    self._lose(held)

    def _lose(self, held: Held) -> None:
        """Somebody else has the task, or will: nothing that is done here counts any more."""
        if held.lost:
            return
        held.lost = True
        logger.warning("task %s of %s was lost: it comes again", held.task.id, held.task.queue)
        if held.running is not None and not held.settling:
            held.running.cancel()
        if self._on_lost is not None:
            try:
                self._on_lost(held.task)
            except Exception:
                logger.exception("on_lost failed")
