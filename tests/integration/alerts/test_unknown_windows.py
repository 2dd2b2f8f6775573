"""Windows in which nothing can be decided: lost events, stale metrics, unreachable servers, clock steps."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis.asyncio import Redis

from penstock.alerts.evaluation.evaluator import Evaluator
from penstock.clock import to_utc
from penstock.embedded.servers.ports import any_free_port
from penstock.runqueue.queue import RunQueues
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import SET_ASIDE_TABLE
from tests.integration.alerts.conftest import AlertPlatform
from tests.waiting import wait_until_async

BACKLOG = {"type": "BACKLOG", "threshold": 10, "windowMinutes": 5, "statistic": "last", "cooldownMinutes": 0}
STALE = {"type": "PIPELINE_STALE"}


def lose_events(platform: AlertPlatform, reason: str, seconds_ago: float, lasting_s: float = 0.0) -> None:
    """Record that an event was lost in an interval that ended some seconds ago."""
    end = to_utc(platform.now_s - seconds_ago)
    platform.warehouse.command(
        f"INSERT INTO {SET_ASIDE_TABLE} (metric, at, began_at, reason, events) VALUES "
        f"('queue', '{end:%Y-%m-%d %H:%M:%S}', '{end - timedelta(seconds=lasting_s):%Y-%m-%d %H:%M:%S}', "
        f"'{reason}', 1)"
    )


async def unknown_reasons(platform: AlertPlatform) -> set[str | None]:
    rows = await platform.connection.fetch("SELECT unknown_reason FROM alert_rule_status")
    return {row["unknown_reason"] for row in rows}


@pytest.mark.parametrize(("reason", "day"), [("dropped", 1), ("trimmed", 2), ("stream_replaced", 3)])
async def test_lost_events_make_the_state_unknown_until_they_leave_the_window(
    platform: AlertPlatform, reason: str, day: int
) -> None:
    platform.now_s += day * 86_400  # the losses of other tests are far away
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    await platform.evaluate()
    assert await platform.states() == {"orders": "firing"}

    lose_events(platform, reason, seconds_ago=60, lasting_s=120)
    platform.observe("orders", depth=0)
    await platform.evaluate()
    assert await platform.states() == {"orders": "unknown"}
    assert await unknown_reasons(platform) == {"events of this window were lost"}
    await platform.evaluate(after_s=200)
    assert await platform.states() == {"orders": "unknown"}
    assert [transition for transition, _ in await platform.notices()] == ["opened"]

    await platform.evaluate(after_s=60)
    assert [transition for transition, _ in await platform.notices()] == ["opened", "resolved"]


async def test_lost_events_do_not_affect_rules_without_metrics(platform: AlertPlatform) -> None:
    platform.now_s += 10 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(type="DEAD_LETTERS", measure="count", threshold=-1)
    await platform.add_rule(**STALE, threshold=0)
    lose_events(platform, "dropped", seconds_ago=0)

    await platform.evaluate()

    assert await platform.states() == {"orders": "firing", "": "firing"}
    assert await unknown_reasons(platform) == {None}


async def test_rejected_events_and_losses_before_the_window_do_not_count(platform: AlertPlatform) -> None:
    platform.now_s += 20 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    lose_events(platform, "malformed", seconds_ago=10)
    lose_events(platform, "dropped", seconds_ago=400)

    await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}


async def test_a_stale_pipeline_holds_every_incident_and_raises_one_of_its_own(
    platform: AlertPlatform,
) -> None:
    platform.now_s += 30 * 86_400
    for queue in ("orders", "emails"):
        await platform.add_queue(queue)
        platform.observe(queue, depth=50)
    await platform.add_rule(**BACKLOG)
    await platform.add_rule(**STALE)
    await platform.evaluate()
    [(first, queues)] = await platform.notices()
    assert (first, sorted(queues)) == ("opened", ["emails", "orders"])

    await platform.set_watermark(behind_s=0)
    for _ in range(6):  # the drained backlogs are not counted yet
        await platform.evaluate()
    states = await platform.states()
    assert states == {"orders": "unknown", "emails": "unknown", "": "firing"}
    assert [queues for _, queues in (await platform.notices())[1:]] == [[""]]
    open_incidents = "SELECT count(*) FROM alert_incidents WHERE resolved_at IS NULL"
    assert await platform.connection.fetchval(open_incidents) == 2

    await platform.set_watermark(behind_s=0)
    platform.observe("orders", depth=0)
    platform.observe("emails", depth=0)
    await platform.evaluate()
    assert await platform.connection.fetchval(open_incidents) == 0
    notices = await platform.notices()
    assert sorted(transition for transition, _ in notices) == ["opened", "opened", "resolved", "resolved"]


async def test_a_stale_pipeline_opens_no_incident_of_a_queue(platform: AlertPlatform) -> None:
    platform.now_s += 40 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    await platform.set_watermark(behind_s=200)

    await platform.evaluate()

    assert await platform.notices() == []


async def test_events_that_are_dated_in_the_future_make_states_unknown(platform: AlertPlatform) -> None:
    """The clock of Redis was 65 seconds ahead when the queue was drained."""
    platform.now_s += 45 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=0)
    await platform.evaluate()
    platform.observe("orders", depth=50)
    platform.observe("orders", seconds_ago=-65, depth=0)
    await platform.set_watermark(behind_s=-65)

    await platform.evaluate()
    assert await unknown_reasons(platform) == {
        "events are dated in the future: check the clocks of Redis and of this host"
    }
    assert await platform.notices() == []

    platform.now_s += 60
    await platform.set_watermark(behind_s=0)
    await platform.evaluate(after_s=0)
    assert await unknown_reasons(platform) == {None}
    assert await platform.notices() == []


async def test_an_unreachable_clickhouse_makes_states_unknown(platform: AlertPlatform) -> None:
    platform.now_s += 50 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    await platform.evaluate()
    await platform.evaluators[0].stop()

    unreachable = connect(f"http://127.0.0.1:{any_free_port()}/nothing")
    assert await add_evaluator(platform, platform.redis_url, unreachable).run_round()
    assert await platform.states() == {"orders": "unknown"}
    await platform.evaluators[1].stop()
    await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}
    assert await platform.notices() == [("opened", ["orders"])]


async def test_an_unreachable_redis_makes_states_unknown(platform: AlertPlatform) -> None:
    platform.now_s += 60 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    await platform.evaluate()
    await platform.evaluators[0].stop()

    redis_url = f"redis://127.0.0.1:{any_free_port()}/0"
    assert await add_evaluator(platform, redis_url, platform.warehouse).run_round()
    assert await platform.states() == {"orders": "unknown"}
    await platform.evaluators[1].stop()
    await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}
    assert await platform.notices() == [("opened", ["orders"])]


def add_evaluator(platform: AlertPlatform, redis_url: str, warehouse: Warehouse) -> Evaluator:
    """Create an evaluator with other servers, stopped at the end of the test."""
    created = Evaluator(
        platform.database_url,
        Redis.from_url(redis_url),
        warehouse,
        RunQueues(redis_url),
        interval_s=0.1,
        clock=platform.clock,
    )
    platform.evaluators.append(created)
    return created


async def test_a_failed_evaluation_is_counted_and_the_next_one_works(platform: AlertPlatform) -> None:
    platform.now_s += 70 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", seconds_ago=30, depth=50)
    evaluator = add_evaluator(platform, platform.redis_url, platform.warehouse)
    rename = "ALTER TABLE {} RENAME TO {}"
    await platform.connection.execute(rename.format("alert_states", "alert_states_away"))
    await evaluator.start()

    async def failures() -> int:
        return int(await platform.connection.fetchval("SELECT failures FROM alert_evaluator"))

    await wait_until_async(failures, 10, "a counted failure")
    await platform.connection.execute(rename.format("alert_states_away", "alert_states"))
    await wait_until_async(platform.notices, 10, "a notice")

    assert await platform.notices() == [("opened", ["orders"])]
    assert await platform.connection.fetchval("SELECT last_error FROM alert_evaluator") is None


@pytest.mark.parametrize("step_s", [-7200, 7200], ids=["back", "forward"])
async def test_a_step_of_the_clock_neither_fires_nor_resolves_early(
    platform: AlertPlatform, step_s: float
) -> None:
    platform.now_s += 80 * 86_400
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG, forMinutes=3, keepFiringForMinutes=3)
    for seconds in (-7200, 0, 7200):  # the same backlog at either time
        platform.observe("orders", seconds_ago=-seconds, depth=50)
    await platform.evaluate()
    await platform.evaluate(after_s=step_s)
    assert await platform.states() == {"orders": "pending"}

    for _ in range(6):
        await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}
    assert await platform.notices() == [("opened", ["orders"])]
