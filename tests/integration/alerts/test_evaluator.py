"""The evaluator against real servers: incidents, notices, takeover and unknown states."""

from __future__ import annotations

from tests.integration.alerts.conftest import AlertPlatform

BACKLOG = {"type": "BACKLOG", "threshold": 10, "windowMinutes": 1, "statistic": "last"}


async def test_a_backlog_opens_an_incident_and_resolves_it(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)

    await platform.evaluate()
    assert await platform.states() == {"orders": "firing"}
    platform.observe("orders", depth=0)
    await platform.evaluate()

    assert await platform.notices() == [("opened", ["orders"]), ("resolved", ["orders"])]


async def test_many_queues_are_one_notice(platform: AlertPlatform) -> None:
    for number in range(30):
        await platform.add_queue(f"queue-{number}")
        platform.observe(f"queue-{number}", depth=50)
    await platform.add_rule(**BACKLOG)

    await platform.evaluate()

    [(transition, queues)] = await platform.notices()
    assert (transition, len(queues)) == ("opened", 20)


async def test_an_idle_queue_keeps_firing_on_its_last_gauge(platform: AlertPlatform) -> None:
    await platform.add_queue("stuck")
    await platform.add_rule(**BACKLOG)
    platform.observe("stuck", seconds_ago=3 * 3600, depth=50)

    await platform.evaluate()
    await platform.evaluate(after_s=600)

    assert await platform.states() == {"stuck": "firing"}
    assert await platform.notices() == [("opened", ["stuck"])]


async def test_a_deleted_queue_resolves(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    await platform.evaluate()

    await platform.connection.execute("DELETE FROM queues WHERE name = 'orders'")
    await platform.evaluate()

    assert await platform.notices() == [("opened", ["orders"]), ("resolved", ["orders"])]


async def test_another_evaluator_takes_over_and_sends_nothing_twice(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    first, second = platform.evaluator(), platform.evaluator()
    assert await first.run_round()
    assert not await second.run_round()

    await first.stop()
    platform.now_s += 30
    assert await second.run_round()

    assert await platform.notices() == [("opened", ["orders"])]


async def test_a_disabled_rule_resolves_its_incident(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    rule_id = await platform.add_rule(**BACKLOG)
    platform.observe("orders", depth=50)
    await platform.evaluate()

    await platform.connection.execute("UPDATE alert_rules SET enabled = false WHERE id = $1", rule_id)
    await platform.evaluate()

    assert [transition for transition, _ in await platform.notices()] == ["opened", "resolved"]
    resolution = await platform.connection.fetchval("SELECT resolution FROM alert_incidents")
    assert resolution == "rule disabled"


async def test_a_percentile_of_waits_fires(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(type="LATENCY", threshold=5_000, statistic="p95", windowMinutes=5)
    platform.observe("orders", seconds_ago=200, depth=1, wait_ms=(10,) * 90)
    await platform.evaluate(after_s=0)
    assert await platform.states() == {}

    platform.observe("orders", seconds_ago=100, depth=1, wait_ms=(9_000,) * 10)
    await platform.evaluate()

    assert await platform.states() == {"orders": "firing"}


async def test_percentiles_of_long_windows_are_read_again_when_a_minute_has_passed(
    platform: AlertPlatform,
) -> None:
    await platform.add_queue("orders")
    for minutes in (15, 180):
        await platform.add_rule(type="LATENCY", threshold=5_000, statistic="p95", windowMinutes=minutes)
    platform.observe("orders", seconds_ago=200, depth=1, wait_ms=(10,) * 90)
    await platform.evaluate(after_s=0)
    platform.observe("orders", seconds_ago=100, depth=1, wait_ms=(9_000,) * 10)

    await platform.evaluate(after_s=60)
    assert len(await platform.notices()) == 1
    await platform.evaluate(after_s=300)

    assert len(await platform.notices()) == 2


async def test_a_fast_burning_objective_fires_and_a_slow_one_does_not(platform: AlertPlatform) -> None:
    objective = {"type": "SLO", "objective": 0.95, "withinSeconds": 30}
    for queue, late in (("good", 2), ("bad", 90)):
        await platform.add_queue(queue)
        await platform.add_rule(**objective, queue=queue)
        for minute in range(4, 60, 5):
            waits = (100,) * (100 - late) + (60_000,) * late
            platform.observe(queue, seconds_ago=minute * 60, depth=1, wait_ms=waits)

    await platform.evaluate(after_s=0)

    assert await platform.states() == {"bad": "firing"}


async def test_an_objective_with_few_samples_does_not_fire(platform: AlertPlatform) -> None:
    await platform.add_queue("rare")
    await platform.add_rule(type="SLO", objective=0.95, withinSeconds=30)
    platform.observe("rare", seconds_ago=120, depth=1, wait_ms=(60_000,) * 20)

    await platform.evaluate(after_s=0)

    assert await platform.states() == {}


async def test_an_acknowledged_incident_is_not_repeated(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG, repeatMinutes=20)
    platform.observe("orders", depth=50)
    await platform.evaluate()
    await platform.evaluate(after_s=20 * 60)
    assert [transition for transition, _ in await platform.notices()] == ["opened", "update 1"]

    await platform.connection.execute("UPDATE alert_incidents SET acknowledged_at = now()")
    await platform.evaluate(after_s=20 * 60)

    assert [transition for transition, _ in await platform.notices()] == ["opened", "update 1"]
