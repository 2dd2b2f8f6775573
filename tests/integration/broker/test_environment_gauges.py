"""What the broker says of environments as a whole, and of queues and groups that are no more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.broker.self_metrics import queue_metrics
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.definitions import MetricDefinition
from penstock.durable import log
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask
from penstock.streams.emitter import Emitter
from tests.integration.broker.brokers import NOBODY, Brokers, ack, pop, push
from tests.waiting import wait_until_async


class Heard(Emitter):
    """An emitter that also remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(NOBODY, buffer=1_000)
        self.events: list[dict[str, Any]] = []

    def emit(
        self, definition: MetricDefinition, fields: Mapping[str, str | int], shard_key: str | None = None
    ) -> None:
        self.events.append(dict(fields))
        super().emit(definition, fields, shard_key)

    def of(self, queue: str, group: str = "", wire: str = "ql") -> list[int]:
        """The values of one gauge, in order."""
        return [e[wire] for e in self.events if (e["queue"], e["group"]) == (queue, group) and wire in e]

    def environment(self, wire: str, name: str = "default") -> list[int]:
        return [e[wire] for e in self.events if (e["env"], e["queue"]) == (name, "") and wire in e]


@pytest.fixture
def heard() -> Heard:
    return Heard()


async def started(brokers: Brokers, heard: Heard) -> tuple[Broker, QueueMetrics]:
    """A broker whose metrics are emitted when the test says so."""
    broker = await brokers.start(emitter=heard)
    _, its, _ = brokers.running[-1]
    await its.stop()
    return broker, its


async def test_an_environment_is_the_sum_of_its_queues(
    brokers: Brokers, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_metrics, "ENVIRONMENT_INTERVAL_S", 0)
    monkeypatch.setattr(queue_metrics, "ENVIRONMENT_SHARE", 1e9)
    broker, its = await started(brokers, heard)
    await push(broker, "a", "b", "c", queue="one")
    await push(broker, "d", "e", queue="two")
    await broker.push(Scope(environment="other"), [NewMessage("one", "Default", b"x")])
    taken = await pop(broker, queue="one", batch=2)
    await its.flush()
    assert (heard.environment("eql"), heard.environment("ecc")) == ([3], [2])
    assert heard.environment("eql", "other") == [1]
    assert 0 <= heard.environment("eage")[0] < 60_000
    assert not heard.environment("ecl")
    await ack(broker, taken)
    for queue, left in (("one", 1), ("two", 2)):
        drained = await pop(broker, queue=queue, batch=10)
        assert len(drained.messages) == left
        await ack(broker, drained)
    await its.flush()
    assert [heard.environment(wire)[-1] for wire in ("eql", "ecc", "eage")] == [0, 0, 0]
    assert len(heard.environment("eql", "other")) == 1


async def test_tasks_of_run_queues_count_in_their_environment(
    brokers: Brokers, heard: Heard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_metrics, "ENVIRONMENT_INTERVAL_S", 0)
    monkeypatch.setattr(queue_metrics, "ENVIRONMENT_SHARE", 1e9)
    broker, its = await started(brokers, heard)
    scope = Scope(environment=f"both-{uuid4().hex[:8]}")
    run_queues, away = RunQueues(redis_url), RunQueues(NOBODY)
    await run_queues.enqueue(scope, "tasks", [NewTask(), NewTask(), NewTask()])
    await run_queues.dequeue(scope, "tasks")
    await wait_until_async(lambda: _older(run_queues, scope, 50), 5, "the tasks are older")
    pushed = time.monotonic()
    await broker.push(scope, [NewMessage("messages", "Default", b"x")])
    its._share = away.share_environment
    await its.flush()
    assert heard.environment("eql", scope.environment) == [], "a part is not the whole"
    its._share = run_queues.share_environment
    await its.flush()
    pushed_ms = (time.monotonic() - pushed) * 1000
    assert heard.environment("eql", scope.environment) == [3]
    assert heard.environment("ecc", scope.environment) == [1]
    [age_ms] = heard.environment("eage", scope.environment)
    assert pushed_ms < age_ms <= (await run_queues.get_environment(scope)).oldest_age_ms, "a task is the oldest"
    await run_queues.stop()
    await away.stop()


async def _older(run_queues: RunQueues, scope: Scope, ms: int) -> bool:
    return (await run_queues.get_environment(scope)).oldest_age_ms > ms


async def test_environments_are_read_seldom_and_once_more_after_the_last_touch(
    brokers: Brokers, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, its = await started(brokers, heard)
    for n in range(5):
        await push(broker, str(n))
        await its.flush()
    assert heard.environment("eql") == [1]
    assert heard.of("q") == [1, 2, 3, 4, 5]
    its._environments_due_at = 0.0
    await its.flush()
    assert heard.environment("eql") == [1, 5]
    its._environments_due_at = 0.0
    await its.flush()
    assert heard.environment("eql") == [1, 5]


async def test_a_broker_that_stops_says_its_last_word_on_environments(brokers: Brokers, heard: Heard) -> None:
    broker = await brokers.start(emitter=heard)
    await push(broker, "a")
    await wait_until_async(lambda: _told(heard, [1]), 20, "the environment is told of")
    drained = await pop(broker)
    await ack(broker, drained)
    _, its, _ = brokers.running[-1]
    await its.stop()
    assert heard.environment("eql")[-1] == 0


async def test_environments_that_cannot_be_read_are_read_later(
    brokers: Brokers, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, its = await started(brokers, heard)
    real, asked = log.environment_gauges, 0

    async def failing_once(*args: Any) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise DatabaseUnavailable("gone")
        return await real(*args)

    monkeypatch.setattr(log, "environment_gauges", failing_once)
    await push(broker, "a")
    await its.flush()
    assert (heard.environment("eql"), heard.of("q")) == ([], [1])
    its._environments_due_at = 0.0
    await its.flush()
    assert heard.environment("eql") == [1]


async def test_a_deleted_queue_ends_at_zero(brokers: Brokers, heard: Heard) -> None:
    broker, its = await started(brokers, heard)
    await push(broker, "a", "b")
    await pop(broker, group="g")
    await its.flush()
    assert (heard.of("q", "g"), heard.of("q", "g", "cc"), heard.environment("eql")) == ([1], [1], [1])
    await push(broker, "c")
    assert await broker.queues.delete(DEFAULT_SCOPE, "q")
    assert [(heard.of("q", group)[-1], heard.of("q", group, "cc")[-1]) for group in ("", "g")] == [(0, 0)] * 2
    its._environments_due_at = 0.0
    await its.flush()
    assert (heard.of("q")[-1], heard.of("q", "g")[-1]) == (0, 0)
    assert heard.environment("eql")[-1] == 0
    assert not await broker.queues.delete(DEFAULT_SCOPE, "q")


async def test_a_queue_made_again_has_the_last_word(brokers: Brokers, heard: Heard) -> None:
    broker, _ = await started(brokers, heard)
    other, others = await started(brokers, heard)
    await push(broker, "a", "b")
    await push(other, "c")
    assert await broker.queues.delete(DEFAULT_SCOPE, "q")
    await push(other, "d", "e", "f")
    await others.flush()
    assert heard.of("q")[-1] == 3


async def test_a_deleted_group_ends_at_zero_and_its_queue_goes_on(brokers: Brokers, heard: Heard) -> None:
    broker, its = await started(brokers, heard)
    await push(broker, "a", "b")
    await pop(broker, group="g")
    await its.flush()
    assert await broker.groups.delete(DEFAULT_SCOPE, "g") == 1
    await its.flush()
    assert (heard.of("q", "g")[-1], heard.of("q")[-1]) == (0, 2)


async def test_without_metrics_no_gauges_are_read(
    brokers: Brokers, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, its = await started(brokers, heard)
    heard.enabled = False

    async def asked(*_: Any) -> list[Any]:
        raise AssertionError("nobody listens")

    monkeypatch.setattr(log, "gauges", asked)
    monkeypatch.setattr(log, "environment_gauges", asked)
    await push(broker, "a")
    await its.flush()
    assert not heard.events


async def _told(heard: Heard, values: list[int]) -> bool:
    return heard.environment("eql") == values
