"""Consumers of durable queues and workers of a run queue. Some batches fail, die or are abandoned."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

import msgspec
from bench.contestants.penstock import decode_messages
from bench.http_load import get, post
from bench.open_loop_load import ConnectionPool, RequestTimeout, retry_after_s

WAIT_MS = 1_000
TIMEOUT_S = 30.0
POP_BATCH = 100
POP_PARTITIONS = 10
DEQUEUE_LIMIT = 10
VISIBILITY_MS = 10_000
RETRY_AFTER_S = 0.5
"""Pause after a refused or unanswered request that names no time to retry."""

ABANDONED, FAILED, DEAD, RETURNED = 0.003, 0.015, 0.003, 0.005
"""Shares of the batches of which nothing is acked, or one message fails, is given up or is given back."""


class _Ack(msgspec.Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None
    status: str


class _Task(msgspec.Struct):
    id: str
    token: int


class _Tasks(msgspec.Struct):
    tasks: list[_Task]


_encode = msgspec.json.Encoder().encode
_decode_tasks = msgspec.json.Decoder(_Tasks).decode


class Consumer(ABC):
    """One consumer on a connection of its own. `counts` has what it finished and what went wrong."""

    def __init__(self, port: int, counts: Counter[str], source: random.Random) -> None:
        self._pool = ConnectionPool(port, 1, TIMEOUT_S)
        self._counts = counts
        self._source = source

    async def run(self) -> None:
        """Take and finish batches until the task is cancelled."""
        try:
            while True:
                await self._take_batch()
        finally:
            self._pool.close()

    @abstractmethod
    async def _take_batch(self) -> None:
        """Take a batch, waiting a while for one, and finish it."""

    async def _send(self, request: bytes) -> bytes | None:
        """Return the body of a response with status 200, or None. Raises RuntimeError for an error."""
        try:
            status, response = await self._pool.send(request)
        except RequestTimeout:
            self._counts["timed out"] += 1
            await asyncio.sleep(RETRY_AFTER_S)
            return None
        if status == 200:
            return response.partition(b"\r\n\r\n")[2]
        if status in (429, 503):
            self._counts["refused"] += 1
            await asyncio.sleep(retry_after_s(response) or RETRY_AFTER_S)
        elif status not in (202, 204):
            raise RuntimeError(f"The broker responded with {status}: {response[-300:]!r}")
        return None

    def _choose(self, names: Sequence[str], shares: Sequence[float], usual: str) -> str:
        return self._source.choices((*names, usual), (*shares, 1 - sum(shares)))[0]


class MessageConsumer(Consumer):
    """A consumer of one group of one durable queue."""

    def __init__(
        self, port: int, counts: Counter[str], source: random.Random, queue: str, group: str
    ) -> None:
        super().__init__(port, counts, source)
        self._pop = get(
            f"/api/v1/pop/queue/{queue}?consumerGroup={group}&batch={POP_BATCH}&partitions={POP_PARTITIONS}"
            f"&wait=true&timeout={WAIT_MS}"
        )
        self._name = f"{queue} {group}"

    async def _take_batch(self) -> None:
        body = await self._send(self._pop)
        if body is None:
            return
        messages = decode_messages(body)
        fate = self._choose(("abandoned", "failed", "dlq", "retry"), (ABANDONED, FAILED, DEAD, RETURNED), "")
        if fate:
            self._counts[f"messages {fate}"] += 1
        if fate == "abandoned":
            return
        acks = [
            _Ack(
                message.transactionId,
                message.partitionId,
                message.leaseId,
                "completed" if number or not fate else fate,
            )
            for number, message in enumerate(messages)
        ]
        body = await self._send(post("/api/v1/ack/batch", _encode({"acknowledgments": acks})))
        self._counts[self._name] += body.count(b'"success":true') if body else 0


class TaskWorker(Consumer):
    """A worker of one run queue."""

    def __init__(self, port: int, counts: Counter[str], source: random.Random, queue: str) -> None:
        super().__init__(port, counts, source)
        body = {"limit": DEQUEUE_LIMIT, "visibilityMs": VISIBILITY_MS, "waitMs": WAIT_MS}
        self._dequeue = post(f"/api/v1/run-queues/{queue}/dequeue", _encode(body))
        self._name = queue

    async def _take_batch(self) -> None:
        body = await self._send(self._dequeue)
        tasks = _decode_tasks(body).tasks if body else []
        if not tasks:
            return
        fate = self._choose(("abandoned", "failed", "dead"), (ABANDONED, FAILED, DEAD), "")
        if fate:
            self._counts[f"tasks {fate}"] += 1
        if fate == "abandoned":
            return
        if fate:
            nacked = {"id": tasks[0].id, "token": tasks[0].token, "error": "no room left on shelf 7"}
            nacked |= {"delayMs": 200} if fate == "failed" else {"retry": False}
            await self._send(post("/api/v1/tasks/nack", _encode({"tasks": [nacked]})))
        if acked := tasks[1:] if fate else tasks:
            body = await self._send(post("/api/v1/tasks/ack", _encode({"tasks": acked})))
            self._counts[self._name] += body.count(b'"success":true') if body else 0
