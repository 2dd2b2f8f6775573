"""Test of a large backlog in one shard: several Spark tasks read it, it is counted once."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from redis import Redis

from penstock.definitions import QUEUE
from penstock.pipeline.sink.clickhouse_sink import ClickHouseSink
from penstock.pipeline.source.redis_streams import FORMAT, encode_definition
from penstock.streams.positions import read_position
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.pipeline.events import add, event

ENTRIES, LOST = 400, 30


def test_parts_of_a_range_are_counted_once_and_lost_entries_are_reported_once(
    spark: SparkSession, stream_url: str, redis: Redis, warehouse: Warehouse, tmp_path: Path
) -> None:
    begin_ms = int(time.time() * 1000) - 300 * ENTRIES
    for n in range(ENTRIES):
        # Large entries, because small ranges are not split.
        add(redis, 0, event(eq=1, ql=n, wt="1,2", note="x" * 20_000), f"{begin_ms + 300 * n}-0")
    redis.xtrim(QUEUE.stream_keys[0], maxlen=ENTRIES - LOST, approximate=False)
    add(redis, 1, event("other", eq=1), f"{begin_ms}-0")
    sink = ClickHouseSink(QUEUE, warehouse, redis, threading.Event())
    frame = (
        spark.readStream.format(FORMAT)
        .option("redis_url", stream_url)
        .option("definition", encode_definition(QUEUE))
        .option("tasks", 3)
        .load()
    )
    query = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    lines = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    end, *split_ids = json.loads(lines[-1])["0"].split(" ")
    assert len(split_ids) == 2
    [tier] = warehouse.query(
        "SELECT sum(events) AS events, sum(enqueued) AS enqueued, sum(wait_ms_count) AS waits FROM queue_5s"
    )
    counted = ENTRIES - LOST + 1
    sums = [int(tier[name]) for name in ("events", "enqueued", "waits")]
    assert sums == [counted, counted, 2 * (counted - 1)]
    [depth] = warehouse.query("SELECT toInt64(max(depth_last)) AS last FROM queue_1h WHERE queue = 'orders'")
    assert int(depth["last"]) == ENTRIES - 1
    [set_aside] = warehouse.query("SELECT reason, events, stream FROM set_aside")
    assert (set_aside["reason"], int(set_aside["events"]), set_aside["stream"]) == (
        "trimmed",
        LOST,
        QUEUE.stream_keys[0],
    )
    assert read_position(redis, QUEUE.stream_keys[0]) == (end, ENTRIES)
    assert sink.state.entries == counted
