"""Packs of events: unpacking returns the packed events, and an invalid payload is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.definitions import QUEUE, Dimension, Measure, MetricDefinition
from penstock.streams.packing import Fields, InvalidPackError, decode_pack, pack, packed_payload, unpack

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
).map(lambda drawn: [(event, NOW_MS + i) for i, event in enumerate(drawn)])


def to_single_entries(events: list[tuple[Fields, int]]) -> list[list[tuple[bytes, bytes]]]:
    return [
        [
            (name.encode(), str(value).encode())
            for name, value in ({**event} | {"t": event.get("t", at_ms)}).items()
        ]
        for event, at_ms in events
    ]


@settings(deadline=None, max_examples=150)
@given(events)
def test_unpack_returns_the_packed_events(drawn_events: list[tuple[Fields, int]]) -> None:
    payload = pack(QUEUE, drawn_events)
    if payload is None:
        # Only numbers that no column can hold cannot be packed.
        assert any(type(v) is int and abs(v) > 1 << 53 for event, _ in drawn_events for v in event.values())
    else:
        assert unpack(payload) == to_single_entries(drawn_events)


@pytest.mark.parametrize(
    "fields",
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
def test_an_event_with_values_of_another_type_is_not_packed(fields: Fields) -> None:
    assert pack(QUEUE, [({"eq": 1}, NOW_MS), (fields, NOW_MS)]) is None


def test_equal_values_of_events_take_no_space() -> None:
    similar_events: list[tuple[Fields, int]] = [
        ({"org": "o", "queue": f"q{n % 9}", "eq": 1, "ql": n % 100}, NOW_MS + n % 20) for n in range(256)
    ]
    payload = pack(QUEUE, similar_events)
    assert payload is not None
    assert len(payload) < 256 * 5


EVENTS: list[tuple[Fields, int]] = [
    ({"queue": f"q{n % 3}", "eq": n, "wt": f"{n},1"}, NOW_MS + n) for n in range(20)
]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_payload_is_refused_or_a_valid_pack(data: st.DataObject) -> None:
    payload = bytearray(pack(QUEUE, EVENTS) or b"")
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = (
        bytes(payload[: data.draw(st.integers(0, len(payload)))]) if data.draw(st.booleans()) else payload
    )
    try:
        unpacked = unpack(damaged)
    except InvalidPackError:
        return
    assert 0 < len(unpacked) <= 256


VALID_PACK = [
    1,
    [["queue", "eq"], ["wt"]],
    b"\0\0\1",
    {"eq": [0, b"\1\2"]},
    {"queue": [["a", "b"], b"\0\1"]},
    {"wt": [[3, b""], b"1,2"]},
]


def replace_element(index: int, value: object) -> bytes:
    return msgpack.encode([value if i == index else element for i, element in enumerate(VALID_PACK)])


def test_a_pack_written_by_hand_is_read() -> None:
    assert unpack(msgpack.encode(VALID_PACK)) == [
        [(b"queue", b"a"), (b"eq", b"1")],
        [(b"queue", b"b"), (b"eq", b"2")],
        [(b"wt", b"1,2")],
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"text",
        msgpack.encode(VALID_PACK)[:-1],
        msgpack.encode([*VALID_PACK, 1]),
        b"\x91" * 100_000,
        replace_element(0, 2),
        replace_element(1, [["queue", "eq"]]),
        replace_element(1, [["queue", "eq"], ["wt"], *[["dq"]] * 300]),
        replace_element(1, [["queue", "eq", "ql"], ["wt"]]),
        replace_element(1, [["queue", "eq", "eq"], ["wt"]]),
        replace_element(1, [["queue", "dq"], ["wt"]]),
        replace_element(1, [["group", "eq"], ["wt"]]),
        replace_element(3, {"eq": [0, b"\1\2"], "wt": [1, b""]}),
        replace_element(3, {"queue": [1, b""]}),
        replace_element(2, b""),
        replace_element(2, b"\0\0\7"),
        replace_element(2, b"\0\1" * 1000),
        replace_element(3, {"eq": [0, b"\1\2\3"]}),
        replace_element(3, {"eq": [0, b"\1" * 6]}),
        replace_element(3, {"eq": [1 << 60, b"\1\2"]}),
        replace_element(3, {"eq": [1, b"\1" * 16]}),
        replace_element(3, {"eq": [1 << 63, b""]}),
        replace_element(3, {"dq": [0, b"\1\2"]}),
        replace_element(4, {"group": [["a"], b""]}),
        replace_element(4, {"queue": [["a", "b"], b"\0\2"]}),
        replace_element(4, {"queue": [["a", "b"], b"\0"]}),
        replace_element(4, {"queue": [[], b"\0\0"]}),
        replace_element(4, {"queue": [["a"], b"\0\0"]}),
        replace_element(5, {"wt": [[4, b""], b"1,2"]}),
        replace_element(5, {"wt": [[-3, b""], b"1,2"]}),
        replace_element(5, {"wt": [[1 << 50, b""], b"1,2"]}),
    ],
)
def test_an_inconsistent_pack_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidPackError):
        decode_pack(payload)


def test_a_packed_entry_has_only_the_field_p() -> None:
    assert packed_payload([(b"p", b"x")]) == b"x"
    assert packed_payload([(b"p", b"x"), (b"eq", b"1")]) is None
    assert packed_payload([]) is None
    with pytest.raises(ValueError, match="wire names"):
        MetricDefinition("m", (Dimension("d", "d", ""),), (Measure("c", "p", ""),))
