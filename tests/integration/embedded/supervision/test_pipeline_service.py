"""Tests of the pipeline as a component: when it counts as up, and when the supervisor leaves it alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from penstock.config import Settings
from penstock.embedded.supervision.component import HEALTHY
from penstock.embedded.supervision.service_components import PipelineService
from penstock.streams.progress import PROGRESS_KEY, STALE_AFTER_S, write_progress


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        client.delete(PROGRESS_KEY)
        yield client
        client.delete(PROGRESS_KEY)


@pytest.fixture
def service(redis_url: str, tmp_path: Path) -> PipelineService:
    return PipelineService(Settings(home=tmp_path, redis_url=redis_url), {})


def report(redis: Redis, state: str, age_s: float = 0, **metrics: Any) -> None:
    progress: Any = {"at": time.time() - age_s, "state": state, "metrics": metrics}
    write_progress(redis, progress)


def test_the_pipeline_is_up_when_it_reads_its_streams(service: PipelineService, redis: Redis) -> None:
    assert (service.probe().ok, service.probe().busy) == (False, False)
    report(redis, "starting")
    health = service.probe()
    assert (health.ok, health.busy) == (False, True), "a slow start is no reason to kill it"
    assert health.reason == "The pipeline is starting and does not read its streams yet"
    report(redis, "running")
    assert service.probe() == HEALTHY


def test_a_pipeline_with_a_failed_query_is_not_up_but_left_alone(
    service: PipelineService, redis: Redis
) -> None:
    report(redis, "failing", queue={"state": "failed", "failures": 3, "last_failure": "no such column"})
    health = service.probe()
    assert (health.ok, health.busy) == (False, True)
    assert health.reason == "The queue query has failed 3 times and will be started again: no such column"


def test_a_pipeline_that_does_not_report_is_hung(service: PipelineService, redis: Redis) -> None:
    report(redis, "running", age_s=STALE_AFTER_S + 5)
    health = service.probe()
    assert (health.ok, health.busy) == (False, False)
