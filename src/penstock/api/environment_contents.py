"""What an environment holds in the servers of a broker, for its deletion."""

from __future__ import annotations

import asyncio
import math

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.access.environment_deletion import EnvironmentContents
from penstock.api.warehouse_access import WarehouseAccess
from penstock.broker.broker import Broker
from penstock.definitions import QUEUE
from penstock.errors import RedisUnavailable, WarehouseUnavailable
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.streams.watermark import read_watermark

QUEUES_PER_STEP = 20


def environment_contents(
    broker: Broker,
    run_queues: RunQueues,
    warehouse: WarehouseAccess,
    redis: Redis,
    *,
    has_metrics: bool = True,
) -> EnvironmentContents:
    """Return the functions that delete what an environment holds.

    Without metrics there are no events to wait for, and there may be no ClickHouse.
    """

    async def delete_some_queues(scope: Scope) -> int:
        queues = await broker.store.catalog.list_queues(scope, limit=QUEUES_PER_STEP)
        for queue in queues:
            await broker.queues.delete(scope, queue.name)
        return len(queues)

    async def read_counted_until_s() -> float | None:
        if not has_metrics:
            return math.inf
        try:
            return await read_watermark(redis, QUEUE)
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from error

    async def delete_metrics(scope: Scope) -> None:
        try:
            await asyncio.to_thread(warehouse.delete_environment_metrics, scope)
        except WarehouseUnavailable:
            if has_metrics:
                raise

    return EnvironmentContents(
        delete_some_queues, run_queues.delete_some_tasks, read_counted_until_s, delete_metrics
    )
