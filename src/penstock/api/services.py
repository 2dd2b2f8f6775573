"""What the routes work with, opened once per process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import redis.asyncio
from starlette.requests import Request

from penstock.broker.broker import Broker
from penstock.broker.maintenance import Maintenance, Plan
from penstock.broker.metrics import QueueMetrics
from penstock.broker.sealing import Sealer
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.streams.emitter import Emitter
from penstock.warehouse.client import Warehouse, connect


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    database: Database
    broker: Broker
    metrics: QueueMetrics
    emitter: Emitter
    redis: redis.asyncio.Redis
    warehouse: Warehouse


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Start everything a broker process needs; stop it in reverse, finishing what is in flight.

    Nothing here waits for a server: a part that is away shows in /health and in the answers.
    """
    database = Database(settings.postgres_url, settings.postgres_pool)
    emitter = Emitter(settings.redis_url, buffer=settings.metrics_buffer, enabled=settings.metrics_enabled)
    metrics = QueueMetrics(emitter, database)
    sealer = Sealer(settings.encryption_keys)
    broker = Broker(database, metrics, lease_ms=settings.lease_ms, sealer=sealer)
    client = redis.asyncio.from_url(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)
    warehouse = connect(settings.clickhouse_url)
    emitter.start()
    await metrics.start()
    await broker.start()

    def let_go(scope: Scope, queue_id: int, queue: str, group: str, messages: int) -> None:
        metrics.expired(scope, queue_id, queue, group, messages)
        broker.announce(queue_id)  # what comes after them may be ready now

    maintenance = Maintenance(settings.postgres_url, Plan.of(settings), let_go)
    await maintenance.start()
    try:
        yield Services(settings, database, broker, metrics, emitter, client, warehouse)
    finally:
        await maintenance.stop()
        await broker.stop()
        await metrics.stop()
        await emitter.stop(timeout_s=2)
        await client.aclose()
        warehouse.close()
        await database.close()


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found
