"""Spans and metrics of batches, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.otlp.configuration import load_exporters
from penstock.pipeline.batch_spans import BatchSpans
from penstock.pipeline.heartbeat import Heartbeat
from penstock.pipeline.job import Pipeline
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import fill
from tests.otlp_receiver import running_receiver
from tests.waiting import wait_until

ENTRIES = 3


def test_each_batch_has_a_span_with_the_parts_of_its_duration(
    spark: SparkSession,
    redis: Redis,
    stream_url: str,
    warehouse_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        exporters = load_exporters("pipeline", "here")
        assert exporters is not None
        heartbeat = Heartbeat(stream_url, [QUEUE], interval_s=0.2, on_batches=BatchSpans(exporters).export)
        settings = Settings(redis_url=stream_url, clickhouse_url=warehouse_url, trigger_ms=200)
        stopping = threading.Event()
        pipeline = Pipeline(spark, settings, tmp_path / "checkpoint", (QUEUE,), stopping, heartbeat)
        thread = threading.Thread(target=pipeline.run, daemon=True)
        thread.start()
        try:
            fill(redis, ENTRIES)

            def exported_entries() -> bool:
                spans = receiver.find("batch queue", "penstock-pipeline")
                return sum(int(span.attributes["penstock.batch.entries"]) for span in spans) == ENTRIES

            wait_until(exported_entries, 120, "the spans of all batches arrive")
        finally:
            stopping.set()
            thread.join(deadline_s(60))
        exporters.close()
        for span in receiver.find("batch queue"):
            parts = [span.attributes[f"penstock.batch.{part}_ms"] for part in ("plan", "read", "insert")]
            assert 0 < sum(map(float, parts)) <= span.duration_s * 1000 + 5
        entries = receiver.points["penstock_pipeline_batch_entries"]
        assert (entries[-1].attributes, entries[-1].value) == ({"metric": "queue"}, ENTRIES)
        parts_with_points = {
            point.attributes["part"] for point in receiver.points["penstock_pipeline_batch_part_seconds"]
        }
        assert parts_with_points == {"whole", "plan", "read", "insert", "checkpoint"}
