"""The demo's run queues: one that meets its limit now and then, and one that is quick and sometimes fails."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.client import Client, ClientError, ClientSettings, NewTask, Task

TICK_S = 1.0
SETTINGS = ClientSettings(retry_attempts=3, max_retry_delay_s=1.0)
VISIBILITY_S = 15.0


@dataclass(frozen=True, slots=True)
class Work:
    """How one run queue behaves: tasks per second, how long one takes, how many may run at once."""

    queue: str
    rate: Callable[[float], float]
    work_s: float
    limit: int | None
    failure_rate: float = 0.0
    concurrency: int = 8


WORK = (
    Work("renders", lambda elapsed_s: 4.0 if elapsed_s % 120 < 30 else 0.8, work_s=1.5, limit=3),
    Work("previews", lambda _: 3.0, work_s=0.1, limit=None, failure_rate=0.03),
)


async def run(url: str, tell: Callable[[str], None]) -> None:
    """Enqueue and work until it is cancelled. Trouble is told, and waited out."""
    logging.getLogger("penstock.client").setLevel(logging.ERROR)  # handlers fail on purpose
    async with Client(url, SETTINGS) as client, asyncio.TaskGroup() as group:
        for work in WORK:
            group.create_task(_produce(client, work, tell))
            handler = _handler(work)
            worker = client.tasks.worker(
                work.queue, handler, concurrency=work.concurrency, visibility_s=VISIBILITY_S, name="demo"
            )
            group.create_task(worker.run())


def _handler(work: Work) -> Callable[[Task], object]:
    async def handle(task: Task) -> None:
        await asyncio.sleep(work.work_s * random.uniform(0.5, 1.5))
        if random.random() < work.failure_rate:
            raise RuntimeError("the demo fails now and then")

    return handle


async def _produce(client: Client, work: Work, tell: Callable[[str], None]) -> None:
    started = time.monotonic()
    limited = False
    while True:
        await asyncio.sleep(TICK_S * random.uniform(0.8, 1.2))
        due = int(work.rate(time.monotonic() - started) * TICK_S + random.random())
        tasks = [NewTask({"number": random.randrange(1_000_000)}, random.randrange(3)) for _ in range(due)]
        try:
            if not limited:
                await client.tasks.set_limit(work.queue, work.limit)
                limited = True
            await client.tasks.enqueue_many(work.queue, tasks)
        except ClientError as error:
            tell(f"{work.queue}: {error}")
