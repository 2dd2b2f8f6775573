from __future__ import annotations

import pytest

from penstock.definitions import QUEUE, Dimension, Measure, MetricDefinition
from penstock.streams.wire import EXAMPLE_LENGTH, Event, Reason, SetAside, read_entry

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


def test_the_events_own_time_wins_over_the_ids() -> None:
    read = read_entry(QUEUE, b"1790000000123-0", [*BASE, (b"eq", b"1"), (b"t", b"1789999999000")])
    assert isinstance(read, Event)
    assert read.at_ms == 1789999999000


def test_what_is_set_aside_keeps_its_text_within_bounds() -> None:
    read = read_entry(QUEUE, b"1790000000123-0", [*BASE, (b"eq", b"many" * 1000)])
    assert isinstance(read, SetAside)
    assert read.reason is Reason.NOT_A_NUMBER
    assert read.example.startswith("1790000000123-0 org=o proj=p env=e queue=orders:eu eq=many")
    assert len(read.example) == EXAMPLE_LENGTH


@pytest.mark.parametrize("wires", [("a", "a"), ("a", "t"), ("a", "toolongs")])
def test_a_definition_with_unusable_wire_names_is_refused(wires: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="wire names"):
        MetricDefinition("m", (Dimension("d", wires[0], ""),), (Measure("c", wires[1], ""),))
