"""The mark of the batch under way, and holding the next one back."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
from redis import Redis

from penstock.streams import batch_lock
from penstock.streams.batch_lock import Hold, HoldLostError, Mark, begin_batch, hold_key, mark_key, read_mark

METRIC = "queue"


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(urlunsplit(urlsplit(redis_url)._replace(path="/11"))) as client:
        client.flushdb()
        yield client


def test_a_batch_is_open_until_it_is_marked_as_written(redis: Redis) -> None:
    assert begin_batch(redis, METRIC, "q", 1) == (True, None)
    assert read_mark(redis, METRIC) == Mark("q", 1, False)
    redis.set(mark_key(METRIC), Mark("q", 1, True).text)
    assert begin_batch(redis, METRIC, "q", 2) == (True, Mark("q", 1, True))


def test_a_batch_that_was_written_stays_so_when_it_is_repeated(redis: Redis) -> None:
    redis.set(mark_key(METRIC), Mark("q", 1, True).text)
    assert begin_batch(redis, METRIC, "q", 1) == (True, Mark("q", 1, True))
    assert read_mark(redis, METRIC) == Mark("q", 1, True)


def test_no_batch_begins_while_somebody_holds_the_metric(redis: Redis) -> None:
    begin_batch(redis, METRIC, "q", 1)
    hold = Hold(redis, METRIC, "me")
    assert hold.take()
    assert hold.open_batch() == Mark("q", 1, False)
    redis.set(mark_key(METRIC), Mark("q", 1, True).text)
    assert hold.open_batch() is None
    assert begin_batch(redis, METRIC, "q", 2) == (False, Mark("q", 1, True))
    assert hold.open_batch() is None
    assert begin_batch(redis, "another", "q", 2) == (True, None)
    hold.release()
    assert begin_batch(redis, METRIC, "q", 2)[0]


def test_a_hold_is_somebodys_and_ends_by_itself(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, yours = Hold(redis, METRIC, "me"), Hold(redis, METRIC, "you")
    assert mine.take()
    assert not yours.take(patience_s=0)
    with pytest.raises(HoldLostError):
        yours.renew()
    yours.release()
    mine.renew()
    assert 0 < redis.pttl(hold_key(METRIC)) <= batch_lock.HOLD_S * 1000
    redis.pexpire(hold_key(METRIC), 300)  # its holder died
    assert yours.take(patience_s=20)
    with pytest.raises(HoldLostError):
        mine.renew()
