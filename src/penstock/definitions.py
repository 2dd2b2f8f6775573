"""Definitions of the metrics that Penstock collects.

A definition lists a metric's dimensions, counters, gauges and samples. The stream keys, the parser, the
aggregation, the ClickHouse tables and the series are derived from it. This module sits below every layer that
reads it and imports none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.errors import ConfigError

STREAM_PREFIX = "penstock:metrics"

ENABLED_KEY = f"{STREAM_PREFIX}:enabled"
"""The Redis key that switches emission: 0 turns it off; any other value, or no value, leaves it on."""

TIME_WIRE = "t"
"""The wire name of an event's time."""

PACK_WIRE = "p"
"""The wire name of a pack: the only field of a stream entry that holds many events."""

LOST_WIRE, LOST_SINCE_WIRE = "lost", "since"
"""The wire names of an entry that reports lost events instead of an event: their number, and the time of the
first one in ms. Its `t` is the time of the last one."""

EMIT_DELAY_S = 1.0
"""How long an event may take to enter a stream: brokers emit twice a second, and emitters collect a batch."""

WORKER_SEND_INTERVAL_S = 15
"""Broker processes send the events of the worker metric together this often."""

MAX_WIRE_NAME_LENGTH = 7
"""The pipeline compares wire names up to this length as 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured quantity: its name in tables and responses, and its short name on the wire."""

    name: str
    wire: str
    help: str


@dataclass(frozen=True, slots=True)
class Dimension(Measure):
    """A label that a measurement belongs to.

    An event without an `optional` dimension has the empty text there; an event without a required one is set
    aside. A `high_cardinality` dimension has too many distinct values for a dictionary column.
    """

    optional: bool = False
    high_cardinality: bool = False


@dataclass(frozen=True, slots=True)
class Rollup:
    """A coarser copy of a metric: all its counters and samples grouped by fewer dimensions.

    `dimensions` are the names of the dimensions that the rollup keeps. The rollup has gauges of its own,
    because an environment's gauge is neither the sum nor the maximum of its queues' gauges. Ordinary events
    carry them. An event whose first omitted dimension is empty describes only the rollup, so the metric's own
    tables leave it out.
    """

    name: str
    dimensions: tuple[str, ...]
    gauges: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric: its dimensions, its measures and the Redis streams that carry its events.

    Tables sum counters, keep the maximum and the last value of gauges, and merge samples (lists of numbers)
    into a T-Digest with sum, count and maximum. On the wire an event is a flat map of short names to text. An
    absent counter means 0, an absent gauge means *not observed* (never 0), and a sample is a comma-separated
    list. `t` is the event's time in ms; an event without it has the time of its stream id.

    `max_emit_delay_s` is how long an event may take from its own time until it is in its stream.

    `gauges` always ends with the gauges of the rollups, even if the caller omits them; `own_gauges` are the
    others.
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
    max_emit_delay_s: float = EMIT_DELAY_S
    own_gauges: tuple[Measure, ...] = field(init=False)
    stream_keys: tuple[str, ...] = field(init=False)
    wire_names: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        rollup_gauges = tuple(gauge for rollup in self.rollups for gauge in rollup.gauges)
        own_gauges = tuple(gauge for gauge in self.gauges if gauge not in rollup_gauges)
        object.__setattr__(self, "own_gauges", own_gauges)
        object.__setattr__(self, "gauges", own_gauges + rollup_gauges)
        keys = tuple(f"{STREAM_PREFIX}:{self.name}:{shard}" for shard in range(self.shards))
        object.__setattr__(self, "stream_keys", keys)
        wires = [
            TIME_WIRE,
            *(m.wire for m in (*self.dimensions, *self.counters, *self.gauges, *self.samples)),
        ]
        object.__setattr__(self, "wire_names", frozenset(wire.encode() for wire in wires))
        is_invalid = bool({PACK_WIRE, LOST_WIRE, LOST_SINCE_WIRE} & set(wires))
        is_invalid |= max(map(len, wires)) > MAX_WIRE_NAME_LENGTH
        if is_invalid or len(set(wires)) != len(wires):
            raise ValueError(
                f"metric {self.name}: wire names must differ, must not be {TIME_WIRE} (the event's time), "
                f"{PACK_WIRE} (a pack of events), {LOST_WIRE} or {LOST_SINCE_WIRE} (lost events) and have at "
                f"most {MAX_WIRE_NAME_LENGTH} letters"
            )
        for rollup in self.rollups:
            names = [dimension.name for dimension in self.dimensions]
            if not set(rollup.dimensions) < set(names) or not self.first_omitted_dimension(rollup).optional:
                raise ValueError(
                    f"metric {self.name}: rollup {rollup.name} must keep some but not all of "
                    f"{', '.join(names)}, and the first dimension it omits must be optional"
                )

    def first_omitted_dimension(self, rollup: Rollup) -> Dimension:
        """The first dimension that the rollup omits. Events of the rollup alone leave it empty."""
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
            "queue name; empty for values of the whole environment",
            optional=True,
            high_cardinality=True,
        ),
        Dimension("group", "group", "consumer group; empty for values of the whole queue", optional=True),
    ),
    counters=(
        Measure("enqueued", "eq", "messages accepted"),
        Measure("dequeued", "dq", "messages delivered to a consumer"),
        Measure("acked", "ak", "messages acknowledged"),
        Measure("nacked", "nk", "failed attempts that will be retried"),
        Measure("dead", "dl", "messages moved to dead letters"),
        Measure("expired", "ex", "messages that exceeded their time to live"),
        Measure("released", "rl", "messages given back with the ack status retry: not a failed attempt"),
    ),
    gauges=(
        Measure("depth", "ql", "messages waiting"),
        Measure("delayed", "dy", "delayed tasks of a run queue; its depth excludes them"),
        Measure("running", "cc", "messages leased to consumers"),
        Measure("limit", "cl", "concurrency limit of the queue"),
        Measure("oldest_age_ms", "age", "age of the oldest message that is ready for delivery"),
    ),
    samples=(
        Measure("wait_ms", "wt", "time from ready for delivery to delivered"),
        Measure("run_ms", "rt", "time from delivered to finished"),
    ),
    rollups=(
        Rollup(
            "environment",
            ("organization", "project", "environment"),
            gauges=(
                Measure("env_depth", "eql", "messages waiting in the environment"),
                Measure("env_delayed", "edy", "delayed tasks of the environment's run queues"),
                Measure("env_running", "ecc", "messages leased to consumers in the environment"),
                Measure("env_limit", "ecl", "concurrency limit of the environment"),
                Measure(
                    "env_oldest_age_ms",
                    "eage",
                    "age of the environment's oldest message that is ready for delivery",
                ),
            ),
        ),
    ),
)

WORKER = MetricDefinition(
    name="worker",
    dimensions=(
        Dimension("hostname", "host", "host name of the broker's machine"),
        Dimension("worker", "wrk", "worker slot: the number of the process behind its port"),
    ),
    counters=(
        Measure("push_requests", "pr", "push requests answered"),
        Measure("push_messages", "pm", "messages that push requests appended"),
        Measure("pop_requests", "or", "pop requests answered, including empty ones"),
        Measure("pop_messages", "om", "messages that pop requests delivered"),
        Measure("ack_requests", "ar", "ack requests answered"),
        Measure("ack_messages", "am", "messages that ack requests acknowledged"),
        Measure("transaction_requests", "tr", "transactions executed"),
        Measure("transaction_messages", "tm", "pushes and acks in those transactions"),
        Measure("database_errors", "de", "database calls that failed"),
        Measure("dead_letters", "dl", "messages moved to dead letters"),
    ),
    gauges=(
        Measure("busy_connections", "bc", "database connections in use"),
        Measure("free_connections", "fc", "database connections not in use"),
        Measure("connection_waiters", "cw", "operations waiting for a connection"),
        Measure("pending_requests", "rq", "requests waiting to join a batch"),
        Measure("parked_pops", "pp", "long-polling pops waiting for a message"),
        Measure("spilled", "sp", "deferred operations waiting in lanes"),
        Measure("resident_bytes", "rss", "resident memory"),
    ),
    samples=(Measure("late_ms", "lt", "event loop lag: the largest of each second"),),
    shards=1,
    max_stream_length=100_000,
    max_emit_delay_s=WORKER_SEND_INTERVAL_S + EMIT_DELAY_S,
)

DEFINITIONS: tuple[MetricDefinition, ...] = (QUEUE, WORKER)


def select_metrics(
    name: str | None, definitions: Sequence[MetricDefinition] = DEFINITIONS
) -> list[MetricDefinition]:
    """Return the metric with the name, or all metrics. Raises ConfigError with the known names."""
    selected = [definition for definition in definitions if name in (None, definition.name)]
    if not selected:
        known = ", ".join(definition.name for definition in definitions)
        raise ConfigError(f"Metric {name!r} does not exist. Known metrics: {known}")
    return selected
