"""What this broker process exports of itself: samples of `GET /metrics` that cost no call to a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil

from penstock import telemetry
from penstock.broker.self_metrics.queue_counters import EVENTS
from penstock.telemetry import ExportedMetric

if TYPE_CHECKING:
    from penstock.api.services import Services

Samples = dict[tuple[str, ...], float]
"""Values by their labels. Those of a summary have `sum` or `count` as a last label."""
Table = dict[ExportedMetric, Samples]

_process = psutil.Process()


def own_samples(services: Services) -> Table:
    """Everything but what all processes know alike."""
    return _operations(services) | _overload(services) | _queues(services) | _worker(services)


def _operations(services: Services) -> Table:
    broker = services.broker
    stats = {name: batcher.stats for name, batcher in broker.batchers.items()}
    stats["transaction"] = broker.acks.transaction_stats
    requests = services.metrics.requests
    opened, busy = services.database.connections
    return {
        telemetry.CLIENT_REQUESTS: {
            ("push",): requests.push,
            ("pop",): requests.pop,
            ("ack",): requests.ack,
            ("transaction",): requests.transaction,
        },
        telemetry.OPERATION_REQUESTS: {(name,): s.requests for name, s in stats.items()},
        telemetry.OPERATION_ITEMS: {(name,): s.items for name, s in stats.items()},
        telemetry.OPERATION_BATCHES: {(name,): s.batches for name, s in stats.items()},
        telemetry.OPERATION_SECONDS: {(name,): s.busy_s for name, s in stats.items()},
        telemetry.OPERATION_FAILURES: {(name,): s.failures for name, s in stats.items()},
        telemetry.OPERATION_PENDING: {(name,): b.pending for name, b in broker.batchers.items()},
        telemetry.PARKED_POPS: {(): broker.parked_pops.count},
        telemetry.DATABASE_CONNECTIONS: {
            ("limit",): services.database.size,
            ("open",): opened,
            ("busy",): busy,
            ("waiting",): services.database.waiting,
        },
        telemetry.DATABASE_ERRORS: {(): services.database.errors},
        telemetry.METRIC_EVENTS_EMITTED: {(): services.emitter.emitted},
        telemetry.METRIC_EVENTS_DROPPED: {(): services.emitter.dropped},
        telemetry.METRIC_EVENTS_PENDING: {(): services.emitter.pending},
    }


def _overload(services: Services) -> Table:
    broker = services.broker
    kinds: dict[str, Any] = broker.load.to_dict()["operations"]
    return {
        telemetry.LOAD: {(kind,): known["load"] for kind, known in kinds.items()},
        telemetry.LOAD_DECISIONS: {
            (kind, decision): count
            for kind, known in kinds.items()
            for decision, count in known["decisions"].items()
        },
        telemetry.OPERATIONS_WAITING: {
            (kind,): known["waiting"] for kind, known in kinds.items() if known["depthLimit"]
        },
        telemetry.OPERATIONS_DRAINED: {(): broker.drain.drained},
        telemetry.OPERATIONS_PARKED: {(): broker.drain.failed},
        telemetry.EVENT_LOOP_LAG: {(): broker.load.loop_lag_s.value},
        telemetry.DATABASE_OUTAGE: {(): services.database.outage.since_s},
    }


def _queues(services: Services) -> Table:
    totals = services.worker.queues.totals
    waits: Samples = {}
    for (queue, group), of in totals.items():
        if of.waits:
            waits[queue, group, "count"] = of.waits
            waits[queue, group, "sum"] = of.wait_ms / 1000
    return {
        telemetry.QUEUE_MESSAGES: {
            (queue, group, EVENTS[column]): count
            for (queue, group), of in totals.items()
            for column, count in of.counts.items()
            if count
        },
        telemetry.QUEUE_WAIT: waits,
    }


def _worker(services: Services) -> Table:
    return {
        telemetry.WORKER_RESIDENT_MEMORY: {(): _process.memory_info().rss},
        telemetry.WORKER_CPU: {(): time.process_time()},
        telemetry.WORKER_ROWS_PENDING: {(): services.worker.unwritten},
        telemetry.WORKER_ROWS_DROPPED: {(): services.worker.dropped},
    }
