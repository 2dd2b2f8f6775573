"""dramatiq on Redis, with as many threads as serve it best; it has no asynchronous face and no batches.

Below its actors and their middleware, which would only add to its time: a task is acked as soon as it is
fetched. A consumer fetches ahead, as its workers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from bench.task_queues.contestant import TaskQueue

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
        left = iter(self._messages)
        await _in_threads(lambda: self._enqueue(left))

    def _enqueue(self, left: Iterator[Message[object]]) -> None:
        assert self._broker is not None
        for message in left:
            self._broker.enqueue(message)

    async def drain(self) -> None:
        shares = iter(self._shares())
        await _in_threads(lambda: self._consume(next(shares)))

    def _shares(self) -> list[int]:
        whole, rest = divmod(len(self._messages), THREADS)
        return [whole + (number < rest) for number in range(THREADS)]

    def _consume(self, share: int) -> None:
        """Acks `share` tasks. It takes no more ahead than it will ack, so that nobody waits for another's."""
        assert self._broker is not None
        while share:
            consumer = self._broker.consume(self._queue, prefetch=min(PREFETCH, share), timeout=100)
            for _ in range(min(PREFETCH, share)):
                message = next(consumer)
                if message is None:
                    break
                consumer.ack(message)
                share -= 1

    async def held(self) -> int:
        assert self._broker is not None
        return int(self._broker.do_qsize(self._queue))

    async def close(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker.client.connection_pool.disconnect()


async def _in_threads(work: object) -> None:
    assert callable(work)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(THREADS) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, work) for _ in range(THREADS)))
