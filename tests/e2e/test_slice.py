"""Messages and tasks through the whole platform: pushed, popped, acked, counted and shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.waiting import wait_until
from tests.whole_platform import RunningPlatform

VISIBLE_TIMEOUT_S = 15
README = Path(__file__).parents[2] / "README.md"


def test_a_pushed_message_is_in_the_metrics_within_15_seconds(platform: RunningPlatform, queue: str) -> None:
    platform.push(queue, {"number": 1}, {"number": 2})

    wait_until(
        lambda: platform.read_counter(queue, "enqueued") == 2, VISIBLE_TIMEOUT_S, "both pushes are counted"
    )
    wait_until(lambda: last_depth(platform, queue) == 2, VISIBLE_TIMEOUT_S, "both messages wait")


def test_a_popped_and_acked_message_is_counted_with_its_waiting_time(
    platform: RunningPlatform, queue: str
) -> None:
    platform.push(queue, {"number": 1})
    [message] = platform.pop(queue)
    assert message["data"] == {"number": 1}
    platform.ack(message)

    wait_until(
        lambda: platform.read_counter(queue, "completed") == 1, VISIBLE_TIMEOUT_S, "the ack is counted"
    )
    assert platform.read_counter(queue, "enqueued") == 1
    assert platform.read_counter(queue, "dequeued") == 1
    [wait_ms] = [
        p["latency"]["avg_wait_ms"] for p in platform.read_points(queue) if p["throughput"]["dequeued"]
    ]
    assert 0 <= wait_ms < 60_000
    wait_until(lambda: last_depth(platform, queue) == 0, VISIBLE_TIMEOUT_S, "no message waits")


def test_an_acked_message_is_not_delivered_again(platform: RunningPlatform, queue: str) -> None:
    platform.push(queue, {"number": 1})
    [message] = platform.pop(queue)
    platform.ack(message)

    assert platform.pop(queue) == []


def test_the_depth_of_an_environment_is_the_sum_of_its_queues(platform: RunningPlatform, queue: str) -> None:
    platform.push(queue, {"number": 1}, {"number": 2}, {"number": 3})
    wait_until(
        lambda: environment_depth(platform) == total_depth(platform) >= 3,
        VISIBLE_TIMEOUT_S,
        "the environment counts the messages",
    )
    wait_until(lambda: last_depth(platform, queue) == 3, VISIBLE_TIMEOUT_S, "all messages wait")
    httpx.delete(f"{platform.url}/api/v1/resources/queues/{queue}").raise_for_status()
    wait_until(lambda: last_depth(platform, queue) == 0, VISIBLE_TIMEOUT_S, "the deleted queue is empty")
    wait_until(
        lambda: environment_depth(platform) == total_depth(platform),
        VISIBLE_TIMEOUT_S,
        "the environment no longer counts them",
    )
    wait_until(
        lambda: platform.read_points(queue)[-3]["complete"] is True,
        VISIBLE_TIMEOUT_S,
        "past points are complete",
    )


def test_tasks_of_a_run_queue_are_counted_like_messages(platform: RunningPlatform, queue: str) -> None:
    platform.enqueue_delayed(queue, 4, 5)
    platform.enqueue(queue, 1, 2, 3, limit=2)
    dequeue = f"{platform.url}/api/v1/run-queues/{queue}/dequeue"
    tasks = httpx.post(dequeue, json={"limit": 3}).raise_for_status().json()["tasks"]
    assert len(tasks) == 2
    token = {"token": tasks[0]["token"]}
    httpx.post(f"{platform.url}/api/v1/tasks/{tasks[0]['id']}/ack", json=token).raise_for_status()

    wait_until(
        lambda: platform.read_counter(queue, "completed") == 1, VISIBLE_TIMEOUT_S, "the ack is counted"
    )
    assert (platform.read_counter(queue, "enqueued"), platform.read_counter(queue, "dequeued")) == (5, 2)
    point = platform.read_points(queue)[-1]
    assert (point["queue_depth"]["last"], point["concurrency"]["limit"]) == (1, 2)
    assert point["delayed"] == {"max": 2, "last": 2}


def test_health_names_every_component(platform: RunningPlatform) -> None:
    response = httpx.get(f"{platform.url}/health")

    assert response.status_code == 200, response.text
    assert response.json()["status"] == "ok"
    assert {"postgres", "redis", "clickhouse", "pipeline", "broker"} <= response.json()["parts"].keys()


def test_status_has_the_health_of_the_broker(platform: RunningPlatform) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "status", "--json"],
        env={**os.environ, "PENSTOCK_HOME": str(platform.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(result.stdout)["health"] == {"status": "ok", "reasons": []}


def test_the_api_describes_itself(platform: RunningPlatform) -> None:
    paths = httpx.get(f"{platform.url}/openapi.json").raise_for_status().json()["paths"]

    assert {"/api/v1/push", "/api/v1/ack"} <= paths.keys()
    assert "html" in httpx.get(f"{platform.url}/docs").raise_for_status().headers["content-type"]


def test_the_first_curl_command_of_the_readme_works(platform: RunningPlatform) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = find_first_curl(README.read_text()).replace(":7480", f":{platform.port}")
    queue = re.search(r'"queue": *"([^"]+)"', command)
    assert queue is not None, command

    result = subprocess.run(
        ["bash", "-c", f"{command} --fail -sS"], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
    assert "queued" in result.stdout
    wait_until(
        lambda: platform.read_counter(queue[1], "enqueued") == 1,
        VISIBLE_TIMEOUT_S,
        "the README's push is counted",
    )


def find_first_curl(text: str) -> str:
    """Return the first curl command at the start of a line, with its continuation lines."""
    match = re.search(r"^curl (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert match is not None, "the README shows no curl command"
    return match[0]


def last_depth(platform: RunningPlatform, queue: str) -> int | None:
    depth: int | None = platform.read_points(queue)[-1]["queue_depth"]["last"]
    return depth


def environment_depth(platform: RunningPlatform) -> int | None:
    response = httpx.get(f"{platform.url}/api/v1/environments/default/queue-metrics", params={"period": "5m"})
    depth: int | None = response.raise_for_status().json()["timeseries"][-1]["queue_depth"]["last"]
    return depth


def total_depth(platform: RunningPlatform) -> int:
    """Return the depth of all durable queues and run queues together."""
    urls = [f"{platform.url}/api/v1/{path}" for path in ("resources/queues", "run-queues")]
    responses = [httpx.get(url, params={"limit": 1000}).raise_for_status().json() for url in urls]
    return sum(queue["depth"] for response in responses for queue in response["queues"])
