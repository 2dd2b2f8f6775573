"""How long Redis works on one script call, with metrics emitted inside it and without, as Redis counts it.

The median of the calls is taken: on a machine with other work a few of them are interrupted, and their mean
tells of that work.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask

COMMANDS = ("enqueue", "dequeue", "ack")


async def script_times(
    url: str, name: str, payloads: list[bytes], *, metrics_enabled: bool, size: int
) -> tuple[float, dict[str, float]]:
    """Cycles per second, and per command the median and mean microseconds of a script call of `size` tasks.

    One call after the other and nothing beside them: what merges concurrent calls has nothing to merge.
    """
    queues = RunQueues(url, metrics_enabled=metrics_enabled)
    batches = [payloads[start : start + size] for start in range(0, len(payloads), size)]
    queue = f"script-{name}"
    taken: list[Any] = []

    async def enqueue(batch: list[bytes]) -> None:
        await queues.enqueue(DEFAULT_SCOPE, queue, [NewTask(payload) for payload in batch])

    async def dequeue(batch: list[bytes]) -> None:
        taken.append(await queues.dequeue(DEFAULT_SCOPE, queue, limit=len(batch)))

    async def ack(batch: list[bytes]) -> None:
        await queues.ack_many(DEFAULT_SCOPE, [task.lease for task in taken.pop()])

    doing: dict[str, Callable[[list[bytes]], Awaitable[None]]] = dict(
        zip(COMMANDS, (enqueue, dequeue, ack), strict=True)
    )
    found: dict[str, float] = {}
    started = time.perf_counter()
    try:
        async with Redis.from_url(url, decode_responses=True) as redis:
            for command, do in doing.items():
                await redis.config_set("latency-tracking", "yes")
                await redis.config_resetstat()
                for batch in batches:
                    await do(batch)
                found[f"{command}_us"], found[f"{command}_mean_us"] = await _script_us(redis)
    finally:
        await queues.stop()
    took_s = time.perf_counter() - started
    if any(taken):
        raise RuntimeError(f"{len(taken)} dequeues were not acked")
    found["script_us"] = sum(found[f"{command}_us"] for command in COMMANDS)
    return len(payloads) / took_s, found


async def _script_us(redis: Redis) -> tuple[float, float]:
    """Median and mean since the last reset."""
    calls = (await redis.info("commandstats"))["cmdstat_evalsha"]
    percentiles = (await redis.info("latencystats"))["latency_percentiles_usec_evalsha"]
    return float(percentiles["p50"]), float(calls["usec_per_call"])
