"""taskiq on Redis Streams, the broker of its own that acknowledges.

Below its decorators and its executor, which would only add to its time: messages are ready bytes, and a task
is acked as soon as it is fetched. Messages are fetched 100 at a time, which is its default, and acked as many
at once as its workers run.
"""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from taskiq import AckableMessage
from taskiq.message import BrokerMessage
from taskiq_redis import RedisStreamBroker

from bench.task_queues.contestant import IN_FLIGHT, TaskQueue, at_once

CONNECTIONS = 20
"""More are slower: they are taken from a pool for every call."""


class TaskiqStreams(TaskQueue):
    name = "taskiq"

    def __init__(self, url: str) -> None:
        self._url = url
        self._broker: RedisStreamBroker | None = None
        self._messages: list[BrokerMessage] = []

    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        self._broker = RedisStreamBroker(
            self._url,
            queue_name=f"taskiq-{round_number}",
            consumer_id="0",
            max_connection_pool_size=CONNECTIONS,
        )
        await self._broker.startup()
        self._messages = [
            BrokerMessage(task_id=f"{round_number}-{n}", task_name="task", message=payload, labels={})
            for n, payload in enumerate(payloads)
        ]

    async def fill(self) -> None:
        assert self._broker is not None
        await at_once(self._messages, self._broker.kick)

    async def drain(self) -> None:
        assert self._broker is not None
        left = len(self._messages)
        places = asyncio.Semaphore(IN_FLIGHT)

        async def ack(message: AckableMessage) -> None:
            await message.ack()
            places.release()

        tasks = self._broker.listen()
        async with asyncio.TaskGroup() as group:
            async for message in tasks:
                await places.acquire()
                group.create_task(ack(message))
                left -= 1
                if not left:
                    break
        await tasks.aclose()

    async def held(self) -> int:
        assert self._broker is not None
        async with Redis.from_url(self._url, decode_responses=True) as redis:
            [group] = await redis.xinfo_groups(self._broker.queue_name)
        return int(group["lag"]) + int(group["pending"])

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.shutdown()
