"""What the routes work with, opened once per process."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import redis.asyncio
from starlette.requests import Request

from penstock.api.exporter.process_samples import own_samples
from penstock.api.exporter.worker_aggregate import Whole
from penstock.broker.broker import Broker, OverloadSettings
from penstock.broker.dead_letters.job_runner import DeadJobs
from penstock.broker.dead_letters.task_letters import DeadTasks
from penstock.broker.encryption import PayloadCipher
from penstock.broker.journal.location import journal_directory
from penstock.broker.journal.push_journal import Journal
from penstock.broker.maintenance import Maintenance, Plan
from penstock.broker.queues.name_registry import QueueNameRegistry
from penstock.broker.self_metrics.minute import Identity
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.broker.self_metrics.worker_metrics import WorkerMetrics
from penstock.broker.self_metrics.worker_slot import WorkerSlot, slots_directory
from penstock.clock import system_clock
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.streams.emitter import Emitter
from penstock.warehouse.clickhouse_client import Warehouse, connect


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    database: Database
    broker: Broker
    metrics: QueueMetrics
    emitter: Emitter
    redis: redis.asyncio.Redis
    warehouse: Warehouse
    run_queues: RunQueues
    names: QueueNameRegistry
    worker: WorkerMetrics
    whole: Whole


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Start everything a broker process needs; stop it in reverse, finishing what is in flight.

    Nothing here waits for a server: a part that is away shows in /health and in the answers.
    """
    database = Database(settings.postgres_url, settings.postgres_pool)
    emitter = Emitter(settings.redis_url, buffer=settings.metrics_buffer, enabled=settings.metrics_enabled)
    cipher = PayloadCipher(settings.encryption_keys)
    run_queues = RunQueues(
        settings.redis_url,
        shards=settings.run_queue_shards,
        metrics_enabled=settings.metrics_enabled,
        visibility_ms=settings.visibility_ms,
        idempotency_hours=settings.idempotency_hours,
    )
    metrics = QueueMetrics(emitter, database, share=run_queues.share_environment)
    names = QueueNameRegistry(database, run_queues)
    journal = None
    if settings.journal_mb:
        journal = Journal(journal_directory(settings), settings.journal_mb << 20)
    broker = Broker(
        database,
        metrics,
        lease_ms=settings.lease_ms,
        cipher=cipher,
        names=names,
        journal=journal,
        overload=OverloadSettings.from_settings(settings),
    )
    slot = WorkerSlot(slots_directory(settings))
    slot.claim()
    identity = Identity(socket.gethostname(), slot.number, os.getpid(), system_clock())
    worker = WorkerMetrics(
        identity,
        database,
        metrics,
        broker.load,
        broker.batchers,
        lambda: broker.parked_pops.count,
        events=WorkerEvents(emitter, identity),
    )
    client = redis.asyncio.from_url(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)
    warehouse = connect(settings.clickhouse_url)
    emitter.start()
    await metrics.start()
    await broker.start()
    await run_queues.start()
    if settings.worker_metrics:
        await worker.start()

    def let_go(scope: Scope, queue_id: int, queue: str, group: str, messages: int) -> None:
        metrics.expired(scope, queue_id, queue, group, messages)
        broker.notify_ready(queue_id)  # what comes after them may be ready now

    whole = Whole(slot, lambda: own_samples(opened), alone=settings.workers == 1)
    opened = Services(
        *(settings, database, broker, metrics, emitter, client, warehouse, run_queues, names),
        *(worker, whole),
    )
    await whole.start()
    maintenance = Maintenance(settings.postgres_url, Plan.of(settings), let_go, broker.drain.notify_work)
    await maintenance.start()
    broker.dead_letters.tasks = DeadTasks(database, run_queues)
    dead_jobs = DeadJobs(broker.dead_letters)
    await dead_jobs.start()
    try:
        yield opened
    finally:
        await dead_jobs.stop()
        await maintenance.stop()
        await run_queues.stop()
        await broker.stop()
        if journal is not None:
            await journal.close()
        await metrics.stop()
        await worker.stop()
        await whole.stop()
        slot.release()
        await emitter.stop(timeout_s=2)
        await client.aclose()
        warehouse.close()
        await database.close()


def get_services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found
