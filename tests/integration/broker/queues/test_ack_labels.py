"""The labels of acks: read from the database once, then cached."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.broker.broker import Broker
from penstock.broker.self_metrics.queue_metrics import QueueTally
from penstock.durable import log
from penstock.durable.log import Ack, AckReceipt, LeaseAcks
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.broker.brokers import Brokers, ack, acks_of, pop, push


@pytest.fixture
def ack_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records which function each ack calls: `ack`, which reads labels, or `ack_completed`."""
    calls: list[str] = []
    original_ack, original_ack_completed = log.ack, log.ack_completed

    async def ack(database: Database, acks: Sequence[Ack]) -> list[AckReceipt]:
        calls.append("ack")
        return await original_ack(database, acks)

    async def ack_completed(database: Database, leases: Sequence[LeaseAcks]) -> list[int | list[AckReceipt]]:
        calls.append("ack_completed")
        return await original_ack_completed(database, leases)

    monkeypatch.setattr(log, "ack", ack)
    monkeypatch.setattr(log, "ack_completed", ack_completed)
    return calls


async def ack_one(broker: Broker, group: str = "g", status: str = "completed") -> tuple[object, ...]:
    [result] = await ack(broker, await pop(broker, group=group), status)
    return result.outcome, result.queue, result.partition, result.lease_released


async def test_labels_are_read_once_per_partition_and_group(broker: Broker, ack_calls: list[str]) -> None:
    for partition in ("a", "a", "b", "b"):
        await push(broker, "m", partition=partition)
        assert await ack_one(broker) == ("completed", "q", partition, True)
    await push(broker, "m", partition="b")
    assert await ack_one(broker, "other") == ("completed", "q", "a", True)
    assert ack_calls == ["ack", "ack_completed", "ack", "ack_completed", "ack"]


async def test_only_completed_messages_use_ack_completed(broker: Broker, ack_calls: list[str]) -> None:
    await push(broker, "1", "2", "3", "4")
    assert await ack_one(broker) == ("completed", "q", "Default", True)
    assert await ack_one(broker, status="retry") == ("retry", "q", "Default", True)
    held = await pop(broker, batch=2)
    results = await ack(broker, held)
    assert [(r.outcome, r.queue, r.partition, r.lease_released) for r in results] == [
        ("completed", "q", "Default", True)
    ] * 2
    assert await ack_one(broker) == ("completed", "q", "Default", True)
    assert ack_calls == ["ack", "ack", "ack_completed", "ack_completed"]


async def test_acks_of_one_position_under_two_leases_use_ack(broker: Broker, ack_calls: list[str]) -> None:
    """Neither function may change a position twice in one statement."""
    await push(broker, "1")
    await ack_one(broker)
    await push(broker, "2")
    lost = await pop(broker)
    await broker.release_lease(DEFAULT_SCOPE, lost)
    held = await pop(broker)
    receipts = await broker.ack(DEFAULT_SCOPE, acks_of(lost) + acks_of(held))
    outcomes = [receipt.outcome for receipt in receipts]
    assert outcomes == ["lease_lost", "completed"]
    assert ack_calls == ["ack", "ack"]


async def test_leases_are_never_cached(broker: Broker, ack_calls: list[str]) -> None:
    await push(broker, "1", "2")
    await ack_one(broker)
    held = await pop(broker)
    assert [result.outcome for result in await ack(broker, held)] == ["completed"]
    [lost] = await ack(broker, held)
    assert (lost.outcome, lost.queue, lost.partition) == ("lease_lost", None, None)
    assert ack_calls == ["ack", "ack_completed", "ack_completed"]


async def test_the_labels_of_a_recreated_queue_are_read_again(
    broker: Broker, database: Database, ack_calls: list[str]
) -> None:
    await push(broker, "1", "2")
    await ack_one(broker)
    held = await pop(broker)
    await database.fetch("DELETE FROM queues")
    assert [result.outcome for result in await ack(broker, held)] == ["lease_lost"]
    await push(broker, "3")
    assert await ack_one(broker) == ("completed", "q", "Default", True)
    assert ack_calls == ["ack", "ack_completed", "ack"]


async def test_both_functions_are_counted_alike(brokers: Brokers, ack_calls: list[str]) -> None:
    broker = await brokers.start()
    _, metrics, _ = brokers.running[-1]
    observed: list[tuple[Scope, str, str, dict[str, int], int, int]] = []

    def observe(scope: Scope, queue: str, group: str, tally: QueueTally) -> None:
        if tally.acked:
            observed.append((scope, queue, group, tally.counters, tally.acked, len(tally.run_times_ms)))

    metrics.observer = observe
    for _ in range(2):
        await push(broker, "m")
        held = await pop(broker)
        metrics.close_tallies()
        await ack(broker, held)
        metrics.close_tallies()
    assert observed == [(DEFAULT_SCOPE, "q", "g", {"ak": 1}, 1, 1)] * 2
    assert ack_calls == ["ack", "ack_completed"]
