"""The fast reader of stream replies agrees with the plain one, on usual and unusual entries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.definitions import QUEUE
from penstock.pipeline.fold import fold
from penstock.pipeline.reply import read_reply
from penstock.pipeline.rows import Rows, rows_of_events
from penstock.streams.wire import Event, Reason, SetAside, read_entry

NOW_MS = 1_790_000_000_000
Entry = tuple[bytes, list[tuple[bytes, bytes]]]


def encoded(entries: list[Entry]) -> tuple[bytes, int, int]:
    """The reply as Redis would send it, with room around it."""
    parts = [b"*%d\r\n" % len(entries)]
    for entry_id, pairs in entries:
        parts.append(b"*2\r\n$%d\r\n%s\r\n*%d\r\n" % (len(entry_id), entry_id, 2 * len(pairs)))
        parts += [b"$%d\r\n%s\r\n" % (len(text), text) for pair in pairs for text in pair]
    reply = b"".join(parts)
    return b"." * 8 + reply + b"." * 8, 8, 8 + len(reply)


def comparable(rows: Rows) -> list[tuple[object, ...]]:
    """Folded rows as plain values in a fixed order."""
    out = []
    for i in range(len(rows)):
        lists = []
        for column in rows.samples.values():
            start = int(column.lengths[:i].sum())
            lists.append(sorted(column.values[start : start + int(column.lengths[i])].tolist()))
        numbers = [rows.at_ms, rows.newest_ms, rows.events, rows.seen_ms, rows.seen_id]
        numbers += [*rows.counters.values(), *rows.gauge_max.values(), *rows.gauge_last.values()]
        out.append((*(d[i].as_py() for d in rows.dimensions), *(int(c[i]) for c in numbers), *lists))
    return sorted(out)


def plainly(entries: list[Entry]) -> tuple[list[tuple[object, ...]], Counter[Reason]]:
    read = [read_entry(QUEUE, *entry) for entry in entries]
    events = [event for event in read if isinstance(event, Event)]
    reasons = Counter(aside.reason for aside in read if isinstance(aside, SetAside))
    return comparable(fold(rows_of_events(QUEUE, events), QUEUE.bucket_ms)), reasons


def quickly(entries: list[Entry]) -> tuple[list[tuple[object, ...]], Counter[Reason]]:
    chunk = read_reply(QUEUE, *encoded(entries))
    assert chunk.entries == len(entries)
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


extra = st.one_of(
    field([m.wire for m in (*QUEUE.counters, *QUEUE.gauges)], numbers),
    field([m.wire for m in QUEUE.samples], lists),
    field(["group"], texts),
    field(["t"], st.one_of(times, numbers)),
    field(["op", "unknown_and_long", "eq\0", "", "org\0"], texts),
)
required = st.tuples(*(st.tuples(st.just(name), texts) for name in (b"org", b"proj", b"env", b"queue")))
pairs = st.tuples(required.map(list), st.lists(extra, max_size=6)).map(lambda both: both[0] + both[1])
usual = st.lists(
    field([m.wire for m in (*QUEUE.counters, *QUEUE.gauges)], st.integers(0, 999).map(lambda n: b"%d" % n)),
    min_size=1,
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(lambda more: [(b"org", b"o"), (b"proj", b"p"), (b"env", b"e"), (b"queue", b"q"), *more])


@st.composite
def streams(draw: st.DrawFn) -> list[Entry]:
    bodies = draw(st.lists(st.one_of(usual, pairs, st.lists(extra, min_size=1, max_size=3)), max_size=12))
    steps = draw(st.lists(st.integers(0, 4000), min_size=len(bodies), max_size=len(bodies)))
    milliseconds, entries = NOW_MS, []
    for sequence, (body, step) in enumerate(zip(bodies, steps, strict=True)):
        milliseconds += step
        entries.append((b"%d-%d" % (milliseconds, sequence), body))
    return entries


BASE = [(b"org", b"o"), (b"proj", b"p"), (b"env", b"e"), (b"queue", b"q")]


@settings(deadline=None, max_examples=300)
@given(streams())
@example([(b"%d-0" % NOW_MS, [*BASE, (b"wt", b"1,2,3"), (b"rt", b"")])])
@example([(b"%d-0" % NOW_MS, [*BASE, (b"eq", b"1")]), (b"%d-1" % NOW_MS, [*BASE, (b"eq", b"x")])])
@example([(b"%d-0" % NOW_MS, [*BASE, (b"eq", b"1"), (b"eq", b"1")])])
@example([(b"5-3", [*BASE, (b"eq", b"1")])])
def test_the_fast_reader_gives_what_the_plain_one_gives(entries: list[Entry]) -> None:
    assert quickly(entries) == plainly(entries)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([(b"org", b"o"), (b"eq", b"1")], Reason.MISSING_DIMENSION),
        ([*BASE[:3], (b"queue", b"\xff"), (b"eq", b"1")], Reason.NOT_TEXT),
        ([*BASE, (b"eq", b"one")], Reason.NOT_A_NUMBER),
        ([*BASE, (b"wt", b"1,,2")], Reason.NOT_A_NUMBER),
        ([*BASE, (b"eq", b"-1")], Reason.NEGATIVE_COUNT),
        ([*BASE, (b"ql", b"1" * 16)], Reason.TOO_LARGE),
        ([*BASE, (b"eq", b"1"), (b"t", b"1790000000")], Reason.BAD_TIME),
        ([*BASE, (b"eq", b"1"), (b"eq", b"2")], Reason.REPEATED_FIELD),
        ([*BASE, (b"op", b"enqueue")], Reason.NOTHING_MEASURED),
    ],
)
def test_an_entry_that_cannot_be_counted_is_set_aside_alone(
    pairs: list[tuple[bytes, bytes]], reason: Reason
) -> None:
    good: list[tuple[bytes, bytes]] = [*BASE, (b"eq", b"1")]
    entries = [(b"%d-%d" % (NOW_MS, i), body) for i, body in enumerate((good, pairs, good))]
    chunk = read_reply(QUEUE, *encoded(entries))
    assert chunk.set_aside == {reason: 1}
    assert chunk.examples[reason].startswith(f"{NOW_MS}-1 org=o")
    assert len(chunk.rows) == 2
    assert np.array_equal(chunk.rows.counters["enqueued"], [1, 1])


def test_a_negative_age_counts_as_zero() -> None:
    chunk = read_reply(QUEUE, *encoded([(b"%d-0" % NOW_MS, [*BASE, (b"age", b"-3")])]))
    assert not chunk.set_aside
    assert chunk.rows.gauge_last["oldest_age_ms"].tolist() == [0]


def test_an_empty_reply_holds_nothing() -> None:
    chunk = read_reply(QUEUE, *encoded([]))
    assert (chunk.entries, chunk.last_id, len(chunk.rows)) == (0, None, 0)
