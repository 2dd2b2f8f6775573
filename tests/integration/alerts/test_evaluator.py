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
