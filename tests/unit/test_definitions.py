"""Checks that a metric definition makes when it is created."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.definitions import DEFINITIONS, QUEUE, Dimension, Measure, MetricDefinition, Rollup


def definition(*wires: str) -> MetricDefinition:
    counters = tuple(Measure(wire, wire, "") for wire in wires)
    return MetricDefinition("example", (Dimension("d", "d", ""),), counters)


@pytest.mark.parametrize("wires", [("a", "a"), ("d",), ("t",), ("toolong8",)])
def test_wire_names_that_clash_or_are_long_are_refused(wires: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="wire names must differ"):
        definition(*wires)


def test_stream_keys_follow_from_name_and_shards() -> None:
    sharded = MetricDefinition("example", (Dimension("d", "d", ""),), shards=3)
    assert sharded.stream_keys == (
        "penstock:metrics:example:0",
        "penstock:metrics:example:1",
        "penstock:metrics:example:2",
    )


def test_wire_names_include_the_events_time() -> None:
    assert definition("a", "b").wire_names == {b"t", b"d", b"a", b"b"}


def test_metric_names_are_unique() -> None:
    names = [definition.name for definition in DEFINITIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_every_measure_has_a_valid_column_name_and_a_help_text(definition: MetricDefinition) -> None:
    measures = (*definition.dimensions, *definition.counters, *definition.gauges, *definition.samples)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", measure.name) for measure in measures)
    assert all(measure.help for measure in measures)
    assert len({measure.name for measure in measures}) == len(measures)
    assert any(not dimension.optional for dimension in definition.dimensions)


def test_the_queue_metric_has_the_dimensions_of_its_scope() -> None:
    assert [dimension.name for dimension in QUEUE.dimensions] == [
        "organization",
        "project",
        "environment",
        "queue",
        "group",
    ]


DIMENSIONS = (Dimension("city", "c", ""), Dimension("street", "st", "", optional=True))
STREET_GAUGE, CITY_GAUGE = Measure("street_gauge", "a", ""), Measure("city_gauge", "b", "")


def test_gauges_of_a_rollup_are_gauges_of_the_metric_too() -> None:
    metric = MetricDefinition(
        "example",
        DIMENSIONS,
        gauges=(STREET_GAUGE,),
        rollups=(Rollup("city", ("city",), gauges=(CITY_GAUGE,)),),
    )
    assert (metric.own_gauges, metric.gauges) == ((STREET_GAUGE,), (STREET_GAUGE, CITY_GAUGE))
    assert b"b" in metric.wire_names
    assert replace(metric, shards=1).gauges == metric.gauges
    assert metric.first_omitted_dimension(metric.rollups[0]).name == "street"


@pytest.mark.parametrize("kept", [("city", "street"), ("street",), ("another",)])
def test_a_rollup_must_omit_an_optional_dimension(kept: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the first dimension it omits must be optional"):
        MetricDefinition("example", DIMENSIONS, rollups=(Rollup("city", kept),))
