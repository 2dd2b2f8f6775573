"""Ids are UUIDv7 as RFC 9562 has them: in the order of their making, also within one millisecond."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from penstock.ids import new_id, new_id_text


@given(st.integers(1, 50))
def test_an_id_is_a_uuid_of_version_7_and_the_usual_variant(count: int) -> None:
    for made in (*(new_id() for _ in range(count)), uuid.UUID(new_id_text())):
        assert isinstance(made, uuid.UUID)
        assert made.int >> 76 & 0xF == 7
        assert made.int >> 62 & 0b11 == 0b10
        assert len(str(made)) == 36


def test_an_id_begins_with_its_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id().int >> 80
    after = time.time_ns() // 1_000_000
    assert before <= made <= after + 1


def test_ids_come_in_order_even_within_a_millisecond() -> None:
    made = [new_id() for _ in range(50_000)]
    assert made == sorted(made)
    assert len({one.int >> 80 for one in made}) < len(made), "many of them share a millisecond"


def test_both_kinds_come_in_one_order_and_none_comes_twice() -> None:
    made = [str(new_id()) if n % 2 else new_id_text() for n in range(20_000)]
    assert made == sorted(set(made))


def test_ids_made_by_many_threads_are_all_different() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = [
            one for some in threads.map(lambda _: [new_id() for _ in range(5_000)], range(4)) for one in some
        ]
    assert len(set(made)) == len(made)
