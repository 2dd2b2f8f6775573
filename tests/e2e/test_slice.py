"""One message followed through the whole house: pushed, popped, acked, counted and shown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.waiting import wait_until
from tests.whole_platform import Platform

SOON_S = 15
README = Path(__file__).parents[2] / "README.md"


def test_a_pushed_message_is_in_the_metrics_within_15_seconds(platform: Platform, queue: str) -> None:
    platform.push(queue, {"number": 1}, {"number": 2})

    wait_until(lambda: platform.counted(queue, "enqueued") == 2, SOON_S, "both pushes are counted")
    wait_until(lambda: last_depth(platform, queue) == 2, SOON_S, "both wait")


def test_a_popped_and_acked_message_is_counted_with_its_wait(platform: Platform, queue: str) -> None:
    platform.push(queue, {"number": 1})
    [message] = platform.pop(queue)
    assert message["data"] == {"number": 1}
    platform.ack(message)

    wait_until(lambda: platform.counted(queue, "completed") == 1, SOON_S, "the ack is counted")
    assert platform.counted(queue, "enqueued") == 1
    assert platform.counted(queue, "dequeued") == 1
    [wait_ms] = [p["latency"]["avg_wait_ms"] for p in platform.points(queue) if p["throughput"]["dequeued"]]
    assert 0 <= wait_ms < 60_000
    wait_until(lambda: last_depth(platform, queue) == 0, SOON_S, "nothing waits any more")


def test_an_acked_message_does_not_come_back(platform: Platform, queue: str) -> None:
    platform.push(queue, {"number": 1})
    [message] = platform.pop(queue)
    platform.ack(message)

    assert platform.pop(queue) == []


def test_an_environment_is_what_its_queues_hold_together_and_a_deleted_one_ends_at_zero(
    platform: Platform, queue: str
) -> None:
    platform.push(queue, {"number": 1}, {"number": 2}, {"number": 3})
    wait_until(lambda: environment_depth(platform) == held(platform) >= 3, SOON_S, "the environment has them")
    wait_until(lambda: last_depth(platform, queue) == 3, SOON_S, "all wait")
    httpx.delete(f"{platform.url}/api/v1/resources/queues/{queue}").raise_for_status()
    wait_until(lambda: last_depth(platform, queue) == 0, SOON_S, "the deleted queue is empty")
    wait_until(lambda: environment_depth(platform) == held(platform), SOON_S, "the environment lost them")
    wait_until(lambda: platform.points(queue)[-3]["complete"] is True, SOON_S, "what is past is complete")


def test_tasks_of_a_run_queue_are_counted_like_messages(platform: Platform, queue: str) -> None:
    platform.enqueue_later(queue, 4, 5)
    platform.enqueue(queue, 1, 2, 3, limit=2)
    dequeue = f"{platform.url}/api/v1/run-queues/{queue}/dequeue"
    taken = httpx.post(dequeue, json={"limit": 3}).raise_for_status().json()["tasks"]
    assert len(taken) == 2
    token = {"token": taken[0]["token"]}
    httpx.post(f"{platform.url}/api/v1/tasks/{taken[0]['id']}/ack", json=token).raise_for_status()

    wait_until(lambda: platform.counted(queue, "completed") == 1, SOON_S, "the ack is counted")
    assert (platform.counted(queue, "enqueued"), platform.counted(queue, "dequeued")) == (5, 2)
    point = platform.points(queue)[-1]
    assert (point["queue_depth"]["last"], point["concurrency"]["limit"]) == (1, 2)
    assert point["delayed"] == {"max": 2, "last": 2}


def test_health_names_every_part(platform: Platform) -> None:
    response = httpx.get(f"{platform.url}/health")

    assert response.status_code == 200, response.text
    assert response.json()["status"] == "ok"
    assert {"postgres", "redis", "clickhouse", "pipeline", "broker"} <= response.json()["parts"].keys()


def test_the_api_describes_itself(platform: Platform) -> None:
    paths = httpx.get(f"{platform.url}/openapi.json").raise_for_status().json()["paths"]

    assert {"/api/v1/push", "/api/v1/ack"} <= paths.keys()
    assert "html" in httpx.get(f"{platform.url}/docs").raise_for_status().headers["content-type"]


def test_the_first_command_of_the_readme_works_as_printed(platform: Platform) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = first_curl(README.read_text()).replace(":7480", f":{platform.port}")
    queue = re.search(r'"queue": *"([^"]+)"', command)
    assert queue is not None, command

    run = subprocess.run(["bash", "-c", f"{command} --fail -sS"], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    assert "queued" in run.stdout
    wait_until(lambda: platform.counted(queue[1], "enqueued") == 1, SOON_S, "the README's push is counted")


def first_curl(text: str) -> str:
    """The first curl command at the start of a line, with its continued lines."""
    found = re.search(r"^curl (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert found is not None, "the README shows no curl command"
    return found[0]


def last_depth(platform: Platform, queue: str) -> int | None:
    depth: int | None = platform.points(queue)[-1]["queue_depth"]["last"]
    return depth


def environment_depth(platform: Platform) -> int | None:
    answer = httpx.get(f"{platform.url}/api/v1/environments/default/queue-metrics", params={"period": "5m"})
    depth: int | None = answer.raise_for_status().json()["timeseries"][-1]["queue_depth"]["last"]
    return depth


def held(platform: Platform) -> int:
    """What durable queues and run queues hold together."""
    pages = [f"{platform.url}/api/v1/{path}" for path in ("resources/queues", "run-queues")]
    answers = [httpx.get(page, params={"limit": 1000}).raise_for_status().json() for page in pages]
    return sum(queue["depth"] for answer in answers for queue in answer["queues"])
