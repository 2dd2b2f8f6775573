"""Samples of this broker process for `GET /metrics`. Collecting them calls no server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil

from penstock import telemetry
from penstock.broker.self_metrics.queue_counters import EVENT_LABELS
from penstock.telemetry import ExportedMetric

if TYPE_CHECKING:
    from penstock.api.services import Services

Samples = dict[tuple[str, ...], float]
"""The values of one metric by their labels. Those of a summary have `sum` or `count` as a last label."""
SampleTable = dict[ExportedMetric, Samples]

_process = psutil.Process()


def process_samples(services: Services) -> SampleTable:
    """Every metric whose value differs between the processes behind a port."""
    return (
        _operation_samples(services)
        | _overload_samples(services)
        | _queue_samples(services)
        | _worker_samples(services)
        | _refusal_samples(services)
    )


def _refusal_samples(services: Services) -> SampleTable:
    refused = services.quotas.refused_counts()
    return {telemetry.QUOTA_REFUSED: {(*scope, quota): count for (scope, quota), count in refused.items()}}


def _operation_samples(services: Services) -> SampleTable:
    broker = services.broker
    stats = {name: batcher.stats for name, batcher in broker.batchers.items()}
    stats["transaction"] = broker.acks.transaction_stats
    requests = services.queue_metrics.requests
    connections = broker.diagnostics.connections
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
            ("limit",): connections.limit,
            ("open",): connections.open,
            ("busy",): connections.busy,
            ("waiting",): connections.waiting,
        },
        telemetry.DATABASE_ERRORS: {(): broker.diagnostics.database_errors},
        telemetry.METRIC_EVENTS_EMITTED: {(): services.emitter.emitted},
        telemetry.METRIC_EVENTS_DROPPED: {(): services.emitter.dropped},
        telemetry.METRIC_EVENTS_PENDING: {(): services.emitter.pending},
        telemetry.METRIC_COUNTS_REPAIRED: {(): services.count_repair.repaired},
    }


def _overload_samples(services: Services) -> SampleTable:
    broker = services.broker
    operations: dict[str, Any] = broker.load.to_dict()["operations"]
    return {
        telemetry.LOAD: {(kind,): state["load"] for kind, state in operations.items()},
        telemetry.LOAD_DECISIONS: {
            (kind, decision): count
            for kind, state in operations.items()
            for decision, count in state["decisions"].items()
        },
        telemetry.OPERATIONS_WAITING: {
            (kind,): state["waiting"] for kind, state in operations.items() if state["depthLimit"]
        },
        telemetry.OPERATIONS_DRAINED: {(): broker.drain.drained},
        telemetry.OPERATIONS_PARKED: {(): broker.drain.failed},
        telemetry.EVENT_LOOP_LAG: {(): broker.load.loop_lag_s.value},
        telemetry.DATABASE_OUTAGE: {(): broker.diagnostics.outage_s},
    }


def _queue_samples(services: Services) -> SampleTable:
    totals_by_queue = services.worker_metrics.queues.totals
    waits: Samples = {}
    for (scope, queue, group), totals in totals_by_queue.items():
        if totals.waits:
            waits[*scope, queue, group, "count"] = totals.waits
            waits[*scope, queue, group, "sum"] = totals.wait_ms / 1000
    return {
        telemetry.QUEUE_MESSAGES: {
            (*scope, queue, group, EVENT_LABELS[column]): count
            for (scope, queue, group), totals in totals_by_queue.items()
            for column, count in totals.counts.items()
            if count
        },
        telemetry.QUEUE_WAIT: waits,
    }


def _worker_samples(services: Services) -> SampleTable:
    return {
        telemetry.WORKER_RESIDENT_MEMORY: {(): _process.memory_info().rss},
        telemetry.WORKER_CPU: {(): time.process_time()},
        telemetry.WORKER_ROWS_PENDING: {(): services.worker_metrics.unwritten_minutes},
        telemetry.WORKER_ROWS_DROPPED: {(): services.worker_metrics.dropped_minutes},
        telemetry.AUDIT_ENTRIES: {(): services.audit_log.written},
        telemetry.AUDIT_FAILURES: {(): services.audit_log.failed},
        telemetry.AUDIT_COUNTED_CALLS: {(): services.audit_log.unrecorded},
    }
