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

MAX_WAIT_S = 2.0
"""How long one call waits for an entry. A query that is stopped may wait this long for the call to end."""

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
        block_ms = int(MAX_WAIT_S * 1000) if self._has_waited else None
        self._has_waited = True
        if redis.xread(last_ids, count=1, block=block_ms) and self._planned_at is not None:
            distance_s = max(self.min_distance_s, REST_RATIO * (called_at - self._planned_at))
            rest_s = self._planned_at + min(distance_s, MAX_DISTANCE_S) - self.clock()
            if rest_s > 0:
                self.sleep(rest_s)
        self._planned_at = None

    def note_batch(self, *, leaves_entries: bool) -> None:
        """Record that a batch was planned. If it leaves entries, the next one starts without a rest."""
        self._planned_at = None if leaves_entries else self.clock()
