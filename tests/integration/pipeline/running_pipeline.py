"""Run the pipeline in a thread of the tests, and wait for what it counts and reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.config import Settings
from penstock.definitions import QUEUE, MetricDefinition
from penstock.pipeline.job import Pipeline
from penstock.pipeline.metric_query import RestartBackoff
from penstock.streams.progress import read_progress
from penstock.warehouse.clickhouse_client import Warehouse
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import totals
from tests.waiting import wait_until

StartPipeline = Callable[..., AbstractContextManager[None]]
TIMEOUT_S = 120
BACKOFF = RestartBackoff(first_s=0.1, max_s=0.5)


def pipeline_starter(spark: SparkSession, checkpoint: Path) -> StartPipeline:
    """Return a context manager that runs the pipeline; leaving it stops the pipeline and raises its error.

    A query starts a Python process of its own, so a test names no more metrics than it needs.
    """

    @contextmanager
    def start(
        redis_url: str, clickhouse_url: str, definitions: tuple[MetricDefinition, ...] = (QUEUE,)
    ) -> Iterator[None]:
        settings = Settings(redis_url=redis_url, clickhouse_url=clickhouse_url, trigger_ms=200)
        stopping = threading.Event()
        errors: list[BaseException] = []
        pipeline = Pipeline(
            spark,
            settings,
            checkpoint,
            definitions,
            stopping,
            interval_s=0.3,
            max_failures=1,
            backoff=BACKOFF,
        )

        def run_pipeline() -> None:
            try:
                pipeline.run()
            except BaseException as error:  # noqa: BLE001 - handed to the test
                errors.append(error)

        thread = threading.Thread(target=run_pipeline, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(deadline_s(TIMEOUT_S))
        assert not errors, errors
        assert not thread.is_alive()

    return start


def wait_for_events(warehouse: Warehouse, count: int) -> None:
    wait_until(lambda: totals(warehouse)[2][0] >= count, TIMEOUT_S, f"{count} events are in the hour tier")


def wait_for_progress(
    redis_url: str, condition: Callable[[dict[str, Any]], bool], description: str
) -> dict[str, Any]:
    def read() -> dict[str, Any] | None:
        progress = read_progress(redis_url)
        assert progress is None or condition(progress), progress
        return progress

    progress = wait_until(read, TIMEOUT_S, description)
    assert progress is not None
    return progress
