"""The demo's run queues: one that reaches its concurrency limit, and a fast one with some failing tasks."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.client import Client, ClientError, ClientSettings, NewTask, Task

TICK_S = 1.0
CLIENT_SETTINGS = ClientSettings(retry_attempts=3, max_retry_delay_s=1.0)
VISIBILITY_S = 15.0


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """The load of one run queue: tasks per second, duration of a task, and the concurrency limit."""

    queue: str
    rate: Callable[[float], float]
    work_s: float
    limit: int | None
    failure_rate: float = 0.0
    worker_concurrency: int = 8


TASK_LOADS = (
    TaskLoad("renders", lambda elapsed_s: 4.0 if elapsed_s % 120 < 30 else 0.8, work_s=1.5, limit=3),
    TaskLoad("previews", lambda elapsed_s: 3.0, work_s=0.1, limit=None, failure_rate=0.03),
)


async def run(url: str, tls: ssl.SSLContext, log_message: Callable[[str], None]) -> None:
    """Enqueue and process tasks until cancelled. Prints problems and continues."""
    logging.getLogger("penstock.client").setLevel(logging.ERROR)  # handlers fail on purpose
    async with Client(url, replace(CLIENT_SETTINGS, tls=tls)) as client, asyncio.TaskGroup() as group:
        for load in TASK_LOADS:
            group.create_task(_produce(client, load, log_message))
            worker = client.tasks.worker(
                load.queue,
                _build_handler(load),
                concurrency=load.worker_concurrency,
                visibility_s=VISIBILITY_S,
                name="demo",
            )
            group.create_task(worker.run())


def _build_handler(load: TaskLoad) -> Callable[[Task], object]:
    async def handle(task: Task) -> None:
        await asyncio.sleep(load.work_s * random.uniform(0.5, 1.5))
        if random.random() < load.failure_rate:
            raise RuntimeError("Simulated failure of the demo")

    return handle


async def _produce(client: Client, load: TaskLoad, log_message: Callable[[str], None]) -> None:
    started_at = time.monotonic()
    has_set_limit = False
    while True:
        await asyncio.sleep(TICK_S * random.uniform(0.8, 1.2))
        count = int(load.rate(time.monotonic() - started_at) * TICK_S + random.random())
        tasks = [NewTask({"number": random.randrange(1_000_000)}, random.randrange(3)) for _ in range(count)]
        try:
            if not has_set_limit:
                await client.tasks.set_limit(load.queue, load.limit)
                has_set_limit = True
            await client.tasks.enqueue_many(load.queue, tasks)
        except ClientError as error:
            log_message(f"{load.queue}: {error}")
