"""Marks of the pipeline's batches, and a lock that keeps the next batch of a metric from beginning.

A batch is *open* from before its events are read until they are in ClickHouse, and *written* from then on.
The mark in Redis stays until the next batch replaces it. A rebuild, which changes events that were counted
before, acquires the lock and waits until no batch is open. Then the archive and the tables hold the same
events and do not change, because no batch begins while the lock is held. The lock expires by itself, so an
owner that died blocks the pipeline for at most LOCK_TTL_S.
"""

from __future__ import annotations

import json
import time
from importlib import resources
from typing import Any, NamedTuple

from redis import Redis

from penstock.redis_clients import slot_tag

POLL_INTERVAL_S = 0.2
LOCK_TTL_S = 60.0
"""How long a lock lasts unless its owner renews it."""

_BEGIN_BATCH = resources.files("penstock.streams").joinpath("lua/begin_batch.lua").read_text()
_RENEW_LOCK = resources.files("penstock.streams").joinpath("lua/renew_lock.lua").read_text()


class BatchMark(NamedTuple):
    """A batch, and whether its events are in ClickHouse."""

    query_id: str
    batch_id: int
    is_written: bool

    @property
    def batch(self) -> tuple[str, int]:
        return self.query_id, self.batch_id

    def to_json(self) -> str:
        return json.dumps([self.query_id, self.batch_id, self.is_written])


class BatchLockLostError(Exception):
    """The lock expired, or another owner acquired it."""


def batch_mark_key(client: Redis, metric: str) -> str:
    return f"penstock:pipeline:batch:{slot_tag(client, metric)}"


def batch_lock_key(client: Redis, metric: str) -> str:
    return f"penstock:pipeline:hold:{slot_tag(client, metric)}"


def read_batch_mark(client: Redis, metric: str) -> BatchMark | None:
    """Return the newest batch of the metric, or None if there never was one."""
    return _parse_mark(client.get(batch_mark_key(client, metric)))


def begin_batch(client: Redis, metric: str, query_id: str, batch_id: int) -> tuple[bool, BatchMark | None]:
    """Mark the batch as open; return whether it may begin, and the previous mark.

    It may not begin while another process holds the lock. A batch that is marked as written stays so.
    """
    open_mark, written_mark = (BatchMark(query_id, batch_id, done).to_json() for done in (False, True))
    reply: Any = client.eval(
        _BEGIN_BATCH,
        2,
        batch_mark_key(client, metric),
        batch_lock_key(client, metric),
        open_mark,
        written_mark,
    )
    may_begin, previous_mark = reply
    return bool(may_begin), _parse_mark(previous_mark)


class BatchLock:
    """Keeps batches of one metric from beginning, from `acquire` until `release` or until it expires."""

    def __init__(self, client: Redis, metric: str, owner: str) -> None:
        self._client = client
        self._key = batch_lock_key(client, metric)
        self._metric = metric
        self._owner = owner

    def acquire(self, timeout_s: float = LOCK_TTL_S + 5) -> bool:
        """Return whether the lock was acquired.

        The default timeout outlasts the lock of an owner that died.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            if self._client.set(self._key, self._owner, nx=True, px=int(LOCK_TTL_S * 1000)):
                return True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_INTERVAL_S)

    def read_open_batch(self) -> BatchMark | None:
        """Return the batch that began before the lock was acquired and is still open, if any."""
        mark = read_batch_mark(self._client, self._metric)
        return mark if mark and not mark.is_written else None

    def renew(self) -> None:
        """Extend the lock by LOCK_TTL_S from now. Raises BatchLockLostError if it is lost."""
        is_owner = self._client.eval(_RENEW_LOCK, 1, self._key, self._owner, str(int(LOCK_TTL_S * 1000)))
        if not is_owner:
            raise BatchLockLostError(self._metric)

    def release(self) -> None:
        self._client.eval(_RENEW_LOCK, 1, self._key, self._owner, "0")


def _parse_mark(value: bytes | str | None) -> BatchMark | None:
    if not value:
        return None
    query_id, batch_id, is_written = json.loads(value)
    return BatchMark(str(query_id), int(batch_id), bool(is_written))
