"""EXPIRES_SOON: unread messages that a time to live or retention will remove."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.clock import to_utc
from tests.integration.alerts.conftest import AlertPlatform
from tests.integration.durable.queue_under_test import QueueUnderTest

HOUR_MS = 3_600_000


async def summaries(platform: AlertPlatform) -> list[str]:
    rows = await platform.connection.fetch("SELECT summary FROM alert_incident_queues ORDER BY queue")
    return [row["summary"] for row in rows]


@pytest.mark.parametrize(
    "options",
    [
        {"ttl_ms": 6 * HOUR_MS},
        {"max_wait_ms": 6 * HOUR_MS},
        {"retention_enabled": True, "retention_ms": 6 * HOUR_MS},
    ],
    ids=["ttl", "max wait", "retention"],
)
async def test_unread_messages_near_their_end_fire_until_they_are_consumed(
    platform: AlertPlatform, queue: QueueUnderTest, options: dict[str, object]
) -> None:
    await queue.configure(**options)
    await platform.add_rule(type="EXPIRES_SOON", withinHours=4)
    await queue.push("a", "b", "c")
    await platform.evaluate(after_s=1.9 * 3600)
    assert await platform.states() == {}
    queue.now = to_utc(platform.now_s)
    await queue.push("d")  # it lives two hours longer than the others

    await platform.evaluate(after_s=0.2 * 3600)

    assert await platform.states() == {"orders": "firing"}
    assert await summaries(platform) == ["3 messages will expire within 4 h"]
    queue.now = to_utc(platform.now_s)
    await queue.ack(await queue.pop(batch=3))
    await platform.evaluate()
    assert [transition for transition, _ in await platform.notices()] == ["opened", "resolved"]


async def test_messages_finished_out_of_order_do_not_count(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await queue.configure(ttl_ms=6 * HOUR_MS)
    await platform.add_rule(type="EXPIRES_SOON", withinHours=4)
    await queue.push("a", "b", "c")
    await queue.ack(await queue.pop(batch=3), "completed", 1)

    await platform.evaluate(after_s=3 * 3600)

    assert await summaries(platform) == ["2 messages will expire within 4 h"]


async def test_the_largest_group_counts_unless_the_rule_names_one(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await queue.configure(ttl_ms=6 * HOUR_MS)
    await queue.group("slow")
    for fields in ({}, {"group": "g"}, {"group": "slow"}, {"withinHours": 1}):
        await platform.add_rule(**{"type": "EXPIRES_SOON", "withinHours": 4, **fields})
    await queue.push("a", "b", "c")
    await queue.ack(await queue.pop(batch=2, group="g"), group="g")

    await platform.evaluate(after_s=3 * 3600)

    values = await platform.connection.fetch("SELECT value FROM alert_states ORDER BY value")
    assert [row["value"] for row in values] == [1, 3, 3]


async def test_a_queue_without_groups_counts_all_messages(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await queue.push("a", "b")
    await platform.connection.execute("UPDATE queues SET ttl_ms = $1", 6 * HOUR_MS)
    await platform.add_rule(type="EXPIRES_SOON", withinHours=4)

    await platform.evaluate(after_s=3 * 3600)

    assert await summaries(platform) == ["2 messages will expire within 4 h"]


async def test_queues_that_keep_their_messages_never_fire(
    platform: AlertPlatform, queue: QueueUnderTest
) -> None:
    await queue.configure(retention_enabled=True, completed_retention_ms=HOUR_MS)
    await platform.add_rule(type="EXPIRES_SOON", withinHours=4)
    await queue.push("a")

    await platform.evaluate(after_s=timedelta(days=30).total_seconds())

    assert await platform.states() == {}
