"""Positions of the pipeline, and its progress report."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from redis import Redis

from penstock.streams.positions import (
    Position,
    decode_text,
    read_lag,
    read_position,
    read_stream_state,
    write_positions,
)
from penstock.streams.progress import PROGRESS_KEY, read_progress, write_progress


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def key() -> str:
    return f"positions-{uuid4().hex}"


def test_an_unknown_stream_has_no_state_and_no_position(redis: Redis, key: str) -> None:
    assert read_stream_state(redis, key) is None
    assert read_position(redis, key) is None
    assert read_lag(redis, key) == 0


def test_a_position_is_a_consumer_group_whose_lag_redis_knows(redis: Redis, key: str) -> None:
    ids = [decode_text(redis.xadd(key, {"n": n})) for n in range(10)]
    assert read_lag(redis, key) == 10
    write_positions(redis, {key: Position(ids[3], 4)})
    assert read_position(redis, key) == Position(ids[3], 4)
    assert read_lag(redis, key) == 6
    write_positions(redis, {key: Position(ids[9], 10)})
    assert read_lag(redis, key) == 0


def test_trimmed_entries_are_the_added_minus_the_remaining(redis: Redis, key: str) -> None:
    for n in range(10):
        redis.xadd(key, {"n": n})
    redis.xtrim(key, maxlen=4, approximate=False)
    state = read_stream_state(redis, key)
    assert state is not None
    assert (state.added, state.length, state.trimmed) == (10, 4, 6)


async def test_progress_is_read_as_it_was_written(redis: Redis, redis_url: str) -> None:
    assert read_progress(redis_url) is None
    write_progress(redis, {"at": 1.5, "lag": {"a": 3}})  # type: ignore[typeddict-item]
    assert read_progress(redis_url) == {"at": 1.5, "lag": {"a": 3}}
    redis.delete(PROGRESS_KEY)
