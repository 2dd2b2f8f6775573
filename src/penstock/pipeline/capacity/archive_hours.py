"""Read hours and waits from the archive: one row per event, aggregated in the same way as the tiers."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from penstock.clock import to_utc
from penstock.definitions import QUEUE, MetricDefinition
from penstock.errors import ConfigError
from penstock.pipeline.archive.event_archive import Archive
from penstock.pipeline.capacity.hours import HOUR_SCHEMA, SUBJECT, WAIT_SCHEMA
from penstock.pipeline.capacity.period import HOUR_S, Period

BUCKET_S = 60
ACCURACY = 10_000
"""Accuracy of Spark's percentiles: the error is at most one rank in ten thousand."""


def event_spark_schema(definition: MetricDefinition) -> StructType:
    """Return the explicit schema of an archived event. Measures missing in old files are null."""
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
    """Return the archived queue events of a period. Lists only days of the period: archives are large.

    Raises ConfigError when the archive has no queue events at all.
    """
    days = Archive(archive, QUEUE).days()
    # Spark and Arrow, which wrote the archive, use different URL schemes for S3.
    directory = f"{archive.rstrip('/').replace('s3://', 's3a://', 1)}/{QUEUE.name}"
    if not days:
        raise ConfigError(f"There is no archive of queue events in {directory}")
    first, last = (to_utc(time_s).date() for time_s in (period.start_s, period.end_s))
    paths = [f"{directory}/day={day}" for day in days if first <= day <= last]
    schema = event_spark_schema(QUEUE)
    if not paths:
        return session.createDataFrame([], schema)
    events = session.read.schema(schema).option("basePath", directory).parquet(*paths)
    return events.where((F.col("at_ms") >= period.start_s * 1000) & (F.col("at_ms") < period.end_s * 1000))


def aggregate_hours(events: DataFrame, queues: Sequence[str]) -> DataFrame:
    """Return the hours of the given queues, or of every queue and every environment if none is given."""
    queue_hours = _aggregate_hours(
        _filter_queues(events, queues),
        gauges={name: F.when(F.col("group") == "", F.col(name)) for name in ("depth", "running", "limit")},
        finishers=F.when((F.col("group") != "") & (_finished_count() > 0), F.col("group")),
    )
    if queues:
        return queue_hours
    as_environments = events.withColumn("queue", F.lit(""))
    environment_hours = _aggregate_hours(
        as_environments,
        gauges={name: F.col(f"env_{name}") for name in ("depth", "running", "limit")},
        finishers=F.lit(None).cast("string"),
    ).withColumn("served", F.lit(None).cast("double"))
    return queue_hours.unionByName(environment_hours)


def aggregate_waits(events: DataFrame, queues: Sequence[str]) -> DataFrame:
    """Return the percentiles of all waits, per queue and environment. Subjects without waits have no row."""
    filtered = _filter_queues(events, queues)
    if not queues:
        filtered = filtered.unionByName(events.withColumn("queue", F.lit("")))
    levels = F.percentile_approx("wait", [0.5, 0.95, 0.99], ACCURACY)
    return (
        filtered.select(*SUBJECT, F.explode("wait_ms").alias("wait"))
        .groupBy(*SUBJECT)
        .agg(F.count("wait").alias("waits"), levels.alias("levels"))
        .select(
            *SUBJECT,
            "waits",
            *(F.col("levels")[i].cast("double").alias(f"wait_p{p}_ms") for i, p in enumerate((50, 95, 99))),
        )
        .select(*WAIT_SCHEMA.fieldNames())
    )


def _aggregate_hours(events: DataFrame, gauges: dict[str, Column], finishers: Column) -> DataFrame:
    """Aggregate in two steps: into buckets, for the peaks, and buckets into hours."""
    # The order in which the tiers choose the last value: by 5-second bucket, then by the order of the stream.
    order = F.struct(F.floor(F.col("at_ms") / QUEUE.bucket_ms), "id_ms", "id_sequence")
    bucket = (F.floor(F.col("at_ms") / (BUCKET_S * 1000)) * BUCKET_S).cast("long")
    buckets = events.groupBy(*SUBJECT, bucket.alias("at_s")).agg(
        F.sum(F.coalesce("enqueued", F.lit(0))).alias("arrived"),
        F.sum(F.coalesce("dequeued", F.lit(0))).alias("dequeued_count"),
        F.sum(_finished_count()).alias("finished_count"),
        F.collect_set(finishers).alias("finishers"),
        *(F.max(gauges[name]).alias(name) for name in ("depth", "running")),
        *(
            F.max_by(gauges[name], F.when(gauges[name].isNotNull(), order)).alias(f"last_{name}")
            for name in ("running", "limit")
        ),
        F.sum(F.expr("aggregate(run_ms, 0L, (total, run) -> total + run)")).alias("run_ms_total"),
    )
    hour = (F.floor(F.col("at_s") / HOUR_S) * HOUR_S).cast("long")
    groups = F.size(F.array_distinct(F.flatten(F.collect_list("finishers"))))
    hours = buckets.groupBy(*SUBJECT, hour.alias("hour_s")).agg(
        F.sum("arrived").alias("enqueued"),
        F.sum("dequeued_count").alias("dequeued"),
        F.sum("finished_count").alias("finished"),
        (F.sum("finished_count") / F.greatest(groups, F.lit(1))).alias("served"),
        F.max("arrived").alias("peak_enqueued"),
        F.max_by("at_s", F.struct("arrived", -F.col("at_s"))).alias("peak_enqueued_at_s"),
        F.max("dequeued_count").alias("peak_dequeued"),
        F.max_by("at_s", F.struct("dequeued_count", -F.col("at_s"))).alias("peak_dequeued_at_s"),
        F.max("depth").alias("depth_max"),
        F.max("running").alias("running_max"),
        *(
            F.max_by(f"last_{name}", F.when(F.col(f"last_{name}").isNotNull(), F.col("at_s"))).alias(
                f"{name}_last"
            )
            for name in ("running", "limit")
        ),
        F.coalesce(F.sum("run_ms_total"), F.lit(0)).cast("long").alias("run_ms"),
    )
    return hours.select(*(F.col(field.name).cast(field.dataType) for field in HOUR_SCHEMA.fields))


def _filter_queues(events: DataFrame, queues: Sequence[str]) -> DataFrame:
    return events.where(F.col("queue").isin(list(queues)) if queues else F.col("queue") != "")


def _finished_count() -> Column:
    acked, dead, expired = (F.coalesce(name, F.lit(0)) for name in ("acked", "dead", "expired"))
    return acked + dead + expired
