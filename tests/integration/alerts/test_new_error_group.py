"""NEW_ERROR_GROUP: errors of dead letters that are new, or back after they were resolved."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from penstock.clock import to_utc
from penstock.durable.dead_letters.error_group_store import ErrorGroupChange, ErrorGroupStore
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from tests.integration.alerts.conftest import AlertPlatform
from tests.integration.durable.dead_letters.dead_letter_steps import kill
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.integration.runqueue.test_dead_tasks import create_dead_tasks

RESOLVED = ErrorGroupChange(state="resolved")
RULE = {"type": "NEW_ERROR_GROUP", "windowMinutes": 60, "cooldownMinutes": 0}


async def die(platform: AlertPlatform, queue: QueueUnderTest, error: str) -> None:
    """Move one more message to the dead letters, at the platform's time."""
    queue.now = to_utc(platform.now_s)
    await kill(queue, "payload", error=error)


async def summaries(platform: AlertPlatform) -> list[str]:
    rows = await platform.connection.fetch(
        "SELECT q.summary FROM alert_incident_queues q JOIN alert_incidents i ON i.id = q.incident_id "
        "ORDER BY i.opened_at"
    )
    return [row["summary"] for row in rows]


async def transitions(platform: AlertPlatform) -> list[str]:
    return [transition for transition, _ in await platform.notices()]


async def test_errors_of_before_the_first_evaluation_are_not_new(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await platform.add_rule(**RULE)
    await die(platform, queue, "timeout after 30 ms")

    await platform.evaluate()
    await die(platform, queue, "timeout after 31 ms")
    await platform.evaluate()

    assert await platform.states() == {}


async def test_a_new_error_fires_for_the_window_with_its_pattern_and_an_example(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await platform.add_rule(**RULE)
    await platform.evaluate()
    await die(platform, queue, "card 4711 declined")

    await platform.evaluate()
    assert await summaries(platform) == ["new error: card <n> declined (for example: card 4711 declined)"]
    await platform.evaluate(after_s=3500)
    assert await platform.states() == {"orders": "firing"}
    await platform.evaluate(after_s=120)

    assert await transitions(platform) == ["opened", "resolved"]


async def test_a_requeued_error_that_returns_is_not_new(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await platform.add_rule(**RULE)
    await platform.evaluate()
    await die(platform, queue, "declined")
    await platform.evaluate()
    await platform.evaluate(after_s=3700)
    await platform.connection.execute("DELETE FROM dead_letters")
    await platform.evaluate()

    await die(platform, queue, "declined")
    await platform.evaluate()

    assert await transitions(platform) == ["opened", "resolved"]


async def test_a_resolved_error_resolves_the_incident_and_fires_when_it_is_back(
    platform: AlertPlatform, queue: QueueUnderTest, database: Database
) -> None:
    await platform.add_rule(**RULE)
    await platform.evaluate()
    await die(platform, queue, "declined")
    await platform.evaluate()
    key = await platform.connection.fetchval("SELECT error_key FROM error_groups")
    store = ErrorGroupStore(database)

    queues = await store.change(queue.scope, key, None, RESOLVED, now=to_utc(platform.now_s))
    assert queues == ["orders"]
    await platform.evaluate()
    assert await transitions(platform) == ["opened", "resolved"]

    platform.now_s += 86_400
    await die(platform, queue, "declined")
    await platform.evaluate()

    assert await transitions(platform) == ["opened", "resolved", "opened"]
    assert (await summaries(platform))[1] == "error is back after it was resolved: declined"


async def test_an_error_resolved_before_any_rule_existed_fires_when_it_is_back(
    platform: AlertPlatform, queue: QueueUnderTest, database: Database
) -> None:
    await die(platform, queue, "declined")
    key = await platform.connection.fetchval("SELECT error_key FROM dead_letters")
    platform.now_s += 1
    now = to_utc(platform.now_s)
    await ErrorGroupStore(database).change(queue.scope, key, "orders", RESOLVED, now=now)
    await platform.add_rule(**RULE)
    await platform.evaluate()
    assert await platform.states() == {}

    await die(platform, queue, "declined")
    await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}


async def test_an_ignored_error_fires_when_it_is_back(
    platform: AlertPlatform, queue: QueueUnderTest, database: Database
) -> None:
    await platform.add_rule(**RULE)
    await platform.evaluate()
    await die(platform, queue, "declined")
    await platform.evaluate()
    key = await platform.connection.fetchval("SELECT error_key FROM error_groups")
    ignored = ErrorGroupChange(state="ignored", ignored_count=2)
    await ErrorGroupStore(database).change(queue.scope, key, None, ignored, now=to_utc(platform.now_s))
    await die(platform, queue, "declined")
    await platform.evaluate()
    assert await transitions(platform) == ["opened", "resolved"]

    await die(platform, queue, "declined")
    await platform.evaluate(after_s=86_400)

    assert await transitions(platform) == ["opened", "resolved", "opened"]
    assert (await summaries(platform))[1] == "error is back after it was ignored: declined"


async def test_a_forgotten_error_is_new_again(platform: AlertPlatform, queue: QueueUnderTest) -> None:
    await platform.add_rule(**RULE)
    await die(platform, queue, "declined")
    await platform.evaluate()
    await platform.connection.execute("DELETE FROM dead_letters")
    await platform.evaluate(after_s=91 * 86_400)
    assert await platform.connection.fetchval("SELECT count(*) FROM error_groups") == 0

    await die(platform, queue, "declined")
    await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}


@pytest.fixture
async def run_queues(redis_url: str) -> AsyncIterator[RunQueues]:
    created = RunQueues(redis_url, metrics_enabled=False)  # without unread events the metrics are current
    yield created
    await created.stop()


async def test_new_errors_of_dead_tasks_fire(platform: AlertPlatform, run_queues: RunQueues) -> None:
    platform.now_s = time.time()
    scope = Scope("default", "default", platform.environment)
    await platform.add_rule(**RULE)
    await create_dead_tasks(run_queues, scope, 2, error="old error")
    await platform.evaluate()
    await create_dead_tasks(run_queues, scope, 2, error="old error")
    await platform.evaluate()
    assert await platform.states() == {}

    await create_dead_tasks(run_queues, scope, 1, error="mailbox 12 is full")
    await platform.evaluate()

    assert await summaries(platform) == ["new error: mailbox <n> is full (for example: mailbox 12 is full)"]


async def test_an_ignored_error_of_dead_tasks_counts_each_task_once(
    platform: AlertPlatform, run_queues: RunQueues, database: Database
) -> None:
    platform.now_s = time.time()
    scope = Scope("default", "default", platform.environment)
    await platform.add_rule(**RULE)
    await create_dead_tasks(run_queues, scope, 1, error="mailbox is full")
    await platform.evaluate(after_s=0)
    row = await platform.connection.fetchrow("SELECT queue, error_key FROM error_groups")
    assert row is not None
    ignored = ErrorGroupChange(state="ignored", ignored_count=3)
    await ErrorGroupStore(database).change(scope, row["error_key"], row["queue"], ignored)
    await create_dead_tasks(run_queues, scope, 2, error="mailbox is full")
    await platform.evaluate()
    await platform.evaluators.pop().close()
    await platform.evaluate()  # another process reads all dead tasks again
    assert await platform.states() == {}

    await create_dead_tasks(run_queues, scope, 1, error="mailbox is full")
    await platform.evaluate()

    assert await summaries(platform) == ["error is back after it was ignored: mailbox is full"]
