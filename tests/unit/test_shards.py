"""Assignment of keys to shards: stable, even, and with few moves when a shard is added."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.shards import jump_hash, shard_of


@pytest.mark.parametrize(
    ("key", "buckets", "expected"),
    [(0, 1, 0), (1, 1, 0), (0, 2, 0), (10863919174838991, 11, 6), (2016238256797177309, 11, 3)],
)
def test_jump_hash_returns_the_published_values(key: int, buckets: int, expected: int) -> None:
    assert jump_hash(key, buckets) == expected


def test_a_key_has_the_same_shard_in_every_process() -> None:
    assert [shard_of(name, 4) for name in ("orders", "e-mail", "größe", "")] == [1, 1, 3, 2]


def test_shards_get_equally_many_keys() -> None:
    counts = Counter(shard_of(f"queue-{i}", 4) for i in range(20_000))
    assert all(4_700 < counts[shard] < 5_300 for shard in range(4))


def test_a_new_shard_takes_only_its_share_of_the_keys() -> None:
    names = [f"queue-{i}" for i in range(5_000)]
    moved = [name for name in names if shard_of(name, 4) != shard_of(name, 5)]
    assert 0.15 < len(moved) / len(names) < 0.25
    assert {shard_of(name, 5) for name in moved} == {4}
