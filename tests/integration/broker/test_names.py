"""What an ack belongs to: asked of the database once, and then known."""

from __future__ import annotations

import pytest

from penstock.broker.broker import Broker
from penstock.broker.self_metrics.queue_metrics import Tally
from penstock.durable import log
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.broker.brokers import Brokers, ack, pop, push


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way acks go, one after the other: `names` are asked for, or `plain`."""
    went: list[str] = []
    named, plain = log.ack, log.ack_completed

    async def ack_named(*given: object) -> object:
        went.append("names")
        return await named(*given)  # type: ignore[arg-type]

    async def ack_completed(*given: object) -> object:
        went.append("plain")
        return await plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "ack", ack_named)
    monkeypatch.setattr(log, "ack_completed", ack_completed)
    return went


async def settle_one(broker: Broker, group: str = "g", status: str = "completed") -> tuple[object, ...]:
    [result] = await ack(broker, await pop(broker, group=group), status)
    return result.outcome, result.queue, result.partition, result.lease_released


async def test_names_are_asked_for_once(broker: Broker, ways: list[str]) -> None:
    for partition in ("a", "a", "b", "b"):
        await push(broker, "m", partition=partition)
        assert await settle_one(broker) == ("completed", "q", partition, True)
    await push(broker, "m", partition="b")
    assert await settle_one(broker, "other") == ("completed", "q", "a", True)
    assert ways == ["names", "plain", "names", "plain", "names"]


async def test_only_what_is_completed_goes_the_short_way(broker: Broker, ways: list[str]) -> None:
    await push(broker, "1", "2", "3", "4")
    assert await settle_one(broker) == ("completed", "q", "Default", True)
    assert await settle_one(broker, status="retry") == ("retry", "q", "Default", True)
    held = await pop(broker, batch=2)
    assert {result.outcome for result in await ack(broker, held)} == {"completed"}
    assert await settle_one(broker) == ("completed", "q", "Default", True)
    assert ways == ["names", "names", "names", "plain"]


async def test_a_lease_is_never_known(broker: Broker, ways: list[str]) -> None:
    await push(broker, "1", "2")
    await settle_one(broker)
    held = await pop(broker)
    assert [result.outcome for result in await ack(broker, held)] == ["completed"]
    [lost] = await ack(broker, held)
    assert (lost.outcome, lost.queue, lost.partition) == ("lease_lost", None, None)
    assert ways == ["names", "plain", "plain"]


async def test_a_queue_that_was_made_again_has_new_names_to_ask_for(
    broker: Broker, database: Database, ways: list[str]
) -> None:
    await push(broker, "1", "2")
    await settle_one(broker)
    held = await pop(broker)
    await database.fetch("DELETE FROM queues")
    assert [result.outcome for result in await ack(broker, held)] == ["lease_lost"]
    await push(broker, "3")
    assert await settle_one(broker) == ("completed", "q", "Default", True)
    assert ways == ["names", "plain", "names"]


async def test_both_ways_are_counted_alike(brokers: Brokers, ways: list[str]) -> None:
    broker = await brokers.start()
    _, metrics, _ = brokers.running[-1]
    told: list[tuple[Scope, str, str, dict[str, int], int, int]] = []

    def observe(scope: Scope, queue: str, group: str, tally: Tally) -> None:
        if tally.settled:
            told.append((scope, queue, group, tally.counters, tally.settled, len(tally.runs)))

    metrics.observer = observe
    for _ in range(2):
        await push(broker, "m")
        held = await pop(broker)
        metrics.take()
        await ack(broker, held)
        metrics.take()
    assert told == [(DEFAULT_SCOPE, "q", "g", {"ak": 1}, 1, 1)] * 2
    assert ways == ["names", "plain"]
