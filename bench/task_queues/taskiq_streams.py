"""taskiq on Redis Streams, which is its own broker with acks.

The benchmark works below taskiq's decorators and executor, which would only add to its time: messages are
prepared as bytes, and a task is acked as soon as it is fetched. Messages are fetched 100 at a time, which is
taskiq's default, and as many acks are in flight as its workers run tasks.
"""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from taskiq import AckableMessage
from taskiq.message import BrokerMessage
from taskiq_redis import RedisStreamBroker

from bench.task_queues.task_queue import IN_FLIGHT, TaskQueue, run_concurrently

CONNECTIONS = 20
"""More connections are slower: every call acquires one from a pool."""


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
        await run_concurrently(self._messages, self._broker.kick)

    async def drain(self) -> None:
        assert self._broker is not None
        remaining = len(self._messages)
        ack_slots = asyncio.Semaphore(IN_FLIGHT)

        async def ack(message: AckableMessage) -> None:
            await message.ack()
            ack_slots.release()

        tasks = self._broker.listen()
        async with asyncio.TaskGroup() as group:
            async for message in tasks:
                await ack_slots.acquire()
                group.create_task(ack(message))
                remaining -= 1
                if not remaining:
                    break
        await tasks.aclose()

    async def count_tasks(self) -> int:
        assert self._broker is not None
        async with Redis.from_url(self._url, decode_responses=True) as redis:
            [group] = await redis.xinfo_groups(self._broker.queue_name)
        return int(group["lag"]) + int(group["pending"])

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.shutdown()
