"""Metric definitions: what is measured, declared once.

A definition names a metric's dimensions, counters, gauges and samples. The stream keys, the parsing, the
aggregation, the ClickHouse tables and the series all follow from it, so it sits below every layer that
reads it and imports none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STREAM_PREFIX = "penstock:metrics"

ENABLED_KEY = f"{STREAM_PREFIX}:enabled"
"""0 there: nobody emits. Anything else, or nothing: emission is on."""

TIME_WIRE = "t"
PACK_WIRE = "p"
"""The only field of an entry that holds many events."""

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
class Rollup:
    """A coarser copy of a metric: all its counters and samples by fewer `dimensions` (their names), with
    gauges of its own.

    A gauge of the whole is no sum or maximum of its parts' gauges, so the whole has its own. They travel as
    gauges of an ordinary event. An event that leaves the first left-out dimension empty speaks for the whole
    alone and is in no finer table.
    """

    name: str
    dimensions: tuple[str, ...]
    gauges: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A kind of metric event.

    Counters are summed, gauges keep their maximum and their last value, samples are lists of numbers that
    end in a T-Digest with sum, count and maximum. On the wire an event is a flat map of short names to
    text; absent counters mean 0, absent gauges mean *not observed* (never 0), a sample is a
    comma-separated list. `t`, if present, is the event's time in ms; else the stream id's time is used.

    `gauges` ends with those of the rollups, whether or not they were given there; `own_gauges` are the rest.
    """

    name: str
    dimensions: tuple[Dimension, ...]
    counters: tuple[Measure, ...] = ()
    gauges: tuple[Measure, ...] = ()
    samples: tuple[Measure, ...] = ()
    rollups: tuple[Rollup, ...] = ()
    shards: int = 2
    bucket_ms: int = 5_000
    max_stream_length: int = 500_000
    max_stream_bytes: int = 128 * 1024 * 1024
    own_gauges: tuple[Measure, ...] = field(init=False)
    stream_keys: tuple[str, ...] = field(init=False)
    wire_names: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        of_rollups = tuple(gauge for rollup in self.rollups for gauge in rollup.gauges)
        own = tuple(gauge for gauge in self.gauges if gauge not in of_rollups)
        object.__setattr__(self, "own_gauges", own)
        object.__setattr__(self, "gauges", own + of_rollups)
        keys = tuple(f"{STREAM_PREFIX}:{self.name}:{shard}" for shard in range(self.shards))
        object.__setattr__(self, "stream_keys", keys)
        wires = [
            TIME_WIRE,
            *(m.wire for m in (*self.dimensions, *self.counters, *self.gauges, *self.samples)),
        ]
        object.__setattr__(self, "wire_names", frozenset(wire.encode() for wire in wires))
        unusable = PACK_WIRE in wires or max(map(len, wires)) > LONGEST_WIRE_NAME
        if unusable or len(set(wires)) != len(wires):
            raise ValueError(
                f"metric {self.name}: wire names must differ, must not be {TIME_WIRE} (the event's time) or "
                f"{PACK_WIRE} (many events) and have at most {LONGEST_WIRE_NAME} letters"
            )
        for rollup in self.rollups:
            known = [dimension.name for dimension in self.dimensions]
            if not set(rollup.dimensions) < set(known) or not self.left_out(rollup).optional:
                raise ValueError(
                    f"metric {self.name}: the rollup {rollup.name} needs some of {', '.join(known)}, "
                    "not all, and the first one it leaves out must be optional"
                )

    def left_out(self, rollup: Rollup) -> Dimension:
        """The first dimension the rollup does without. Where it is empty, the event speaks for the whole."""
        return next(dimension for dimension in self.dimensions if dimension.name not in rollup.dimensions)


QUEUE = MetricDefinition(
    name="queue",
    dimensions=(
        Dimension("organization", "org", "organization that owns the queue"),
        Dimension("project", "proj", "project that owns the queue"),
        Dimension("environment", "env", "environment the queue lives in"),
        Dimension(
            "queue",
            "queue",
            "queue name; empty for what belongs to the environment as a whole",
            optional=True,
            many=True,
        ),
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
        Measure("delayed", "dy", "tasks of a run queue that are not eligible yet, and not in its depth"),
        Measure("running", "cc", "messages being worked on"),
        Measure("limit", "cl", "concurrency limit of the queue"),
        Measure("oldest_age_ms", "age", "age of the oldest eligible message"),
    ),
    samples=(
        Measure("wait_ms", "wt", "time from eligible to started"),
        Measure("run_ms", "rt", "time from started to finished"),
    ),
    rollups=(
        Rollup(
            "environment",
            ("organization", "project", "environment"),
            gauges=(
                Measure("env_depth", "eql", "messages waiting in the environment"),
                Measure("env_delayed", "edy", "delayed tasks of the environment's run queues"),
                Measure("env_running", "ecc", "messages being worked on in the environment"),
                Measure("env_limit", "ecl", "concurrency limit of the environment"),
                Measure("env_oldest_age_ms", "eage", "age of the environment's oldest eligible message"),
            ),
        ),
    ),
)

WORKER = MetricDefinition(
    name="worker",
    dimensions=(
        Dimension("hostname", "host", "machine the broker process runs on"),
        Dimension("worker", "wrk", "number of the process among those behind one port"),
    ),
    counters=(
        Measure("push_requests", "pr", "pushes answered"),
        Measure("push_messages", "pm", "messages they appended"),
        Measure("pop_requests", "or", "pops answered, those that found nothing too"),
        Measure("pop_messages", "om", "messages they handed out"),
        Measure("ack_requests", "ar", "acks answered"),
        Measure("ack_messages", "am", "messages they settled"),
        Measure("transaction_requests", "tr", "transactions carried out"),
        Measure("transaction_messages", "tm", "pushes and acks in them"),
        Measure("database_errors", "de", "database calls that failed"),
        Measure("dead_letters", "dl", "messages given up on"),
    ),
    gauges=(
        Measure("busy_connections", "bc", "database connections in use"),
        Measure("free_connections", "fc", "database connections not in use"),
        Measure("connection_waiters", "cw", "operations waiting for a connection"),
        Measure("pending_requests", "rq", "requests waiting for their batch"),
        Measure("parked_pops", "pp", "pops waiting for a message"),
        Measure("spilled", "sp", "operations that wait in lanes"),
        Measure("resident_bytes", "rss", "resident memory"),
    ),
    samples=(Measure("late_ms", "lt", "how late the event loop came, the worst of each second"),),
    shards=1,
    max_stream_length=100_000,
)

DEFINITIONS: tuple[MetricDefinition, ...] = (QUEUE, WORKER)
