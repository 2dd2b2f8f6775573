"""Describe this broker process: load, connections, batches, memory and the last two minutes.

Collecting it calls no server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil

from penstock.batching import BatchStats
from penstock.clock import iso, to_utc

if TYPE_CHECKING:
    from penstock.api.services import Services

_process = psutil.Process()

_RECENT_NAMES = {
    "time_s": "timestamps",
    "loop_lag_ms": "eventLoopLateMs",
    "cpu_percent": "cpuPercent",
    "busy_connections": "busyConnections",
    "connection_waiters": "connectionWaiters",
    "pending_requests": "pendingRequests",
    "batches": "batches",
    "batch_requests": "batchRequests",
    "resident_bytes": "residentBytes",
}


def describe_process(services: Services) -> dict[str, object]:
    """Return the JSON of this process in `GET /api/v1/status/workers`."""
    broker = services.broker
    identity = services.worker_metrics.identity
    columns = services.worker_metrics.recent_seconds.columns()
    return {
        "hostname": identity.hostname,
        "worker": identity.worker,
        "pid": identity.pid,
        "startedAt": iso(to_utc(identity.started_at)),
        "reportedAt": iso(to_utc(time.time())),
        "residentBytes": _process.memory_info().rss,
        "cpuSeconds": round(time.process_time(), 2),
        "databaseOutageSeconds": round(broker.diagnostics.outage_s, 3),
        "databaseErrors": broker.diagnostics.database_errors,
        "parkedPops": broker.parked_pops.count,
        "load": broker.load.to_dict(),
        "batching": describe_batching(services),
        "recent": {name: columns[column] for column, name in _RECENT_NAMES.items()},
    }


def describe_batching(services: Services) -> dict[str, dict[str, float]]:
    """Return the figures of each batched operation; those of run queues start with `task`."""
    broker = services.broker
    batchers = broker.batchers | {f"task {name}": b for name, b in services.run_queues.batchers.items()}
    operations = {
        name: _batch_stats_to_dict(batcher.stats, batcher.pending, batcher.in_flight)
        for name, batcher in batchers.items()
    }
    operations["transaction"] = _batch_stats_to_dict(broker.acks.transaction_stats, 0, 0)
    return operations


def _batch_stats_to_dict(stats: BatchStats, pending: int, in_flight: int) -> dict[str, float]:
    batches = max(stats.batches, 1)
    return {
        "requests": stats.requests,
        "items": stats.items,
        "batches": stats.batches,
        "averageBatchRequests": round(stats.requests / batches, 2),
        "averageBatchItems": round(stats.items / batches, 2),
        "averageMs": round(stats.busy_s / batches * 1000, 3),
        "failures": stats.failures,
        "pending": pending,
        "inFlight": in_flight,
    }
