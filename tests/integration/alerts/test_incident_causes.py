"""Incidents say why they opened: the evidence comes from real servers."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from PIL import Image

from penstock.alerts.incidents.cause_evidence import WEEK_S
from penstock.alerts.incidents.chart import HEIGHT, WIDTH
from penstock.clock import to_utc
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask
from tests.integration.alerts.conftest import AlertPlatform
from tests.integration.alerts.test_evaluator import BACKLOG
from tests.integration.durable.queue_under_test import QueueUnderTest


@pytest.fixture
def orders(platform: AlertPlatform, database: Database) -> QueueUnderTest:
    queue = QueueUnderTest(database, "orders", Scope(environment=platform.environment))
    queue.now = to_utc(platform.now_s)
    return queue


async def open_incident(platform: AlertPlatform, queue: str = "orders", **measures: Any) -> dict[str, Any]:
    """Let a rule fire for the queue, and return the cause of its incident."""
    await platform.add_rule(**BACKLOG)
    platform.observe(queue, depth=50, **measures)
    await platform.evaluate()
    cause: dict[str, Any] = json.loads(
        await platform.connection.fetchval("SELECT cause FROM alert_incidents")
    )
    notice = json.loads(await platform.connection.fetchval("SELECT message FROM alert_notices"))
    assert notice["cause"] == (None if cause["kind"] == "unknown" else cause["summary"])
    return cause


async def test_a_paused_queue(platform: AlertPlatform, orders: QueueUnderTest) -> None:
    await orders.push("a", "b")
    await orders.configure(paused=True)
    cause = await open_incident(platform)
    assert (cause["kind"], cause["figures"]) == ("paused", {"queue": "orders", "waiting": 2})


async def test_a_queue_that_no_consumer_reads(platform: AlertPlatform, orders: QueueUnderTest) -> None:
    await orders.push("a", "b")
    cause = await open_incident(platform)
    assert cause["summary"] == "No consumer has ever read from orders."
    assert [check["kind"] for check in cause["excluded"][:2]] == ["paused", "limit_reached"]


async def test_a_partition_blocked_by_a_failing_message(
    platform: AlertPlatform, orders: QueueUnderTest
) -> None:
    await orders.push("poison", "b", partition="eu")
    await orders.configure(retry_limit=9)
    for _ in range(2):
        await orders.ack(await orders.pop(), "failed", error="broken")
        orders.later(60_000)
    [message] = (await orders.pop()).messages
    cause = await open_incident(platform, dequeued=2)
    assert cause["kind"] == "blocked_partition", cause
    assert cause["figures"]["partition"] == "eu"
    assert cause["figures"]["attempts"] == 2
    assert cause["figures"]["messageId"] == message[2]


async def test_an_error_that_dominates_the_dead_letters(
    platform: AlertPlatform, orders: QueueUnderTest
) -> None:
    await orders.push(*"abcd")
    await orders.configure(retry_limit=0)
    await orders.ack(await orders.pop(4), "failed", error="no route to host")
    cause = await open_incident(platform, dequeued=4)
    assert cause["kind"] == "error_group", cause
    assert (cause["figures"]["deadLetters"], cause["figures"]["ofDeadLetters"]) == (4, 4)
    assert "no route to host" in cause["summary"]


async def test_more_messages_than_in_the_same_hour_last_week(
    platform: AlertPlatform, orders: QueueUnderTest
) -> None:
    await orders.group()
    platform.observe("orders", seconds_ago=WEEK_S + 600, enqueued=10)
    platform.observe("orders", seconds_ago=600, enqueued=90)
    cause = await open_incident(platform, dequeued=1)
    assert cause["kind"] == "enqueue_spike", cause
    assert cause["figures"] == {"queue": "orders", "enqueued": 90, "enqueuedLastWeek": 10}


async def test_a_run_queue_at_its_limit(platform: AlertPlatform) -> None:
    scope = Scope(environment=platform.environment)
    run_queues = RunQueues(platform.redis_url)
    await run_queues.enqueue(scope, "tasks", [NewTask(b"1"), NewTask(b"2")])
    await run_queues.set_queue_limit(scope, "tasks", 1)
    await run_queues.dequeue(scope, "tasks")
    await platform.set_watermark(behind_s=0)  # as if the pipeline had read the events of the tasks
    try:
        cause = await open_incident(platform, "tasks")
    finally:
        await run_queues.stop()
    assert (cause["kind"], cause["figures"]) == (
        "limit_reached",
        {"queue": "tasks", "running": 1, "limit": 1},
    )


async def test_every_check_says_why_it_is_excluded(platform: AlertPlatform, orders: QueueUnderTest) -> None:
    await orders.group()
    cause = await open_incident(platform, dequeued=1)
    assert (cause["kind"], len(cause["excluded"])) == ("unknown", 9)


async def test_an_incident_has_a_picture_of_the_moment(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    for minute in range(120, 0, -10):
        platform.observe("orders", seconds_ago=minute * 60, depth=200 - minute)
    await platform.evaluate()
    chart = await platform.connection.fetchval("SELECT chart FROM alert_incidents")
    with Image.open(io.BytesIO(chart)) as picture:
        assert (picture.format, picture.size) == ("PNG", (WIDTH, HEIGHT))
    await platform.evaluate()
    assert await platform.connection.fetchval("SELECT chart FROM alert_incidents") == chart
