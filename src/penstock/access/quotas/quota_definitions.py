"""The quotas that an environment or a token can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import InvalidRequest

MAX_LIMIT = 10**15
WARNING_SHARE = 0.8
"""The share of a limit from which its use is a warning."""


class QuotaDefinition(NamedTuple):
    """What a quota limits, the least limit it can have, and what a refused client can do."""

    unit: str
    min_limit: int
    remedy: str


REQUESTS_PER_SECOND = "requestsPerSecond"
BYTES_PER_SECOND = "bytesPerSecond"
QUEUES = "queues"
PARTITIONS = "partitions"
STORED_MESSAGES = "storedMessages"
STORED_BYTES = "storedBytes"
WAITING_POPS = "waitingPops"
CONNECTIONS = "connections"

_FREE_STORAGE = "Delete queues or shorten their retention"

QUOTAS: dict[str, QuotaDefinition] = {
    REQUESTS_PER_SECOND: QuotaDefinition("requests per second", 1, "Send fewer requests, with more items"),
    BYTES_PER_SECOND: QuotaDefinition("bytes per second", 1, "Send and receive less"),
    QUEUES: QuotaDefinition("queues", 0, "Delete queues"),
    PARTITIONS: QuotaDefinition("partitions", 0, "Use existing partitions or delete queues"),
    STORED_MESSAGES: QuotaDefinition("stored messages", 0, _FREE_STORAGE),
    STORED_BYTES: QuotaDefinition("stored bytes", 0, _FREE_STORAGE),
    WAITING_POPS: QuotaDefinition("waiting pops", 0, "Pop without wait, or with fewer consumers"),
    CONNECTIONS: QuotaDefinition("connections", 1, "Close connections, or share them"),
}
"""By name. No rate can be 0, because requests that change a quota are requests too."""


def parse_quotas(values: Mapping[str, object]) -> dict[str, int]:
    """Return the limits by name; null means no limit. Raises InvalidRequest for a bad name or limit."""
    limits: dict[str, int] = {}
    for name, limit in values.items():
        definition = QUOTAS.get(name)
        if definition is None:
            raise InvalidRequest(
                f"Unknown quota {name[:50]!r}. The quotas are {', '.join(QUOTAS)}.", field="quotas"
            )
        if limit is None:
            continue
        if isinstance(limit, float) and limit.is_integer():
            limit = int(limit)
        if type(limit) is not int or not definition.min_limit <= limit <= MAX_LIMIT:
            raise InvalidRequest(
                f"The quota {name} must be a whole number from {definition.min_limit} to {MAX_LIMIT}. "
                "Leave it out for no limit.",
                field=f"quotas.{name}",
            )
        limits[name] = limit
    return limits
