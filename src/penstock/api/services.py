"""Open the services that routes use, once per process. Routes reach the database through the broker."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import redis.asyncio
from starlette.requests import Request

from penstock.access.audit.audit_log import AuditLog
from penstock.access.authentication import Authentication
from penstock.access.environment_deletion import EnvironmentDeletion
from penstock.access.environment_service import Environments
from penstock.access.people.identity_provider import IdentityProvider
from penstock.access.quotas.quota_registry import QuotaRegistry
from penstock.access.sessions.login_limits import LoginLimits
from penstock.access.sessions.session_service import ConsoleSessions
from penstock.access.token_index import TokenIndex
from penstock.access.token_service import AccessTokens
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.channel_service import AlertChannels
from penstock.alerts.incidents.incident_service import AlertIncidents
from penstock.alerts.incidents.silence_service import AlertSilences
from penstock.alerts.rules.rule_service import AlertRules
from penstock.api.environment_contents import environment_contents
from penstock.api.exporter.process_samples import process_samples
from penstock.api.exporter.process_status import describe_process
from penstock.api.exporter.worker_aggregate import WorkerAggregate
from penstock.api.health_checks import HealthChecks
from penstock.api.live.environment_snapshot import EnvironmentSnapshots
from penstock.api.live.event_stream import LiveStreams
from penstock.api.live.overview_document import Overviews
from penstock.api.scaling.service_rate import ServiceRates
from penstock.api.warehouse_access import WarehouseAccess
from penstock.broker.broker import Broker, OverloadSettings
from penstock.broker.dead_letters.job_runner import DeadLetterJobRunner
from penstock.broker.dead_letters.task_dead_letters import TaskDeadLetters
from penstock.broker.dead_letters.waiting_task_jobs import WaitingTaskJobs
from penstock.broker.durable_store import create_database
from penstock.broker.journal.push_journal import Journal, journal_directory
from penstock.broker.maintenance import Maintenance, MaintenancePlan
from penstock.broker.overload.load import run_queue_timeout
from penstock.broker.queues.name_registry import QueueNameRegistry
from penstock.broker.self_metrics.count_repair import CountRepair
from penstock.broker.self_metrics.minute import WorkerIdentity
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.broker.self_metrics.worker_metrics import WorkerMetrics
from penstock.broker.self_metrics.worker_slot import WorkerSlot, slots_directory
from penstock.broker.table_rewriter import TableRewriter
from penstock.broker.token_revocation import TokenRevocation
from penstock.clock import system_clock
from penstock.config import Settings
from penstock.encryption import PayloadCipher
from penstock.model import Scope
from penstock.redis_clients import connect_redis_async
from penstock.runqueue.queue import RunQueues
from penstock.streams.emitter import Emitter


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    broker: Broker
    queue_metrics: QueueMetrics
    emitter: Emitter
    redis: redis.asyncio.Redis
    warehouse: WarehouseAccess
    run_queues: RunQueues
    queue_names: QueueNameRegistry
    worker_metrics: WorkerMetrics
    worker_aggregate: WorkerAggregate
    count_repair: CountRepair
    health: HealthChecks
    alert_channels: AlertChannels
    alert_rules: AlertRules
    alert_incidents: AlertIncidents
    alert_silences: AlertSilences
    tokens: TokenIndex
    access_tokens: AccessTokens
    environments: Environments
    authentication: Authentication
    sessions: ConsoleSessions
    identity_provider: IdentityProvider
    login_limits: LoginLimits
    audit_log: AuditLog
    quotas: QuotaRegistry
    snapshots: EnvironmentSnapshots
    overviews: Overviews
    live_streams: LiveStreams
    service_rates: ServiceRates

    def begin_drain(self) -> None:
        """End what would keep clients on this process, and report that it should get no new traffic."""
        self.health.begin_drain()
        self.live_streams.end_all()


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Start the services of a broker process; on exit, finish requests in flight and stop them in reverse.

    This waits for no server: an unreachable one is reported by /health and by the routes that need it.
    """
    database = create_database(settings)
    emitter = Emitter(settings.redis_url, buffer=settings.metrics_buffer, enabled=settings.metrics_enabled)
    cipher = PayloadCipher(settings.encryption_keys)
    run_queues = RunQueues(
        settings.redis_url,
        shards=settings.run_queue_shards,
        metrics_enabled=settings.metrics_enabled,
        visibility_ms=settings.visibility_ms,
        idempotency_hours=settings.idempotency_hours,
        queue_timeout=run_queue_timeout(settings),
        max_waiting=settings.max_waiting,
    )
    queue_metrics = QueueMetrics(emitter, database, exchange_gauges=run_queues.exchange_environment_gauges)
    count_repair = CountRepair(queue_metrics, emitter, database, scan_interval_s=settings.reconcile_s)
    queue_names = QueueNameRegistry(database, run_queues)
    journal = None
    if settings.journal_mb:
        journal = Journal(journal_directory(settings), settings.journal_mb << 20)
    broker = Broker(
        database,
        queue_metrics,
        lease_ms=settings.lease_ms,
        max_response_bytes=settings.max_response_bytes,
        cipher=cipher,
        names=queue_names,
        journal=journal,
        overload=OverloadSettings.from_settings(settings),
        max_waiting=settings.max_waiting,
    )
    slot = WorkerSlot(slots_directory(settings))
    slot.claim()
    identity = WorkerIdentity(socket.gethostname(), slot.number, os.getpid(), system_clock())
    worker_metrics = WorkerMetrics(
        identity,
        database,
        queue_metrics,
        broker.load,
        broker.batchers,
        lambda: broker.parked_pops.count,
        events=WorkerEvents(emitter, identity),
    )
    redis_client = connect_redis_async(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)
    warehouse = WarehouseAccess(settings.clickhouse_url)
    health = HealthChecks(settings, broker, warehouse)
    identity_provider = IdentityProvider(settings)
    sessions = ConsoleSessions(database, identity_provider.roles, lifetime_s=settings.session_hours * 3600)
    tokens = TokenIndex(settings.postgres_url)
    token_revocation = TokenRevocation(database, broker.pops, run_queues)
    tokens.on_tokens_ended = token_revocation.on_tokens_ended
    authentication = Authentication(
        tokens, sessions, identity_provider.jwt, is_required=settings.authentication == "required"
    )
    tokens.on_poll = authentication.end_expired
    tokens.on_version_changed = authentication.refresh
    audit_log = AuditLog(database)
    broker.notifications.on_access_changed = tokens.notify_change

    async def count_tasks(scope: Scope) -> tuple[int, int]:
        state = await run_queues.get_environment(scope)
        return state.queues, state.eligible + state.delayed + state.running

    quotas = QuotaRegistry(tokens, database, redis_client, count_tasks, process_count=settings.workers)
    emitter.start()
    await tokens.start()
    await quotas.start()
    await queue_metrics.start()
    await broker.start()
    await run_queues.start()
    await token_revocation.start()
    if settings.worker_metrics:
        await worker_metrics.start()

    def on_expired(scope: Scope, queue_id: int, queue: str, group: str, messages: int) -> None:
        queue_metrics.count_expired(scope, queue_id, queue, group, messages)
        broker.notify_ready(queue_id)  # later messages of the partition may be ready now

    alert_incidents = AlertIncidents(database)
    snapshots = EnvironmentSnapshots(broker, run_queues, warehouse, redis_client)
    overviews = Overviews(snapshots, alert_incidents, health, broker.store, warehouse)
    worker_aggregate = WorkerAggregate(
        slot,
        lambda: process_samples(services),
        lambda: describe_process(services),
        is_single_process=settings.workers == 1,
    )
    services = Services(
        settings,
        broker,
        queue_metrics,
        emitter,
        redis_client,
        warehouse,
        run_queues,
        queue_names,
        worker_metrics,
        worker_aggregate,
        count_repair,
        health,
        AlertChannels(database, ChannelSecrets(settings.encryption_keys)),
        AlertRules(database),
        alert_incidents,
        AlertSilences(database),
        tokens,
        AccessTokens(database, tokens.refresh),
        Environments(database, tokens.refresh),
        authentication,
        sessions,
        identity_provider,
        LoginLimits(),
        audit_log,
        quotas,
        snapshots,
        overviews,
        LiveStreams(),
        ServiceRates(warehouse, redis_client),
    )
    await audit_log.start()
    await worker_aggregate.start()
    maintenance = Maintenance(
        settings.postgres_url, MaintenancePlan.from_settings(settings), on_expired, broker.drain.notify_work
    )
    await maintenance.start()
    table_rewriter = TableRewriter(settings.postgres_url)
    await table_rewriter.start()
    await count_repair.start()
    broker.dead_letters.tasks = TaskDeadLetters(database, run_queues)
    broker.dead_letters.task_jobs = WaitingTaskJobs(database, run_queues)
    job_runner = DeadLetterJobRunner(broker.dead_letters)
    await job_runner.start()
    environment_deletion = EnvironmentDeletion(
        settings.postgres_url,
        environment_contents(
            broker, run_queues, warehouse, redis_client, has_metrics=settings.metrics_enabled
        ),
        lambda: any(environment.is_being_deleted for environment in tokens.environments()),
    )
    await environment_deletion.start()
    try:
        yield services
    finally:
        await overviews.stop()
        await snapshots.stop()
        await health.stop()
        await job_runner.stop()
        await count_repair.stop()
        await maintenance.stop()
        await table_rewriter.stop()
        await environment_deletion.stop()
        await token_revocation.stop()
        await run_queues.stop()
        await broker.stop()
        if journal is not None:
            await journal.close()
        await queue_metrics.stop()
        await worker_metrics.stop()
        await worker_aggregate.stop()
        slot.release()
        await quotas.stop()
        await tokens.stop()
        await identity_provider.stop()
        await audit_log.stop()
        await emitter.stop(timeout_s=2)
        await redis_client.aclose()
        warehouse.close()
        await database.close()


def get_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services
