"""Tests do not share the data of Redis."""

from __future__ import annotations

from redis import Redis

from tests.redis_databases import RedisDatabases


def test_reserved_databases_are_separate(redis_databases: RedisDatabases, redis_url: str) -> None:
    with redis_databases.reserve() as first_url, redis_databases.reserve() as second_url:
        assert len({redis_url, first_url, second_url}) == 3
        with Redis.from_url(first_url) as first, Redis.from_url(second_url) as second:
            first.set("key", "value")
            assert second.get("key") is None


def test_a_database_is_empty_when_it_is_reserved_again(redis_databases: RedisDatabases) -> None:
    with redis_databases.reserve() as old_url, Redis.from_url(old_url) as client:
        client.set("key", "value")
    new_url = ""
    while new_url != old_url:
        with redis_databases.reserve() as new_url, Redis.from_url(new_url) as client:
            assert client.dbsize() == 0
