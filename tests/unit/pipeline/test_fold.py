"""Folding: the same result whatever the parts, and the right last value."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.definitions import QUEUE
from penstock.pipeline.source.digits import PADDING, parse, words_of
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.rows import Rows, concatenated, id_number, rows_of_events
from penstock.streams.wire import Event
from tests.unit.pipeline.test_reply import comparable

NOW_MS = 1_790_000_000_000

events = st.builds(
    Event,
    id_ms=st.integers(NOW_MS, NOW_MS + 20),
    id_sequence=st.integers(0, 5),
    at_ms=st.integers(NOW_MS - 7_000, NOW_MS + 7_000),
    dimensions=st.tuples(*[st.sampled_from(["", "a"])] * 2, *[st.just("x")] * 3),
    counters=st.dictionaries(st.sampled_from(["enqueued", "acked"]), st.integers(0, 10**15), max_size=2),
    gauges=st.dictionaries(st.sampled_from(["depth", "limit"]), st.integers(0, 10**15), max_size=2),
    samples=st.dictionaries(
        st.just("wait_ms"), st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=1
    ),
)


def in_order(found: list[Event]) -> list[Event]:
    by_id = {(event.id_ms, event.id_sequence): event for event in found}
    return [by_id[place] for place in sorted(by_id)]


@settings(deadline=None)
@given(st.lists(events, min_size=1, max_size=30).map(in_order), st.integers(1, 30), st.randoms())
def test_folding_parts_first_changes_nothing(found: list[Event], size: int, random: object) -> None:
    def folded(some: list[Event]) -> Rows:
        return fold(rows_of_events(QUEUE, some), QUEUE.bucket_ms)

    parts = [folded(found[i : i + size]) for i in range(0, len(found), size)]
    random.shuffle(parts)  # type: ignore[attr-defined]
    assert comparable(fold(concatenated(parts), QUEUE.bucket_ms)) == comparable(folded(found))


def test_an_event_goes_to_the_bucket_of_its_own_time() -> None:
    late = Event(NOW_MS, 0, NOW_MS - 60_001, ("o", "p", "e", "q", ""), {"enqueued": 1}, {}, {})
    folded = fold(rows_of_events(QUEUE, [late]), QUEUE.bucket_ms)
    assert folded.at_ms.tolist() == [(NOW_MS - 60_001) // 5_000 * 5_000]
    assert folded.newest_ms.tolist() == [NOW_MS - 60_001]


def test_the_last_value_is_the_one_that_entered_the_stream_last() -> None:
    place = ("o", "p", "e", "q", "")
    found = [
        Event(NOW_MS + 1, 0, NOW_MS, place, {}, {"depth": 0}, {}),
        Event(NOW_MS, 9, NOW_MS + 1, place, {}, {"depth": 5}, {}),
        Event(NOW_MS + 2, 0, NOW_MS, place, {}, {"limit": 3}, {}),
        Event(NOW_MS + 3, 0, NOW_MS, place, {"enqueued": 1}, {}, {}),
    ]
    folded = fold(rows_of_events(QUEUE, found), QUEUE.bucket_ms)
    assert (folded.gauge_max["depth"].tolist(), folded.gauge_last["depth"].tolist()) == ([5], [0])
    assert folded.gauge_last["limit"].tolist() == [3]
    assert folded.seen_id.tolist() == [(NOW_MS + 2) << 22]


places = st.tuples(st.integers(0, (1 << 41) - 1), st.integers(0, (1 << 14) - 1), st.integers(0, 255))
crowded = st.tuples(st.just(NOW_MS), st.integers(0, 1 << 40), st.integers(0, 255))


@given(st.one_of(st.lists(places, unique=True), st.lists(crowded, unique=True)))
def test_the_number_of_a_place_is_in_the_order_of_ids_and_events(found: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*sorted(found), strict=True)]
    if columns:
        assert np.all(np.diff(id_number(*columns)) > 0)


def test_sums_stay_exact_beyond_what_a_double_holds() -> None:
    found = [
        Event(NOW_MS, n, NOW_MS, ("o", "p", "e", "q", ""), {"enqueued": 10**15 - 1}, {}, {})
        for n in range(100)
    ]
    folded = fold(rows_of_events(QUEUE, found), QUEUE.bucket_ms)
    assert folded.counters["enqueued"].tolist() == [100 * (10**15 - 1)]


@given(
    st.lists(st.one_of(st.integers(0, 10**17).map(str), st.text("0123456789:/ -a", max_size=18)), min_size=1)
)
def test_numbers_are_told_from_what_is_none(texts: list[str]) -> None:
    buffer, starts, ends = bytearray(PADDING), [], []
    for text in texts:
        starts.append(len(buffer))
        buffer += text.encode()
        ends.append(len(buffer))
        buffer += b","
    buffer += bytes(PADDING)
    values, good = parse(words_of(np.frombuffer(buffer, np.uint8)), np.array(starts), np.array(ends))
    for text, value, is_number in zip(texts, values, good, strict=True):
        assert is_number == (text.isdigit() and len(text) <= 15)
        assert not is_number or value == int(text)
