"""The measurements as the archive holds them: one row per event, summed here as the tiers sum them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from penstock.clock import to_utc
from penstock.definitions import QUEUE, MetricDefinition
from penstock.errors import ConfigError
from penstock.pipeline.archive.event_archive import Archive
from penstock.pipeline.capacity.hours import HOURS, SUBJECT, WAITS
from penstock.pipeline.capacity.period import HOUR_S, Period

BUCKET_S = 60
ACCURACY = 10_000
"""Of Spark's percentiles: off by one rank in ten thousand at most."""


def event_schema(definition: MetricDefinition) -> StructType:
    """An archived event. Said explicitly, so that files from before a measure was added have it as null."""
    return StructType(
        [
            *(StructField(dimension.name, StringType()) for dimension in definition.dimensions),
            *(StructField(name, LongType()) for name in ("at_ms", "id_ms", "id_sequence")),
            *(StructField(counter.name, LongType()) for counter in definition.counters),
            *(StructField(gauge.name, LongType()) for gauge in definition.gauges),
            *(StructField(sample.name, ArrayType(LongType())) for sample in definition.samples),
        ]
    )


def read_events(session: SparkSession, archive: str, period: Period) -> DataFrame:
    """The archived queue events of a period. Only its days are listed and opened: an archive has many files.

    Raises ConfigError when there is no archive at all.
    """
    days = Archive(archive, QUEUE).days()
    # Arrow's name for it, with which the archive was written, is not Spark's.
    place = f"{archive.rstrip('/').replace('s3://', 's3a://', 1)}/{QUEUE.name}"
    if not days:
        raise ConfigError(f"there is no archive of queue events in {place}")
    first, last = (to_utc(moment).date() for moment in (period.start_s, period.end_s))
    wanted = [f"{place}/day={day}" for day in days if first <= day <= last]
    schema = event_schema(QUEUE)
    if not wanted:
        return session.createDataFrame([], schema)
    events = session.read.schema(schema).option("basePath", place).parquet(*wanted)
    return events.where((F.col("at_ms") >= period.start_s * 1000) & (F.col("at_ms") < period.end_s * 1000))


def hours_of_events(events: DataFrame, queues: Sequence[str]) -> DataFrame:
    """The hours of every queue (or of those named), and of every environment (if none is named)."""
    of_queues = _hours(
        _chosen(events, queues),
        gauges={name: F.when(F.col("group") == "", F.col(name)) for name in ("depth", "running", "limit")},
        finishers=F.when((F.col("group") != "") & (_finished() > 0), F.col("group")),
    )
    if queues:
        return of_queues
    whole = events.withColumn("queue", F.lit(""))
    of_environments = _hours(
        whole,
        gauges={name: F.col(f"env_{name}") for name in ("depth", "running", "limit")},
        finishers=F.lit(None).cast("string"),
    ).withColumn("served", F.lit(None).cast("double"))
    return of_queues.unionByName(of_environments)


def waits_of_events(events: DataFrame, queues: Sequence[str]) -> DataFrame:
    """The percentiles of all waits, per queue and environment. Has no row without waits."""
    chosen = _chosen(events, queues)
    if not queues:
        chosen = chosen.unionByName(events.withColumn("queue", F.lit("")))
    levels = F.percentile_approx("wait", [0.5, 0.95, 0.99], ACCURACY)
    return (
        chosen.select(*SUBJECT, F.explode("wait_ms").alias("wait"))
        .groupBy(*SUBJECT)
        .agg(F.count("wait").alias("waits"), levels.alias("levels"))
        .select(
            *SUBJECT,
            "waits",
            *(F.col("levels")[i].cast("double").alias(f"wait_p{p}_ms") for i, p in enumerate((50, 95, 99))),
        )
        .select(*WAITS.fieldNames())
    )


def _hours(events: DataFrame, gauges: dict[str, Column], finishers: Column) -> DataFrame:
    """Twice summed: into buckets, for the peaks, and those into hours."""
    # Newest 5-second bucket first, and within it the order of the stream: which is last in the tiers, too.
    order = F.struct(F.floor(F.col("at_ms") / QUEUE.bucket_ms), "id_ms", "id_sequence")
    bucket = (F.floor(F.col("at_ms") / (BUCKET_S * 1000)) * BUCKET_S).cast("long")
    buckets = events.groupBy(*SUBJECT, bucket.alias("at_s")).agg(
        F.sum(F.coalesce("enqueued", F.lit(0))).alias("came"),
        F.sum(F.coalesce("dequeued", F.lit(0))).alias("taken"),
        F.sum(_finished()).alias("gone"),
        F.collect_set(finishers).alias("finishers"),
        *(F.max(gauges[name]).alias(name) for name in ("depth", "running")),
        *(
            F.max_by(gauges[name], F.when(gauges[name].isNotNull(), order)).alias(f"last_{name}")
            for name in ("running", "limit")
        ),
        F.sum(F.expr("aggregate(run_ms, 0L, (total, run) -> total + run)")).alias("worked"),
    )
    hour = (F.floor(F.col("at_s") / HOUR_S) * HOUR_S).cast("long")
    groups = F.size(F.array_distinct(F.flatten(F.collect_list("finishers"))))
    hours = buckets.groupBy(*SUBJECT, hour.alias("hour_s")).agg(
        F.sum("came").alias("enqueued"),
        F.sum("taken").alias("dequeued"),
        F.sum("gone").alias("finished"),
        (F.sum("gone") / F.greatest(groups, F.lit(1))).alias("served"),
        F.max("came").alias("peak_enqueued"),
        F.max_by("at_s", F.struct("came", -F.col("at_s"))).alias("peak_enqueued_at_s"),
        F.max("taken").alias("peak_dequeued"),
        F.max_by("at_s", F.struct("taken", -F.col("at_s"))).alias("peak_dequeued_at_s"),
        F.max("depth").alias("depth_max"),
        F.max("running").alias("running_max"),
        *(
            F.max_by(f"last_{name}", F.when(F.col(f"last_{name}").isNotNull(), F.col("at_s"))).alias(
                f"{name}_last"
            )
            for name in ("running", "limit")
        ),
        F.coalesce(F.sum("worked"), F.lit(0)).cast("long").alias("run_ms"),
    )
    return hours.select(*(F.col(field.name).cast(field.dataType) for field in HOURS.fields))


def _chosen(events: DataFrame, queues: Sequence[str]) -> DataFrame:
    return events.where(F.col("queue").isin(list(queues)) if queues else F.col("queue") != "")


def _finished() -> Column:
    acked, dead, expired = (F.coalesce(name, F.lit(0)) for name in ("acked", "dead", "expired"))
    return acked + dead + expired
