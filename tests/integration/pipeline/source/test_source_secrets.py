"""Spark shows plans in its web UI, its logs and its errors: they contain no password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from redis import Redis

from penstock.definitions import DEFINITIONS
from penstock.pipeline.capacity.period import parse_period
from penstock.pipeline.capacity.tier_hours import read_waits
from penstock.pipeline.session import register_source
from penstock.pipeline.source.redis_streams import FORMAT, encode_definition

CANARY = "canary-5d1f"


@pytest.fixture
def canary_url(stream_url: str, redis: Redis) -> str:
    """The URL of the Redis database, with a user whose password is the canary."""
    redis.acl_setuser(
        "canary", True, passwords=[f"+{CANARY}"], keys=["*"], channels=["*"], categories=["+@all"]
    )
    parts = urlsplit(stream_url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"canary:{CANARY}@{host}"))


def load_stream(spark: SparkSession, redis_url: str) -> DataFrame:
    register_source(spark)
    return (
        spark.readStream.format(FORMAT)
        .option("redis_url", redis_url)
        .option("definition", encode_definition(DEFINITIONS[0]))
        .option("archive", f"s3a://key:{CANARY}@bucket/archive")
        .load()
    )


def plan_texts(frame: DataFrame) -> str:
    execution = frame._jdf.queryExecution()
    return "\n".join([execution.toString(), execution.logical().toJSON(), execution.analyzed().treeString()])


def test_the_plans_of_the_stream_contain_no_password(
    spark: SparkSession, canary_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = load_stream(spark, canary_url)
    print(plan_texts(frame))
    batches: list[str] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: batches.append(plan_texts(batch)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress, *batches)
    output = capsys.readouterr().out
    assert "redis_url=*********(redacted)" in output
    assert CANARY not in output


def test_the_plan_of_a_capacity_report_contains_no_password(spark: SparkSession) -> None:
    period = parse_period("7d", None, None, now_s=1_800_000_000)
    frame = read_waits(spark, f"http://canary:{CANARY}@127.0.0.1:1/", period, ())
    assert "penstock_warehouse" in plan_texts(frame)
    assert CANARY not in plan_texts(frame)


def test_the_error_of_a_failed_query_contains_no_password(
    spark: SparkSession, canary_url: str, redis: Redis, tmp_path: Path
) -> None:
    redis.xadd(DEFINITIONS[0].stream_keys[0], {"field": "value"})

    def fail(batch: DataFrame, batch_id: int) -> None:
        raise RuntimeError("a failure on purpose")

    query = (
        load_stream(spark, canary_url)
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    assert "a failure on purpose" in str(caught.value)
    assert CANARY not in f"{caught.value} {query.exception()}"
