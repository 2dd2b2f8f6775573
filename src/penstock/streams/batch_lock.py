"""Which batch of a metric is under way, kept in Redis so that others can tell; and holding the next one back.

A batch is *open* from before its events are read until they are counted, and *written* from then on; the mark
stays until the next batch replaces it. Whoever changes what was counted before (a rebuild) takes a hold and
waits until no batch is open. Then the archive and the tables hold the same events and stay as they are,
because no batch begins while the hold lasts. A hold expires by itself: a holder that died stops nothing.
"""

from __future__ import annotations

import json
import time
from importlib import resources
from typing import Any, NamedTuple

from redis import Redis

LOOK_S = 0.2
HOLD_S = 60.0
"""How long a hold lasts unless it is renewed."""

_BEGIN = resources.files("penstock.streams").joinpath("lua/begin_batch.lua").read_text()
_RENEW = resources.files("penstock.streams").joinpath("lua/renew_hold.lua").read_text()


class Mark(NamedTuple):
    """A batch, and whether it is counted."""

    query_id: str
    batch_id: int
    written: bool

    @property
    def batch(self) -> tuple[str, int]:
        return self.query_id, self.batch_id

    @property
    def text(self) -> str:
        return json.dumps([self.query_id, self.batch_id, self.written])


class HoldLostError(Exception):
    """The hold expired, or was taken by somebody else."""


def mark_key(metric: str) -> str:
    return f"penstock:pipeline:batch:{metric}"


def hold_key(metric: str) -> str:
    return f"penstock:pipeline:hold:{metric}"


def read_mark(client: Redis, metric: str) -> Mark | None:
    """The newest batch of the metric, or None if there never was one."""
    return _mark(client.get(mark_key(metric)))


def begin_batch(client: Redis, metric: str, query_id: str, batch_id: int) -> tuple[bool, Mark | None]:
    """Mark the batch as open; returns whether it may begin, and the mark there was before.

    It may not begin while somebody holds the metric. A batch that is marked as written stays so.
    """
    opened, written = (Mark(query_id, batch_id, done).text for done in (False, True))
    begun, before = client.register_script(_BEGIN)(
        keys=[mark_key(metric), hold_key(metric)], args=[opened, written]
    )
    return bool(begun), _mark(before)


class Hold:
    """Keeps the batches of one metric from beginning, from `take` until `release` or until it expires."""

    def __init__(self, client: Redis, metric: str, owner: str) -> None:
        self._client = client
        self._key = hold_key(metric)
        self._metric = metric
        self._owner = owner

    def take(self, patience_s: float = HOLD_S + 5) -> bool:
        """Whether it is ours now. One that somebody left who died is waited for: it expires."""
        deadline = time.monotonic() + patience_s
        while True:
            if self._client.set(self._key, self._owner, nx=True, px=int(HOLD_S * 1000)):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)

    def open_batch(self) -> Mark | None:
        """The batch that was under way when the hold was taken and still is, if any."""
        mark = read_mark(self._client, self._metric)
        return mark if mark and not mark.written else None

    def renew(self) -> None:
        """Make it last. Raises HoldLostError when it is no longer ours."""
        renewed = self._client.register_script(_RENEW)(
            keys=[self._key], args=[self._owner, int(HOLD_S * 1000)]
        )
        if not renewed:
            raise HoldLostError(self._metric)

    def release(self) -> None:
        self._client.register_script(_RENEW)(keys=[self._key], args=[self._owner, 0])


def _mark(value: Any) -> Mark | None:
    if not value:
        return None
    query_id, batch_id, written = json.loads(value)
    return Mark(str(query_id), int(batch_id), bool(written))
