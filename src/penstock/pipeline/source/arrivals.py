"""Wait for new entries of a metric's streams, and keep a distance between its batches.

Spark plans the next batch as soon as the last one has ended. The source delays its answer: until an entry
arrives, so that an idle pipeline does nothing, and until the last batch is long enough ago, so that a trickle
of entries does not keep a core busy. An entry that arrives after a pause is read at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from redis import Redis
from redis.typing import KeyT, StreamIdT

from penstock.redis_clients import is_cluster

MAX_WAIT_S = 2.0
"""How long one call waits for an entry. A query that is stopped may wait this long for the call to end."""

CLUSTER_POLL_S = 0.1
"""The pause between two looks at the streams of a metric on a cluster."""

MAX_DISTANCE_S = 1.0
"""The longest distance between the starts of two batches."""

REST_RATIO = 2.0
"""The distance between the starts of two batches is this many times the duration of the first one."""


@dataclass(slots=True)
class Arrivals:
    """Decides when the next batch starts. One thread uses it.

    `min_distance_s` is the least time between the starts of two batches.
    """

    min_distance_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _planned_at: float | None = field(default=None, init=False)
    """When the batch before this call was planned; None if there was none, or if it left entries."""
    _has_waited: bool = field(default=False, init=False)

    def wait(self, redis: Redis, last_ids: dict[KeyT, StreamIdT]) -> None:
        """Return when the streams have entries after these ids and it is time for the next batch.

        Without entries it returns after a while. The first call does not wait for entries, so that a query is
        soon known to read its streams.
        """
        called_at = self.clock()
        wait_s = MAX_WAIT_S if self._has_waited else 0.0
        self._has_waited = True
        if self._wait_for_entry(redis, last_ids, wait_s) and self._planned_at is not None:
            distance_s = max(self.min_distance_s, REST_RATIO * (called_at - self._planned_at))
            rest_s = self._planned_at + min(distance_s, MAX_DISTANCE_S) - self.clock()
            if rest_s > 0:
                self.sleep(rest_s)
        self._planned_at = None

    def _wait_for_entry(self, redis: Redis, last_ids: dict[KeyT, StreamIdT], wait_s: float) -> bool:
        """Return whether a stream has an entry; wait for one for a while."""
        if len(last_ids) == 1 or not is_cluster(redis):
            return bool(redis.xread(last_ids, count=1, block=int(wait_s * 1000) or None))
        # One call cannot wait for the streams of several slots.
        until = self.clock() + wait_s
        while not any(redis.xread({key: last_id}, count=1) for key, last_id in last_ids.items()):
            if self.clock() >= until:
                return False
            self.sleep(CLUSTER_POLL_S)
        return True

    def note_batch(self, *, leaves_entries: bool) -> None:
        """Record that a batch was planned. If it leaves entries, the next one starts without a rest."""
        self._planned_at = None if leaves_entries else self.clock()
