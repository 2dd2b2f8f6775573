"""Metric definitions: declared once, checked when they are made."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.definitions import DEFINITIONS, QUEUE, Dimension, Measure, MetricDefinition, Rollup


def definition(*wires: str) -> MetricDefinition:
    return MetricDefinition("made", (Dimension("d", "d", ""),), tuple(Measure(w, w, "") for w in wires))


@pytest.mark.parametrize("wires", [("a", "a"), ("d",), ("t",), ("toolong8",)])
def test_wire_names_that_clash_or_are_long_are_refused(wires: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="wire names must differ"):
        definition(*wires)


def test_stream_keys_follow_from_name_and_shards() -> None:
    made = MetricDefinition("made", (Dimension("d", "d", ""),), shards=3)
    assert made.stream_keys == (
        "penstock:metrics:made:0",
        "penstock:metrics:made:1",
        "penstock:metrics:made:2",
    )


def test_wire_names_include_the_events_time() -> None:
    assert definition("a", "b").wire_names == {b"t", b"d", b"a", b"b"}


def test_metrics_are_told_apart_by_name() -> None:
    names = [definition.name for definition in DEFINITIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_every_measure_has_a_column_name_and_says_what_it_is(definition: MetricDefinition) -> None:
    measures = (*definition.dimensions, *definition.counters, *definition.gauges, *definition.samples)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", measure.name) for measure in measures)
    assert all(measure.help for measure in measures)
    assert len({measure.name for measure in measures}) == len(measures)
    assert any(not dimension.optional for dimension in definition.dimensions)


def test_a_queue_is_measured_within_its_environment() -> None:
    assert [dimension.name for dimension in QUEUE.dimensions] == [
        "organization",
        "project",
        "environment",
        "queue",
        "group",
    ]


PARTS = (Dimension("whole", "w", ""), Dimension("part", "pt", "", optional=True))
OWN, OF_WHOLE = Measure("own", "a", ""), Measure("of_whole", "b", "")


def test_gauges_of_a_rollup_are_gauges_of_the_metric_too() -> None:
    made = MetricDefinition(
        "made", PARTS, gauges=(OWN,), rollups=(Rollup("whole", ("whole",), gauges=(OF_WHOLE,)),)
    )
    assert (made.own_gauges, made.gauges) == ((OWN,), (OWN, OF_WHOLE))
    assert b"b" in made.wire_names
    assert replace(made, shards=1).gauges == made.gauges
    assert made.left_out(made.rollups[0]).name == "part"


@pytest.mark.parametrize("kept", [("whole", "part"), ("part",), ("another",)])
def test_a_rollup_leaves_out_what_may_be_empty(kept: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the first one it leaves out must be optional"):
        MetricDefinition("made", PARTS, rollups=(Rollup("whole", kept),))
