"""dramatiq on Redis, with the number of threads that is fastest for it: it has no async API and no batches.

The benchmark works below dramatiq's actors and middleware, which would only add to its time, and acks a task
as soon as it is fetched. A consumer prefetches, as dramatiq's workers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from bench.task_queues.task_queue import TaskQueue

THREADS = 4
PREFETCH = 100


class DramatiqRedis(TaskQueue):
    name = "dramatiq"

    def __init__(self, url: str) -> None:
        self._url = url
        self._broker: RedisBroker | None = None
        self._queue = ""
        self._messages: list[Message[object]] = []

    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        self._broker = RedisBroker(url=self._url, middleware=[], namespace="dramatiq")
        self._queue = f"dramatiq-{round_number}"
        self._broker.declare_queue(self._queue)
        self._messages = [
            Message(
                queue_name=self._queue, actor_name="task", args=(payload.decode(),), kwargs={}, options={}
            )
            for payload in payloads
        ]

    async def fill(self) -> None:
        remaining = iter(self._messages)
        await _run_in_threads(lambda: self._enqueue(remaining))

    def _enqueue(self, remaining: Iterator[Message[object]]) -> None:
        assert self._broker is not None
        for message in remaining:
            self._broker.enqueue(message)

    async def drain(self) -> None:
        counts = iter(self._counts_per_thread())
        await _run_in_threads(lambda: self._consume(next(counts)))

    def _counts_per_thread(self) -> list[int]:
        quotient, remainder = divmod(len(self._messages), THREADS)
        return [quotient + (number < remainder) for number in range(THREADS)]

    def _consume(self, count: int) -> None:
        """Ack `count` tasks. Prefetch no more than that, so that no thread waits for another's tasks."""
        assert self._broker is not None
        while count:
            consumer = self._broker.consume(self._queue, prefetch=min(PREFETCH, count), timeout=100)
            for _ in range(min(PREFETCH, count)):
                message = next(consumer)
                if message is None:
                    break
                consumer.ack(message)
                count -= 1

    async def count_tasks(self) -> int:
        assert self._broker is not None
        return int(self._broker.do_qsize(self._queue))

    async def close(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker.client.connection_pool.disconnect()


async def _run_in_threads(work: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(THREADS) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, work) for _ in range(THREADS)))
