"""The limits of one environment or one token, and what this process and the others use of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.access.quotas.quota_definitions import (
    BYTES_PER_SECOND,
    CONNECTIONS,
    QUOTAS,
    REQUESTS_PER_SECOND,
    WAITING_POPS,
)
from penstock.access.quotas.rate_bucket import RateBucket
from penstock.errors import QuotaExceeded

GAUGE_RETRY_S = 1.0


class ProcessUse(NamedTuple):
    """What one broker process reports to the others. `number` grows with each report."""

    number: int
    requests_demand: float = 0.0
    bytes_demand: float = 0.0
    requests_used: float = 0.0
    bytes_used: float = 0.0
    waiting_pops: int = 0
    connections: int = 0


class QuotaSubject:
    """An environment or a token with quotas. Requests change plain numbers here and wait for nothing.

    `key` is its name in Redis; `label` names it in messages. `refused` counts refused requests by quota.
    """

    def __init__(self, key: str, label: str, refused: Counter[str], process_count: int) -> None:
        self.key = key
        self.label = label
        self.refused = refused
        self.limits: Mapping[str, float] = {}
        self.is_first_process = True
        """Whether this process is the one of all that logs warnings."""
        self.waiting_pops = 0
        self.connections = 0
        self._process_count = process_count
        self._requests: RateBucket | None = None
        self._bytes: RateBucket | None = None
        self._peers: Sequence[ProcessUse] = ()
        self._gauge_divisor = process_count
        """How many processes share the limits of gauges without knowing of each other."""
        self._measured_s = time.monotonic()

    def set_limits(self, limits: Mapping[str, float]) -> None:
        """Replace the limits. Rates that keep their limit go on as they are."""
        self._requests = self._bucket(limits.get(REQUESTS_PER_SECOND), self._requests)
        self._bytes = self._bucket(limits.get(BYTES_PER_SECOND), self._bytes)
        self.limits = limits

    def _bucket(self, limit: float | None, current: RateBucket | None) -> RateBucket | None:
        if limit is None or (current is not None and current.limit == limit):
            return None if limit is None else current
        return RateBucket(limit, self._process_count)

    def admit(self, size: int) -> None:
        """Count a request with a body of this size. Raises QuotaExceeded."""
        requests, sizes = self._requests, self._bytes
        if requests is not None:
            requests.demanded += 1
            if requests.level <= 0 and not requests.fill():
                raise self.refusal(REQUESTS_PER_SECOND, requests.refuse(1))
        if sizes is not None:
            sizes.demanded += size
            if sizes.level <= 0 and not sizes.fill():
                if requests is not None:
                    requests.refuse(1)
                raise self.refusal(BYTES_PER_SECOND, sizes.refuse(size))
            sizes.level -= size
        if requests is not None:
            requests.level -= 1

    def add_bytes(self, size: int) -> None:
        """Count bytes whose number was not known when their request was admitted."""
        if self._bytes is not None:
            self._bytes.demanded += size
            self._bytes.level -= size

    def add_waiting_pop(self) -> None:
        """Count a pop that starts to wait. Raises QuotaExceeded."""
        self._check_gauge(WAITING_POPS, self.waiting_pops, self._peer_waiting_pops)
        self.waiting_pops += 1

    def add_connection(self) -> None:
        """Count a connection. Raises QuotaExceeded."""
        self._check_gauge(CONNECTIONS, self.connections, self._peer_connections)
        self.connections += 1

    def _check_gauge(self, quota: str, own: int, others: int) -> None:
        limit = self.limits.get(quota)
        if limit is not None and own + others >= limit / self._gauge_divisor:
            raise self.refusal(quota, GAUGE_RETRY_S)

    @property
    def _peer_waiting_pops(self) -> int:
        return sum(peer.waiting_pops for peer in self._peers)

    @property
    def _peer_connections(self) -> int:
        return sum(peer.connections for peer in self._peers)

    def refusal(self, quota: str, retry_after_s: float) -> QuotaExceeded:
        """Count a refused request and return its error."""
        self.refused[quota] += 1
        definition, limit = QUOTAS[quota], self.limits[quota]
        return QuotaExceeded(
            f"The {self.label} has used up its quota {quota}: {limit:.0f} {definition.unit}. "
            f"{definition.remedy}, or ask an administrator to raise it.",
            quota=quota,
            limit=int(limit),
            retry_after_s=retry_after_s,
        )

    @property
    def is_idle(self) -> bool:
        """Whether this process uses so little that the others need not know of it at once."""
        buckets = [bucket for bucket in (self._requests, self._bytes) if bucket is not None]
        has_demand = any(bucket.demanded or bucket.demand.per_second > 0.01 for bucket in buckets)
        return not (has_demand or self.waiting_pops or self.connections)

    def measure(self, number: int) -> ProcessUse:
        """Return what this process uses now."""
        now_s = time.monotonic()
        elapsed_s, self._measured_s = max(now_s - self._measured_s, 0.001), now_s
        requests, sizes = self._requests, self._bytes
        for bucket in (requests, sizes):
            if bucket is not None:
                bucket.measure(elapsed_s)
        return ProcessUse(
            number,
            requests.demand.per_second if requests else 0.0,
            sizes.demand.per_second if sizes else 0.0,
            requests.used.per_second if requests else 0.0,
            sizes.used.per_second if sizes else 0.0,
            self.waiting_pops,
            self.connections,
        )

    def apply_peers(self, peers: Sequence[ProcessUse]) -> None:
        """Take over what the other processes use, and with it this process's share of the rates."""
        self._peers = peers
        self._process_count, self._gauge_divisor = 1 + len(peers), 1
        if self._requests is not None:
            self._requests.apply_demands([peer.requests_demand for peer in peers])
        if self._bytes is not None:
            self._bytes.apply_demands([peer.bytes_demand for peer in peers])

    def apply_equal_shares(self) -> None:
        """Share every limit equally with as many processes as there were, because their use is unknown."""
        self._peers = ()
        self._gauge_divisor = self._process_count
        for bucket in (self._requests, self._bytes):
            if bucket is not None:
                bucket.rate = bucket.limit / self._process_count

    def read_use(self, quota: str) -> float | None:
        """Return what all processes use of a rate or gauge; None for another quota."""
        if quota == WAITING_POPS:
            return self.waiting_pops + self._peer_waiting_pops
        if quota == CONNECTIONS:
            return self.connections + self._peer_connections
        if quota == REQUESTS_PER_SECOND and self._requests is not None:
            return self._requests.used.per_second + sum(peer.requests_used for peer in self._peers)
        if quota == BYTES_PER_SECOND and self._bytes is not None:
            return self._bytes.used.per_second + sum(peer.bytes_used for peer in self._peers)
        return None
