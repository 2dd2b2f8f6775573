"""Producers and workers of run queues with concurrency limits."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx

from chaos.calls import RecordedClient
from chaos.message_load import LoadState, parse_nothing

LIMITS = {"chaos.tasks": 3, "chaos.single": 1}
VISIBILITY_MS = 2_000
DRAIN_VISIBILITY_MS = 30_000
"""At the end of a run, so that a busy machine drains the queues too."""
WORKERS_PER_QUEUE = 5
MAX_ATTEMPTS = 4
TASK_ATTEMPTS = {"maxAttempts": MAX_ATTEMPTS}


def parse_enqueue(response: httpx.Response) -> dict[str, Any]:
    tasks = response.json()["tasks"]
    return {"ids": [task["id"] for task in tasks], "statuses": [task["status"] for task in tasks]}


def parse_dequeue(response: httpx.Response) -> dict[str, Any]:
    names = ("id", "token", "payload", "attempt")
    return {"tasks": [{name: task[name] for name in names} for task in response.json()["tasks"]]}


def parse_task_state(response: httpx.Response) -> dict[str, Any]:
    return {"state": response.json()["state"]}


class TaskProducer:
    """Enqueues tasks with an idempotency key, and repeats an enqueue until it is answered."""

    def __init__(self, client: RecordedClient, state: LoadState, queue: str) -> None:
        self._client, self._state, self._queue = client, state, queue

    async def run(self, source: random.Random) -> None:
        number = 0
        path = f"/api/v1/run-queues/{self._queue}/tasks"
        while self._state.producing:
            await asyncio.sleep(source.uniform(0.4, 1.2))
            keys = [f"{self._client.name}-{number + n}" for n in range(source.randint(1, 4))]
            number += len(keys)
            tasks = [{"payload": key, "idempotencyKey": key, **TASK_ATTEMPTS} for key in keys]
            args = {"queue": self._queue, "keys": keys}
            while True:
                call = await self._client.call(
                    "enqueue", args, "POST", path, parse_enqueue, json={"tasks": tasks}
                )
                if call.ok:
                    break
                await asyncio.sleep(0.2)


class TaskWorker:
    """Dequeues tasks and acks, nacks, gives back, heartbeats or abandons them."""

    def __init__(self, client: RecordedClient, state: LoadState, queue: str, source: random.Random) -> None:
        self._client, self._state, self._queue, self._source = client, state, queue, source

    async def run(self) -> None:
        path = f"/api/v1/run-queues/{self._queue}/dequeue"
        while self._state.consuming:
            visibility_ms = VISIBILITY_MS if self._state.misbehaving else DRAIN_VISIBILITY_MS
            body = {"limit": self._source.choice((1, 1, 2)), "visibilityMs": visibility_ms, "waitMs": 1000}
            args = {"queue": self._queue, "visibility_s": visibility_ms / 1000}
            call = await self._client.call("dequeue", args, "POST", path, parse_dequeue, json=body)
            if not call.ok:
                await asyncio.sleep(0.2)
                continue
            for task in call.result["tasks"]:
                await self._process(task)

    async def _process(self, task: dict[str, Any]) -> None:
        choice = self._source.random() if self._state.misbehaving else 1.0
        if choice < 0.04:
            return  # this worker dies; the task returns when its deadline passes
        if choice < 0.08:
            await asyncio.sleep(VISIBILITY_MS / 1000 + 0.5)
        elif choice < 0.2:
            await self._send("heartbeat", task, visibilityMs=VISIBILITY_MS)
            await asyncio.sleep(self._source.uniform(0.1, 1.0))
        elif choice < 0.7:
            await asyncio.sleep(self._source.uniform(0.0, 0.2))
        if self._state.misbehaving and self._source.random() < 0.06:
            await self._send("nack", task, delayMs=100, retry=self._source.random() < 0.8)
        elif self._state.misbehaving and self._source.random() < 0.03:
            await self._send("give-back", task)
        else:
            await self._send("ack", task)

    async def _send(self, verb: str, task: dict[str, Any], **body: Any) -> None:
        args = {"queue": self._queue, "id": task["id"], "token": task["token"]} | body
        path = f"/api/v1/tasks/{task['id']}/{verb}"
        parse = parse_nothing if verb == "heartbeat" else parse_task_state
        for _ in range(3):
            call = await self._client.call(
                f"task {verb}", args, "POST", path, parse, json={"token": task["token"]} | body
            )
            if call.outcome != "unknown":
                return
            await asyncio.sleep(0.1)
