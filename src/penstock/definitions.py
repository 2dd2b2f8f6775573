"""Metric definitions: what is measured, declared once.

A definition names a metric's dimensions, counters, gauges and samples. The stream keys, the parsing, the
aggregation, the ClickHouse tables and the series all follow from it, so it sits below every layer that
reads it and imports none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STREAM_PREFIX = "penstock:metrics"

TIME_WIRE = "t"

LONGEST_WIRE_NAME = 7
"""Wire names are short on purpose; up to this length the pipeline compares them as numbers."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured quantity: its name in tables and responses, and its short name on the wire."""

    name: str
    wire: str
    help: str


@dataclass(frozen=True, slots=True)
class Dimension(Measure):
    """What a measurement belongs to. `optional`: absent on the wire means empty text, where a required one
    sets the event aside. `many`: has too many distinct values for a dictionary column."""

    optional: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A kind of metric event.

    Counters are summed, gauges keep their maximum and their last value, samples are lists of numbers that
    end in a T-Digest with sum, count and maximum. On the wire an event is a flat map of short names to
    text; absent counters mean 0, absent gauges mean *not observed* (never 0), a sample is a
    comma-separated list. `t`, if present, is the event's time in ms; else the stream id's time is used.
    """

    name: str
    dimensions: tuple[Dimension, ...]
    counters: tuple[Measure, ...] = ()
    gauges: tuple[Measure, ...] = ()
    samples: tuple[Measure, ...] = ()
    shards: int = 2
    bucket_ms: int = 5_000
    max_stream_length: int = 500_000
    stream_keys: tuple[str, ...] = field(init=False)
    wire_names: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        keys = tuple(f"{STREAM_PREFIX}:{self.name}:{shard}" for shard in range(self.shards))
        object.__setattr__(self, "stream_keys", keys)
        wires = [
            TIME_WIRE,
            *(m.wire for m in (*self.dimensions, *self.counters, *self.gauges, *self.samples)),
        ]
        object.__setattr__(self, "wire_names", frozenset(wire.encode() for wire in wires))
        if len(set(wires)) != len(wires) or max(map(len, wires)) > LONGEST_WIRE_NAME:
            raise ValueError(
                f"metric {self.name}: wire names must differ, must not be {TIME_WIRE} (the event's time) "
                f"and have at most {LONGEST_WIRE_NAME} letters"
            )


QUEUE = MetricDefinition(
    name="queue",
    dimensions=(
        Dimension("organization", "org", "organization that owns the queue"),
        Dimension("project", "proj", "project that owns the queue"),
        Dimension("environment", "env", "environment the queue lives in"),
        Dimension("queue", "queue", "queue name", many=True),
        Dimension(
            "group", "group", "consumer group; empty for what belongs to the queue as a whole", optional=True
        ),
    ),
    counters=(
        Measure("enqueued", "eq", "messages accepted"),
        Measure("dequeued", "dq", "messages handed to a consumer"),
        Measure("acked", "ak", "messages finished successfully"),
        Measure("nacked", "nk", "failed attempts that will be retried"),
        Measure("dead", "dl", "messages given up on"),
        Measure("expired", "ex", "messages that outlived their time to live"),
    ),
    gauges=(
        Measure("depth", "ql", "messages waiting"),
        Measure("running", "cc", "messages being worked on"),
        Measure("limit", "cl", "concurrency limit of the queue"),
        Measure("oldest_age_ms", "age", "age of the oldest eligible message"),
    ),
    samples=(
        Measure("wait_ms", "wt", "time from eligible to started"),
        Measure("run_ms", "rt", "time from started to finished"),
    ),
)

DEFINITIONS: tuple[MetricDefinition, ...] = (QUEUE,)
