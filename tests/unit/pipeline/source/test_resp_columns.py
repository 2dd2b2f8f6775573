"""Tests that the columnar reader of XRANGE replies agrees with the one-by-one reader."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.definitions import QUEUE
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.resp_columns import read_xrange_reply
from penstock.pipeline.source.rows import Rows, events_to_rows
from penstock.streams.packing import Fields, pack
from penstock.streams.wire import Event, RejectedEvent, RejectionReason, read_events

NOW_MS = 1_790_000_000_000
Entry = tuple[bytes, list[tuple[bytes, bytes]]]


def encode_reply(entries: list[Entry]) -> tuple[bytes, int, int]:
    """Return the reply as Redis would send it, with padding on both sides, and its bounds."""
    parts = [b"*%d\r\n" % len(entries)]
    for entry_id, pairs in entries:
        parts.append(b"*2\r\n$%d\r\n%s\r\n*%d\r\n" % (len(entry_id), entry_id, 2 * len(pairs)))
        parts += [b"$%d\r\n%s\r\n" % (len(text), text) for pair in pairs for text in pair]
    reply = b"".join(parts)
    return b"." * 8 + reply + b"." * 8, 8, 8 + len(reply)


def comparable(rows: Rows) -> list[tuple[object, ...]]:
    """Return folded rows as plain values in a fixed order."""
    comparable_rows = []
    for i in range(len(rows)):
        lists = []
        for column in rows.samples.values():
            start = int(column.lengths[:i].sum())
            lists.append(sorted(column.values[start : start + int(column.lengths[i])].tolist()))
        numbers = [rows.at_ms, rows.newest_ms, rows.events, rows.seen_ms, rows.seen_id]
        numbers += [*rows.counters.values(), *rows.gauge_max.values(), *rows.gauge_last.values()]
        comparable_rows.append(
            (*(d[i].as_py() for d in rows.dimensions), *(int(c[i]) for c in numbers), *lists)
        )
    return sorted(comparable_rows)


def read_with_reference(entries: list[Entry]) -> tuple[list[tuple[object, ...]], Counter[RejectionReason]]:
    read = [event for entry in entries for event in read_events(QUEUE, *entry)]
    events = [event for event in read if isinstance(event, Event)]
    reasons = Counter(aside.reason for aside in read if isinstance(aside, RejectedEvent))
    return comparable(fold(events_to_rows(QUEUE, events), QUEUE.bucket_ms)), reasons


def read_as_columns(entries: list[Entry]) -> tuple[list[tuple[object, ...]], Counter[RejectionReason]]:
    chunk = read_xrange_reply(QUEUE, *encode_reply(entries))
    assert chunk.entries == len(entries)
    if entries:
        assert (chunk.first_id, chunk.last_id) == (entries[0][0], entries[-1][0])
    return comparable(fold(chunk.rows, QUEUE.bucket_ms)), chunk.set_aside


numbers = st.one_of(
    st.integers(0, 10**15).map(lambda n: b"%d" % n),
    st.integers(-5, 200).map(lambda n: b"%d" % n),
    st.sampled_from([b"", b"-", b"x", b"1.5", b"1e9", b" 1", b"007", b"9" * 15, b"9" * 16, b"-0"]),
    st.just("٣".encode()),
)
texts = st.one_of(
    st.sampled_from([b"a", b"b", b"default", b"", b"*2", b"*", b"$3", b"a:b", b"a\0"]),
    st.sampled_from([b"\xff\xfe", b"x\r\ny"]),
    st.text(min_size=1, max_size=8).map(lambda text: text.encode("utf-8", "replace")),
)
lists = st.lists(numbers, max_size=4).map(b",".join)
times = st.integers(-40 * 86_400_000, 2 * 86_400_000).map(lambda d: b"%d" % (NOW_MS + d))


def field(names: list[str], values: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[bytes, bytes]]:
    return st.tuples(st.sampled_from([name.encode() for name in names]), values)


extra_field = st.one_of(
    field([m.wire for m in (*QUEUE.counters, *QUEUE.gauges)], numbers),
    field([m.wire for m in QUEUE.samples], lists),
    field(["group"], texts),
    field(["t"], st.one_of(times, numbers)),
    field(["op", "unknown_and_long", "eq\0", "", "org\0"], texts),
)
required = st.tuples(*(st.tuples(st.just(name), texts) for name in (b"org", b"proj", b"env", b"queue")))
pairs = st.tuples(required.map(list), st.lists(extra_field, max_size=6)).map(lambda both: both[0] + both[1])
regular_fields = st.lists(
    field([m.wire for m in (*QUEUE.counters, *QUEUE.gauges)], st.integers(0, 999).map(lambda n: b"%d" % n)),
    min_size=1,
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(lambda more: [(b"org", b"o"), (b"proj", b"p"), (b"env", b"e"), (b"queue", b"q"), *more])


amounts = st.one_of(
    st.integers(0, 99), st.sampled_from([-1, 0, 10**15 - 1, 10**15, -(10**15), 300, 70_000, 1 << 40])
)
packed_texts = st.sampled_from(["a", "b", "default", "", "é", "x\r\ny", "*2"])
packable_fields = st.tuples(
    st.tuples(*[packed_texts] * 4).map(
        lambda texts: dict(zip(("org", "proj", "env", "queue"), texts, strict=True))
    ),
    st.dictionaries(st.sampled_from([m.wire for m in (*QUEUE.counters, *QUEUE.gauges)]), amounts, max_size=3),
    st.dictionaries(
        st.sampled_from([m.wire for m in QUEUE.samples]),
        st.one_of(lists.map(lambda text: text.decode("ascii", "ignore")), st.just("5,6")),
        max_size=2,
    ),
    st.dictionaries(st.just("group"), packed_texts),
    st.dictionaries(st.just("t"), times.map(int)),
    st.booleans(),
).map(lambda drawn: {name: v for fields in drawn[not drawn[5] : 5] for name, v in fields.items()})
payloads = st.lists(st.tuples(packable_fields, times.map(int)), min_size=1, max_size=8).map(
    lambda events: pack(QUEUE, events) or b"\0"
)
damaged_payloads = st.tuples(payloads, st.integers(0, 10_000), st.binary(min_size=1, max_size=1)).map(
    lambda drawn: drawn[0][: (index := drawn[1] % len(drawn[0]))] + drawn[2] + drawn[0][index + 1 :]
)
packed_fields = st.one_of(payloads, damaged_payloads, st.sampled_from([b"", b"\r\n", b"x"])).map(
    lambda payload: [(b"p", payload)]
)


@st.composite
def streams(draw: st.DrawFn) -> list[Entry]:
    kinds = st.one_of(regular_fields, packed_fields, pairs, st.lists(extra_field, min_size=1, max_size=3))
    bodies = draw(st.lists(kinds, max_size=12))
    steps = draw(st.lists(st.integers(0, 4000), min_size=len(bodies), max_size=len(bodies)))
    milliseconds, entries = NOW_MS, []
    for sequence, (body, step) in enumerate(zip(bodies, steps, strict=True)):
        milliseconds += step
        entries.append((b"%d-%d" % (milliseconds, sequence), body))
    return entries


BASE = [(b"org", b"o"), (b"proj", b"p"), (b"env", b"e"), (b"queue", b"q")]
DIMENSIONS = {name.decode(): text.decode() for name, text in BASE}
PACKED = pack(QUEUE, [({**DIMENSIONS, "ql": n}, NOW_MS) for n in range(3)]) or b""


@settings(deadline=None, max_examples=300)
@given(streams())
@example([(b"%d-0" % NOW_MS, [*BASE, (b"wt", b"1,2,3"), (b"rt", b"")])])
@example([(b"%d-0" % NOW_MS, [*BASE, (b"eq", b"1")]), (b"%d-1" % NOW_MS, [*BASE, (b"eq", b"x")])])
@example([(b"%d-0" % NOW_MS, [*BASE, (b"eq", b"1"), (b"eq", b"1")])])
@example([(b"5-3", [*BASE, (b"eq", b"1")])])
@example([(b"5-3", [*BASE, (b"eq", b"1"), (b"t", b"-2")])])
@example([(b"9999999999999-0", [*BASE, (b"eq", b"1")]), (b"9999999999999-1", [(b"p", b"x"), (b"q", b"x")])])
@example([(b"18446744073709551615-18446744073709551615", [*BASE, (b"eq", b"1")])])
@example([(b"%d-18446744073709551615" % NOW_MS, [*BASE, (b"ql", b"1")])])
@example([(b"18446744073709551615-18446744073709551615", [(b"p", PACKED)])])
@example([(b"%d-18446744073709551615" % NOW_MS, [(b"p", PACKED)])])
@example([(b"%d-0" % NOW_MS, [*BASE, (b"p", PACKED), (b"eq", b"1")])])
def test_both_readers_return_the_same_rows_and_reasons(entries: list[Entry]) -> None:
    assert read_as_columns(entries) == read_with_reference(entries)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([(b"org", b"o"), (b"eq", b"1")], RejectionReason.MISSING_DIMENSION),
        ([*BASE[:3], (b"queue", b"\xff"), (b"eq", b"1")], RejectionReason.NOT_TEXT),
        ([*BASE, (b"eq", b"one")], RejectionReason.NOT_A_NUMBER),
        ([*BASE, (b"wt", b"1,,2")], RejectionReason.NOT_A_NUMBER),
        ([*BASE, (b"eq", b"-1")], RejectionReason.NEGATIVE_COUNT),
        ([*BASE, (b"ql", b"1" * 16)], RejectionReason.TOO_LARGE),
        ([*BASE, (b"eq", b"1"), (b"t", b"1790000000")], RejectionReason.BAD_TIME),
        ([*BASE, (b"eq", b"1"), (b"eq", b"2")], RejectionReason.REPEATED_FIELD),
        ([*BASE, (b"op", b"enqueue")], RejectionReason.NOTHING_MEASURED),
    ],
)
def test_an_entry_that_cannot_be_counted_is_set_aside_alone(
    pairs: list[tuple[bytes, bytes]], reason: RejectionReason
) -> None:
    valid: list[tuple[bytes, bytes]] = [*BASE, (b"eq", b"1")]
    entries = [(b"%d-%d" % (NOW_MS, i), body) for i, body in enumerate((valid, pairs, valid))]
    chunk = read_xrange_reply(QUEUE, *encode_reply(entries))
    assert chunk.set_aside == {reason: 1}
    assert chunk.examples[reason].startswith(f"{NOW_MS}-1 org=o")
    assert len(chunk.rows) == 2
    assert np.array_equal(chunk.rows.counters["enqueued"], [1, 1])


def test_an_event_of_a_pack_that_cannot_be_counted_is_set_aside_alone() -> None:
    events: list[tuple[Fields, int]] = [
        ({**DIMENSIONS, "eq": 1}, NOW_MS),
        ({**DIMENSIONS, "eq": -1}, NOW_MS),
        ({**DIMENSIONS, "eq": 2, "wt": "x"}, NOW_MS),
    ]
    payload = pack(QUEUE, [*events, events[0]])
    assert payload is not None
    chunk = read_xrange_reply(QUEUE, *encode_reply([(b"%d-7" % NOW_MS, [(b"p", payload)])]))
    assert chunk.set_aside == {RejectionReason.NEGATIVE_COUNT: 1, RejectionReason.NOT_A_NUMBER: 1}
    assert chunk.examples[RejectionReason.NEGATIVE_COUNT].startswith(f"{NOW_MS}-7#1 org=o")
    assert chunk.rows.counters["enqueued"].tolist() == [1, 1]


def test_a_broken_pack_is_set_aside_with_its_bytes_and_other_entries_are_counted() -> None:
    valid: list[tuple[bytes, bytes]] = [*BASE, (b"eq", b"1")]
    bodies = [valid, [(b"p", PACKED[:-2])], [(b"p", PACKED)], valid]
    chunk = read_xrange_reply(
        QUEUE, *encode_reply([(b"%d-%d" % (NOW_MS, i), body) for i, body in enumerate(bodies)])
    )
    assert chunk.set_aside == {RejectionReason.BROKEN_PACK: 1}
    assert chunk.examples[RejectionReason.BROKEN_PACK].startswith(f"{NOW_MS}-1 p=0x96")
    assert (chunk.entries, len(chunk.rows)) == (4, 5)


def test_the_last_gauge_value_of_a_pack_is_independent_of_event_shapes() -> None:
    depths = [{"ql": 1}, {"ql": 2, "eq": 1}, {"ql": 3}, {"ql": 4, "eq": 1}, {"ql": 5}]
    payload = pack(QUEUE, [({**DIMENSIONS, **fields}, NOW_MS) for fields in depths])
    assert payload is not None
    entries: list[Entry] = [(b"%d-%d" % (NOW_MS, i), [(b"p", payload)]) for i in range(2)]
    folded = fold(read_xrange_reply(QUEUE, *encode_reply(entries)).rows, QUEUE.bucket_ms)
    assert (folded.gauge_last["depth"].tolist(), folded.events.tolist()) == ([5], [10])
    assert folded.seen_id.tolist() == [(NOW_MS << 22) + (1 << 8) + 4]


def test_text_that_looks_like_a_packed_entry_stays_text() -> None:
    inner = b"x\r\n*2\r\n$15\r\n%d-9\r\n*2\r\n$1\r\np\r\n$%d\r\n%s\r\n" % (NOW_MS, len(PACKED), PACKED)
    forged = encode_reply([(b"%d-9" % NOW_MS, [*BASE, (b"eq", b"7")])])[0][12:-10]
    for text in (inner, inner + forged, inner[3:-2]):
        entries: list[Entry] = [
            (b"%d-0" % NOW_MS, [*BASE, (b"eq", b"1"), (b"op", text)]),
            (b"%d-1" % NOW_MS, [(b"p", PACKED)]),
        ]
        assert read_as_columns(entries) == read_with_reference(entries)
        assert read_xrange_reply(QUEUE, *encode_reply(entries)).rows.counters["enqueued"].sum() == 1


def test_a_negative_age_counts_as_zero() -> None:
    chunk = read_xrange_reply(QUEUE, *encode_reply([(b"%d-0" % NOW_MS, [*BASE, (b"age", b"-3")])]))
    assert not chunk.set_aside
    assert chunk.rows.gauge_last["oldest_age_ms"].tolist() == [0]


def test_an_empty_reply_holds_nothing() -> None:
    chunk = read_xrange_reply(QUEUE, *encode_reply([]))
    assert (chunk.entries, chunk.last_id, len(chunk.rows)) == (0, None, 0)
