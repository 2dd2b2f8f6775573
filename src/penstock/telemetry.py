"""The one table of every metric that `GET /metrics` exports: name, kind, labels and help.

Names carry their unit; a counter's sample ends in `_total`, which the exposition adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Exported:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


OPERATION = ("operation",)

REQUESTS = Exported("penstock_operation_requests", Kind.COUNTER, "requests carried out", OPERATION)
ITEMS = Exported("penstock_operation_items", Kind.COUNTER, "messages or acks in those requests", OPERATION)
BATCHES = Exported("penstock_operation_batches", Kind.COUNTER, "database calls they made", OPERATION)
SECONDS = Exported("penstock_operation_seconds", Kind.COUNTER, "time those calls took", OPERATION)
FAILURES = Exported("penstock_operation_failures", Kind.COUNTER, "database calls that failed", OPERATION)
PENDING = Exported("penstock_operation_pending", Kind.GAUGE, "requests waiting for their batch", OPERATION)
PARKED = Exported("penstock_parked_pops", Kind.GAUGE, "pops waiting for a message")
CONNECTIONS = Exported(
    "penstock_database_connections", Kind.GAUGE, "database connections: limit, open, busy", ("state",)
)
EMITTED = Exported("penstock_metric_events_emitted", Kind.COUNTER, "metric events written to their streams")
DROPPED = Exported("penstock_metric_events_dropped", Kind.COUNTER, "metric events lost for want of room")
BUFFERED = Exported("penstock_metric_events_pending", Kind.GAUGE, "metric events waiting for Redis")
HORIZON = Exported(
    "penstock_vacuum_horizon_age_seconds",
    Kind.GAUGE,
    "for how long a session, slot or transaction has kept dead rows from being removed",
    ("kind", "name"),
)

EXPORTED: tuple[Exported, ...] = (
    *(REQUESTS, ITEMS, BATCHES, SECONDS, FAILURES, PENDING, PARKED, CONNECTIONS),
    *(EMITTED, DROPPED, BUFFERED, HORIZON),
)
