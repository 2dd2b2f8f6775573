"""Marks of batches, and the lock that keeps a batch from beginning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from penstock.streams.batch_lock import (
    LOCK_TTL_S,
    BatchLock,
    BatchLockLostError,
    BatchMark,
    batch_lock_key,
    batch_mark_key,
    begin_batch,
    read_batch_mark,
)

METRIC = "queue"


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def test_a_batch_is_open_until_it_is_marked_as_written(redis: Redis) -> None:
    assert begin_batch(redis, METRIC, "q", 1) == (True, None)
    assert read_batch_mark(redis, METRIC) == BatchMark("q", 1, False)
    redis.set(batch_mark_key(redis, METRIC), BatchMark("q", 1, True).to_json())
    assert begin_batch(redis, METRIC, "q", 2) == (True, BatchMark("q", 1, True))


def test_a_written_batch_stays_written_when_it_is_repeated(redis: Redis) -> None:
    redis.set(batch_mark_key(redis, METRIC), BatchMark("q", 1, True).to_json())
    assert begin_batch(redis, METRIC, "q", 1) == (True, BatchMark("q", 1, True))
    assert read_batch_mark(redis, METRIC) == BatchMark("q", 1, True)


def test_no_batch_begins_while_the_lock_is_held(redis: Redis) -> None:
    begin_batch(redis, METRIC, "q", 1)
    lock = BatchLock(redis, METRIC, "owner")
    assert lock.acquire()
    assert lock.read_open_batch() == BatchMark("q", 1, False)
    redis.set(batch_mark_key(redis, METRIC), BatchMark("q", 1, True).to_json())
    assert lock.read_open_batch() is None
    assert begin_batch(redis, METRIC, "q", 2) == (False, BatchMark("q", 1, True))
    assert lock.read_open_batch() is None
    assert begin_batch(redis, "another", "q", 2) == (True, None)
    lock.release()
    assert begin_batch(redis, METRIC, "q", 2)[0]


def test_a_lock_has_one_owner_and_expires(redis: Redis) -> None:
    first, second = BatchLock(redis, METRIC, "first"), BatchLock(redis, METRIC, "second")
    assert first.acquire()
    assert not second.acquire(timeout_s=0)
    with pytest.raises(BatchLockLostError):
        second.renew()
    second.release()
    first.renew()
    assert 0 < redis.pttl(batch_lock_key(redis, METRIC)) <= LOCK_TTL_S * 1000
    redis.pexpire(batch_lock_key(redis, METRIC), 300)  # its owner died
    assert second.acquire(timeout_s=20)
    with pytest.raises(BatchLockLostError):
        first.renew()
