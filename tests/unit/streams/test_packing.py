"""Many events in one payload: they come out as they went in, and what is no payload is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.definitions import QUEUE, Dimension, Measure, MetricDefinition
from penstock.streams.packing import BrokenPackError, Fields, opened, pack, packed_payload, unpack

NOW_MS = 1_790_000_000_000

numbers = st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1), st.just(NOW_MS))
fields = st.dictionaries(
    st.sampled_from([m.wire for m in (*QUEUE.counters, *QUEUE.gauges)] + ["t"]), numbers, max_size=5
)
texts = st.dictionaries(
    st.sampled_from([dimension.wire for dimension in QUEUE.dimensions]), st.text(max_size=5), max_size=5
)
lists = st.dictionaries(
    st.sampled_from([sample.wire for sample in QUEUE.samples]),
    st.one_of(st.integers(-5, 10**6), st.text("0123456789,-x", max_size=9)),
    max_size=2,
)
events = st.lists(
    st.builds(lambda a, b, c: {**a, **b, **c}, fields, texts, lists), min_size=1, max_size=30
).map(lambda found: [(some, NOW_MS + i) for i, some in enumerate(found)])


def as_entries(found: list[tuple[Fields, int]]) -> list[list[tuple[bytes, bytes]]]:
    return [
        [
            (name.encode(), str(value).encode())
            for name, value in ({**some} | {"t": some.get("t", at)}).items()
        ]
        for some, at in found
    ]


@settings(deadline=None, max_examples=150)
@given(events)
def test_events_come_out_as_they_went_in(found: list[tuple[Fields, int]]) -> None:
    payload = pack(QUEUE, found)
    if payload is None:
        # Only for numbers that no column can hold.
        assert any(type(v) is int and abs(v) > 1 << 53 for some, _ in found for v in some.values())
    else:
        assert unpack(payload) == as_entries(found)


@pytest.mark.parametrize(
    "odd",
    [
        {"eq": "1"},
        {"eq": 1.5},
        {"eq": 1 << 64},
        {"queue": 5},
        {"wt": "٣"},
        {"wt": 1.5},
        {"op": "x"},
        {"ql": None},
    ],
    ids=str,
)
def test_an_event_of_another_kind_is_not_packed(odd: Fields) -> None:
    assert pack(QUEUE, [({"eq": 1}, NOW_MS), (odd, NOW_MS)]) is None


def test_what_events_have_in_common_takes_no_room() -> None:
    alike = [
        ({"org": "o", "queue": f"q{n % 9}", "eq": 1, "ql": n % 100}, NOW_MS + n % 20) for n in range(256)
    ]
    payload = pack(QUEUE, alike)
    assert payload is not None
    assert len(payload) < 256 * 5


SOME = [({"queue": f"q{n % 3}", "eq": n, "wt": f"{n},1"}, NOW_MS + n) for n in range(20)]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_payload_is_refused_or_still_a_pack(data: st.DataObject) -> None:
    payload = bytearray(pack(QUEUE, SOME) or b"")
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = (
        bytes(payload[: data.draw(st.integers(0, len(payload)))]) if data.draw(st.booleans()) else payload
    )
    try:
        found = unpack(damaged)
    except BrokenPackError:
        return
    assert 0 < len(found) <= 256


GOOD = [
    1,
    [["queue", "eq"], ["wt"]],
    b"\0\0\1",
    {"eq": [0, b"\1\2"]},
    {"queue": [["a", "b"], b"\0\1"]},
    {"wt": [[3, b""], b"1,2"]},
]


def changed(place: int, value: object) -> bytes:
    return msgpack.encode([value if i == place else part for i, part in enumerate(GOOD)])


def test_a_pack_written_by_hand_is_read() -> None:
    assert unpack(msgpack.encode(GOOD)) == [
        [(b"queue", b"a"), (b"eq", b"1")],
        [(b"queue", b"b"), (b"eq", b"2")],
        [(b"wt", b"1,2")],
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"text",
        msgpack.encode(GOOD)[:-1],
        msgpack.encode([*GOOD, 1]),
        b"\x91" * 100_000,
        changed(0, 2),
        changed(1, [["queue", "eq"]]),
        changed(1, [["queue", "eq"], ["wt"], *[["dq"]] * 300]),
        changed(1, [["queue", "eq", "ql"], ["wt"]]),
        changed(1, [["queue", "eq", "eq"], ["wt"]]),
        changed(1, [["queue", "dq"], ["wt"]]),
        changed(1, [["group", "eq"], ["wt"]]),
        changed(3, {"eq": [0, b"\1\2"], "wt": [1, b""]}),
        changed(3, {"queue": [1, b""]}),
        changed(2, b""),
        changed(2, b"\0\0\7"),
        changed(2, b"\0\1" * 1000),
        changed(3, {"eq": [0, b"\1\2\3"]}),
        changed(3, {"eq": [0, b"\1" * 6]}),
        changed(3, {"eq": [1 << 60, b"\1\2"]}),
        changed(3, {"eq": [1, b"\1" * 16]}),
        changed(3, {"eq": [1 << 63, b""]}),
        changed(3, {"dq": [0, b"\1\2"]}),
        changed(4, {"group": [["a"], b""]}),
        changed(4, {"queue": [["a", "b"], b"\0\2"]}),
        changed(4, {"queue": [["a", "b"], b"\0"]}),
        changed(4, {"queue": [[], b"\0\0"]}),
        changed(4, {"queue": [["a"], b"\0\0"]}),
        changed(5, {"wt": [[4, b""], b"1,2"]}),
        changed(5, {"wt": [[-3, b""], b"1,2"]}),
        changed(5, {"wt": [[1 << 50, b""], b"1,2"]}),
    ],
)
def test_what_does_not_fit_together_is_refused(payload: bytes) -> None:
    with pytest.raises(BrokenPackError):
        opened(payload)


def test_a_packed_entry_has_its_field_and_no_other() -> None:
    assert packed_payload([(b"p", b"x")]) == b"x"
    assert packed_payload([(b"p", b"x"), (b"eq", b"1")]) is None
    assert packed_payload([]) is None
    with pytest.raises(ValueError, match="wire names"):
        MetricDefinition("m", (Dimension("d", "d", ""),), (Measure("c", "p", ""),))
