"""Key names: one slot per shard, a unique name per queue, task ids that name their shard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownTask
from penstock.model import Scope
from penstock.runqueue import keys

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(st.integers(0, 255), names, names)
def test_all_keys_of_a_shard_and_its_stream_are_in_one_slot(shard: int, environment: str, queue: str) -> None:
    scope = Scope(environment=environment)
    prefix = keys.shard_prefix(shard)
    all_keys = [*keys.script_keys(shard), prefix + keys.REPAIR_LOCK]
    for key_prefix in (*keys.KEY_PREFIXES.values(), *keys.ENVIRONMENTS_KEY.values()):
        all_keys += [
            prefix + key_prefix + keys.environment_name(scope),
            prefix + key_prefix + keys.queue_name(scope, queue),
        ]
    assert len({key_slot(key.encode()) for key in all_keys}) == 1
    assert keys.stream_key(shard) in QUEUE.stream_keys


@given(st.tuples(names, names, names, names), st.tuples(names, names, names, names))
def test_different_queues_have_different_names(
    first: tuple[str, str, str, str], second: tuple[str, str, str, str]
) -> None:
    def name(parts: tuple[str, str, str, str]) -> str:
        return keys.queue_name(Scope(*parts[:3]), parts[3])

    assert (name(first) == name(second)) == (first == second)
    assert keys.parse_queue_name(name(first)) == (Scope(*first[:3]), first[3])


def test_shards_share_no_key() -> None:
    all_keys = [key for shard in range(16) for key in keys.script_keys(shard)[:-1]]
    assert len(set(all_keys)) == len(all_keys)


@given(st.integers(0, 255))
def test_a_task_id_names_its_shard(shard: int) -> None:
    assert keys.shard_of_task(keys.new_task_id(shard)) == shard


@pytest.mark.parametrize("task_id", ["", "-", "a", "a-", "a-b", "a-256", "a-1.0", "x" * 100 + "-1", "a-²"])
def test_a_text_that_is_no_task_id_is_refused(task_id: str) -> None:
    with pytest.raises(UnknownTask):
        keys.shard_of_task(task_id)


@pytest.mark.parametrize("queue", ["", "x" * 256, "\udc00"])
def test_an_invalid_queue_name_is_refused(queue: str) -> None:
    with pytest.raises(InvalidRequest):
        keys.queue_name(Scope(), queue)


def test_the_number_of_shards_and_the_records_are_in_one_slot() -> None:
    """One script uses both."""
    assert key_slot(keys.SHARDS_KEY.encode()) == key_slot(keys.SHARD_RECORDS_KEY.encode())


@given(names, st.integers(1, keys.MAX_SHARDS), st.integers(1, keys.MAX_SHARDS))
def test_the_possible_shards_are_those_of_all_numbers(name: str, first_count: int, count: int) -> None:
    scope = Scope(environment=name)
    shards = keys.possible_shards(scope, first_count, count)
    assert shards[0] == keys.shard_of_environment(scope, first_count)
    assert {keys.shard_of_environment(scope, number) for number in range(1, count + 1)} <= set(shards)
    assert len(shards) == len(set(shards))


def test_environments_spread_over_the_shards() -> None:
    shards = [keys.shard_of_environment(Scope(environment=str(n)), 8) for n in range(400)]
    assert min(shards.count(shard) for shard in range(8)) > 25
