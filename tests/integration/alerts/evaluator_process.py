"""An evaluator in a process of its own, which a test kills: `python -m … POSTGRES REDIS CLICKHOUSE TIME`.

It evaluates once at the time of the argument, prints a line, and never sends a notice.
"""

from __future__ import annotations

import asyncio
import sys

from redis.asyncio import Redis

from penstock.alerts.evaluation.evaluator import Evaluator
from penstock.runqueue.queue import RunQueues
from penstock.warehouse.clickhouse_client import connect


async def run(postgres_url: str, redis_url: str, clickhouse_url: str, time_s: float) -> None:
    evaluator = Evaluator(
        postgres_url,
        Redis.from_url(redis_url),
        connect(clickhouse_url),
        RunQueues(redis_url),
        clock=lambda: time_s,
    )
    print("evaluated" if await evaluator.run_round() else "another process evaluates", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    _, POSTGRES_URL, REDIS_URL, CLICKHOUSE_URL, TIME_S = sys.argv
    asyncio.run(run(POSTGRES_URL, REDIS_URL, CLICKHOUSE_URL, float(TIME_S)))
