"""Ids are UUIDv7 (RFC 9562) and increase, even within one millisecond."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from penstock.ids import new_id, new_id_text


@given(st.integers(1, 50))
def test_an_id_is_a_uuid_of_version_7_and_the_rfc_variant(count: int) -> None:
    for new in (*(new_id() for _ in range(count)), uuid.UUID(new_id_text())):
        assert isinstance(new, uuid.UUID)
        assert new.int >> 76 & 0xF == 7
        assert new.int >> 62 & 0b11 == 0b10
        assert len(str(new)) == 36


def test_an_id_starts_with_its_time_in_milliseconds() -> None:
    before_ms = time.time_ns() // 1_000_000
    id_ms = new_id().int >> 80
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= id_ms <= after_ms + 1


def test_ids_increase_even_within_a_millisecond() -> None:
    ids = [new_id() for _ in range(50_000)]
    assert ids == sorted(ids)
    assert len({new.int >> 80 for new in ids}) < len(ids), "many ids share a millisecond"


def test_id_objects_and_id_texts_share_one_order_without_duplicates() -> None:
    ids = [str(new_id()) if n % 2 else new_id_text() for n in range(20_000)]
    assert ids == sorted(set(ids))


def test_ids_of_many_threads_are_unique() -> None:
    with ThreadPoolExecutor(4) as threads:
        ids_per_thread = threads.map(lambda _: [new_id() for _ in range(5_000)], range(4))
        ids = list(chain.from_iterable(ids_per_thread))
    assert len(set(ids)) == len(ids)
