"""Silences and inhibition against real servers: what they hold back, and what follows when they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.alerts.incidents.silence_service import AlertSilences
from penstock.clock import to_utc
from penstock.durable.pool import Database
from penstock.model import Scope
from tests.integration.alerts.conftest import AlertPlatform
from tests.integration.alerts.test_evaluator import BACKLOG
from tests.integration.environments import create_environment


async def add_silence(platform: AlertPlatform, database: Database, **fields: object) -> None:
    scope = Scope(environment=platform.environment)
    await AlertSilences(database).create(scope, fields)


async def test_what_still_fires_when_a_silence_ends_is_notified_at_once(
    platform: AlertPlatform, database: Database
) -> None:
    for queue in ("orders", "mails"):
        await platform.add_queue(queue)
        platform.observe(queue, depth=50)
    await platform.add_rule(**BACKLOG)
    await add_silence(platform, database, endsAt=to_utc(platform.now_s + 600).isoformat())
    await platform.evaluate()
    assert await platform.states() == {"orders": "firing", "mails": "firing"}
    assert await platform.connection.fetchval("SELECT silenced FROM alert_incidents")
    assert await platform.notices() == []

    platform.observe("mails", depth=0)
    await platform.evaluate(after_s=540)
    assert await platform.notices() == []
    await platform.evaluate()

    assert await platform.notices() == [("opened", ["orders"])]


async def test_a_silence_holds_back_only_its_queues(platform: AlertPlatform, database: Database) -> None:
    for queue in ("orders", "mails"):
        await platform.add_queue(queue)
        platform.observe(queue, depth=50)
    await platform.add_rule(**BACKLOG)
    await add_silence(platform, database, queue="mail*")

    await platform.evaluate()

    assert await platform.notices() == [("opened", ["orders"])]


async def test_a_silence_of_another_environment_changes_nothing(
    platform: AlertPlatform, database: Database
) -> None:
    await platform.add_queue("orders")
    platform.observe("orders", depth=50)
    await platform.add_rule(**BACKLOG)
    await create_environment(database, Scope(environment="other"))
    await AlertSilences(database).create(Scope(environment="other"), {})

    await platform.evaluate()

    assert await platform.notices() == [("opened", ["orders"])]


async def test_a_recurring_silence_holds_back_until_the_morning(
    platform: AlertPlatform, database: Database
) -> None:
    await platform.add_queue("orders")
    platform.observe("orders", depth=50)
    await platform.add_rule(**BACKLOG)
    now = datetime.fromtimestamp(platform.now_s, UTC)
    recurrence = {
        "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
        "from": f"{now - timedelta(hours=1):%H:%M}",
        "to": f"{now + timedelta(minutes=10):%H:%M}",
    }
    await add_silence(platform, database, recurrence=recurrence)
    await platform.evaluate()
    assert await platform.notices() == []

    await platform.evaluate(after_s=600)

    assert await platform.notices() == [("opened", ["orders"])]


async def test_a_stale_pipeline_holds_back_what_it_explains(platform: AlertPlatform) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(**BACKLOG)
    stale = await platform.add_rule(type="PIPELINE_STALE", threshold=60_000)
    platform.observe("orders", seconds_ago=100, depth=50)
    await platform.set_watermark(behind_s=90)

    await platform.evaluate(after_s=0)
    assert await platform.states() == {"": "firing", "orders": "firing"}
    [(transition, queues)] = await platform.notices()
    assert (transition, queues) == ("opened", [""])
    inhibited_by = await platform.connection.fetchval(
        "SELECT inhibited_by FROM alert_incidents WHERE rule_id <> $1", stale
    )
    platform_incident = await platform.connection.fetchval(
        "SELECT id FROM alert_incidents WHERE rule_id = $1", stale
    )
    assert inhibited_by == platform_incident

    await platform.set_watermark(behind_s=0)
    await platform.evaluate()

    assert await platform.notices() == [("opened", [""]), ("resolved", [""]), ("opened", ["orders"])]
