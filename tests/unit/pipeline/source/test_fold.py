"""Tests of folding: the result does not depend on how the stream is split, and the last value is right."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.definitions import QUEUE
from penstock.pipeline.source.digits import PADDING, as_words, parse_numbers
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.rows import Rows, concatenate, events_to_rows, sortable_id
from penstock.streams.wire import Event
from tests.unit.pipeline.source.test_resp_columns import comparable

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


def in_stream_order(unsorted: list[Event]) -> list[Event]:
    by_id = {(event.id_ms, event.id_sequence): event for event in unsorted}
    return [by_id[entry_id] for entry_id in sorted(by_id)]


@settings(deadline=None)
@given(st.lists(events, min_size=1, max_size=30).map(in_stream_order), st.integers(1, 30), st.randoms())
def test_folding_parts_and_then_their_results_equals_folding_all(
    stream: list[Event], size: int, random: Random
) -> None:
    def fold_events(part: list[Event]) -> Rows:
        return fold(events_to_rows(QUEUE, part), QUEUE.bucket_ms)

    parts = [fold_events(stream[i : i + size]) for i in range(0, len(stream), size)]
    random.shuffle(parts)
    assert comparable(fold(concatenate(parts), QUEUE.bucket_ms)) == comparable(fold_events(stream))


def test_an_event_goes_to_the_bucket_of_its_own_time() -> None:
    late = Event(NOW_MS, 0, NOW_MS - 60_001, ("o", "p", "e", "q", ""), {"enqueued": 1}, {}, {})
    folded = fold(events_to_rows(QUEUE, [late]), QUEUE.bucket_ms)
    assert folded.at_ms.tolist() == [(NOW_MS - 60_001) // 5_000 * 5_000]
    assert folded.newest_ms.tolist() == [NOW_MS - 60_001]


def test_the_last_value_is_the_one_with_the_highest_stream_id() -> None:
    dimensions = ("o", "p", "e", "q", "")
    stream = [
        Event(NOW_MS + 1, 0, NOW_MS, dimensions, {}, {"depth": 0}, {}),
        Event(NOW_MS, 9, NOW_MS + 1, dimensions, {}, {"depth": 5}, {}),
        Event(NOW_MS + 2, 0, NOW_MS, dimensions, {}, {"limit": 3}, {}),
        Event(NOW_MS + 3, 0, NOW_MS, dimensions, {"enqueued": 1}, {}, {}),
    ]
    folded = fold(events_to_rows(QUEUE, stream), QUEUE.bucket_ms)
    assert (folded.gauge_max["depth"].tolist(), folded.gauge_last["depth"].tolist()) == ([5], [0])
    assert folded.gauge_last["limit"].tolist() == [3]
    assert folded.seen_id.tolist() == [(NOW_MS + 2) << 22]


id_tuples = st.tuples(st.integers(0, (1 << 41) - 1), st.integers(0, (1 << 14) - 1), st.integers(0, 255))
ids_of_one_millisecond = st.tuples(st.just(NOW_MS), st.integers(0, 1 << 40), st.integers(0, 255))


@given(st.one_of(st.lists(id_tuples, unique=True), st.lists(ids_of_one_millisecond, unique=True)))
def test_sortable_ids_are_in_the_order_of_entries_and_events(stream: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*sorted(stream), strict=True)]
    if columns:
        assert np.all(np.diff(sortable_id(*columns)) > 0)


def test_sums_stay_exact_beyond_the_precision_of_a_double() -> None:
    stream = [
        Event(NOW_MS, n, NOW_MS, ("o", "p", "e", "q", ""), {"enqueued": 10**15 - 1}, {}, {})
        for n in range(100)
    ]
    folded = fold(events_to_rows(QUEUE, stream), QUEUE.bucket_ms)
    assert folded.counters["enqueued"].tolist() == [100 * (10**15 - 1)]


@given(
    st.lists(st.one_of(st.integers(0, 10**17).map(str), st.text("0123456789:/ -a", max_size=18)), min_size=1)
)
def test_only_texts_of_1_to_15_digits_are_valid_numbers(texts: list[str]) -> None:
    buffer, starts, ends = bytearray(PADDING), [], []
    for text in texts:
        starts.append(len(buffer))
        buffer += text.encode()
        ends.append(len(buffer))
        buffer += b","
    buffer += bytes(PADDING)
    values, valid = parse_numbers(as_words(np.frombuffer(buffer, np.uint8)), np.array(starts), np.array(ends))
    for text, value, is_number in zip(texts, values, valid, strict=True):
        assert is_number == (text.isdigit() and len(text) <= 15)
        assert not is_number or value == int(text)
