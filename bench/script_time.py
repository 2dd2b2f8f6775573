"""Measure how long Redis executes one script call, with and without metric events, by Redis's own statistics.

The median of the calls counts: on a machine with other load some calls are interrupted, and their mean shows
that load.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from redis.asyncio import Redis

from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, RunningTask

COMMANDS = ("enqueue", "dequeue", "ack")


async def measure_script_times(
    url: str, name: str, payloads: list[bytes], *, metrics_enabled: bool, batch_size: int
) -> tuple[float, dict[str, float]]:
    """Return cycles per second, and per command the median and mean microseconds of a script call.

    Each call has `batch_size` tasks. Calls run one after the other with no other load, so that the run queue
    has no concurrent calls to merge.
    """
    queues = RunQueues(url, metrics_enabled=metrics_enabled)
    batches = [payloads[start : start + batch_size] for start in range(0, len(payloads), batch_size)]
    queue = f"script-{name}"
    dequeued: list[Sequence[RunningTask]] = []

    async def enqueue(batch: list[bytes]) -> None:
        await queues.enqueue(DEFAULT_SCOPE, queue, [NewTask(payload) for payload in batch])

    async def dequeue(batch: list[bytes]) -> None:
        dequeued.append(await queues.dequeue(DEFAULT_SCOPE, queue, limit=len(batch)))

    async def ack(batch: list[bytes]) -> None:
        await queues.ack_many(DEFAULT_SCOPE, [task.lease for task in dequeued.pop()])

    calls: dict[str, Callable[[list[bytes]], Awaitable[None]]] = dict(
        zip(COMMANDS, (enqueue, dequeue, ack), strict=True)
    )
    times_us: dict[str, float] = {}
    started = time.perf_counter()
    try:
        async with Redis.from_url(url, decode_responses=True) as redis:
            for command, call in calls.items():
                await redis.config_set("latency-tracking", "yes")
                await redis.config_resetstat()
                for batch in batches:
                    await call(batch)
                times_us[f"{command}_us"], times_us[f"{command}_mean_us"] = await _read_script_us(redis)
    finally:
        await queues.stop()
    took_s = time.perf_counter() - started
    if any(dequeued):
        raise RuntimeError(f"{len(dequeued)} dequeued batches were not acked.")
    times_us["script_us"] = sum(times_us[f"{command}_us"] for command in COMMANDS)
    return len(payloads) / took_s, times_us


async def _read_script_us(redis: Redis) -> tuple[float, float]:
    """Return median and mean of the script calls since the last reset of the statistics."""
    calls = (await redis.info("commandstats"))["cmdstat_evalsha"]
    percentiles = (await redis.info("latencystats"))["latency_percentiles_usec_evalsha"]
    return float(percentiles["p50"]), float(calls["usec_per_call"])
