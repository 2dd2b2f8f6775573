"""Immutable domain types that every layer shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

QUEUE_MODE = "__QUEUE_MODE__"
"""The consumer group of a pop without `consumerGroup`."""

QUEUE_MODE_LABEL = "queue mode"
"""What people read and write for this group."""

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Payload bytes in one pop or page of messages."""

DEFAULT_PARTITION = "Default"


class Scope(NamedTuple):
    """The owner of a queue: organization / project / environment."""

    organization: str = "default"
    project: str = "default"
    environment: str = "default"


DEFAULT_SCOPE = Scope()


class CreationLimits(NamedTuple):
    """How many durable queues and partitions an environment may have; None: no limit."""

    queues: int | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class DeferralReceipt:
    """Where a deferred operation waits, why the broker deferred it, and the estimated wait if it is known."""

    operation_id: str
    lane_position: int
    reason: str
    estimated_wait_s: float | None
