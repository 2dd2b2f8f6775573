"""A large backlog of one shard on Spark: read in pieces, counted once, its place told once."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from redis import Redis

from penstock.definitions import QUEUE
from penstock.pipeline.sink.clickhouse_sink import Sink
from penstock.pipeline.source.redis_streams import FORMAT, packed
from penstock.streams.positions import read_position
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.pipeline.events import add, event

ENTRIES, LOST = 400, 30


def test_pieces_of_a_shard_are_counted_once_and_loss_is_told_once(
    spark: SparkSession, stream_url: str, redis: Redis, warehouse: Warehouse, tmp_path: Path
) -> None:
    begin_ms = int(time.time() * 1000) - 300 * ENTRIES
    for n in range(ENTRIES):
        # Large, because small ranges are not divided.
        add(redis, 0, event(eq=1, ql=n, wt="1,2", note="x" * 20_000), f"{begin_ms + 300 * n}-0")
    redis.xtrim(QUEUE.stream_keys[0], maxlen=ENTRIES - LOST, approximate=False)
    add(redis, 1, event("other", eq=1), f"{begin_ms}-0")
    sink = Sink(QUEUE, warehouse, redis, threading.Event())
    frame = (
        spark.readStream.format(FORMAT)
        .option("redis_url", stream_url)
        .option("definition", packed(QUEUE))
        .option("tasks", 3)
        .load()
    )
    query = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    lines = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    end, *cuts = json.loads(lines[-1])["0"].split(" ")
    assert len(cuts) == 2
    [tier] = warehouse.query(
        "SELECT sum(events) AS events, sum(enqueued) AS enqueued, sum(wait_ms_count) AS waits FROM queue_5s"
    )
    counted = ENTRIES - LOST + 1
    found = [int(tier[name]) for name in ("events", "enqueued", "waits")]
    assert found == [counted, counted, 2 * (counted - 1)]
    [depth] = warehouse.query("SELECT toInt64(max(depth_last)) AS last FROM queue_1h WHERE queue = 'orders'")
    assert int(depth["last"]) == ENTRIES - 1
    [aside] = warehouse.query("SELECT reason, events, stream FROM set_aside")
    assert (aside["reason"], int(aside["events"]), aside["stream"]) == ("trimmed", LOST, QUEUE.stream_keys[0])
    assert read_position(redis, QUEUE.stream_keys[0]) == (end, ENTRIES)
    assert sink.state.entries == counted
