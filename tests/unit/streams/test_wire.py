"""The reference reader of stream entries."""

from __future__ import annotations

import pytest

from penstock.definitions import QUEUE, Dimension, Measure, MetricDefinition
from penstock.streams.wire import (
    EXAMPLE_LENGTH,
    Event,
    LostEvents,
    RejectedEvent,
    RejectionReason,
    read_entry,
)

BASE = [(b"org", b"o"), (b"proj", b"p"), (b"env", b"e"), (b"queue", b"orders:eu")]


def test_an_entry_is_read_by_the_definition() -> None:
    entry = [*BASE, (b"group", b"g"), (b"dq", b"3"), (b"ql", b"0"), (b"wt", b"5,0,12"), (b"op", b"dequeue")]
    assert read_entry(QUEUE, b"1790000000123-7", entry) == Event(
        id_ms=1790000000123,
        id_sequence=7,
        at_ms=1790000000123,
        dimensions=("o", "p", "e", "orders:eu", "g"),
        counters={"dequeued": 3},
        gauges={"depth": 0},
        samples={"wait_ms": (5, 0, 12)},
    )


def test_the_time_of_the_event_wins_over_that_of_the_id() -> None:
    result = read_entry(QUEUE, b"1790000000123-0", [*BASE, (b"eq", b"1"), (b"t", b"1789999999000")])
    assert isinstance(result, Event)
    assert result.at_ms == 1789999999000


def test_the_example_of_a_rejected_event_is_truncated() -> None:
    result = read_entry(QUEUE, b"1790000000123-0", [*BASE, (b"eq", b"many" * 1000)])
    assert isinstance(result, RejectedEvent)
    assert result.reason is RejectionReason.NOT_A_NUMBER
    assert result.example.startswith("1790000000123-0 org=o proj=p env=e queue=orders:eu eq=many")
    assert len(result.example) == EXAMPLE_LENGTH


def test_a_report_of_lost_events_is_not_an_event() -> None:
    report = [(b"lost", b"200"), (b"since", b"1789999990000"), (b"t", b"1789999999000")]
    lost = LostEvents(200, 1789999990000, 1789999999000)
    assert read_entry(QUEUE, b"1790000000123-0", report) == lost


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({b"lost": b"many"}, RejectionReason.NOT_A_NUMBER),
        ({b"lost": b"-1"}, RejectionReason.NEGATIVE_COUNT),
        ({b"lost": b"1", b"since": b"1790000000124"}, RejectionReason.BAD_TIME),
        ({b"lost": b"1", b"t": b"99999999999999"}, RejectionReason.BAD_TIME),
    ],
)
def test_an_invalid_report_of_lost_events_is_rejected(
    fields: dict[bytes, bytes], reason: RejectionReason
) -> None:
    result = read_entry(QUEUE, b"1790000000123-0", list(fields.items()))
    assert isinstance(result, RejectedEvent)
    assert result.reason is reason


@pytest.mark.parametrize("wires", [("a", "a"), ("a", "t"), ("a", "toolongs"), ("a", "lost")])
def test_a_definition_with_unusable_wire_names_is_refused(wires: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="wire names"):
        MetricDefinition("m", (Dimension("d", wires[0], ""),), (Measure("c", wires[1], ""),))
