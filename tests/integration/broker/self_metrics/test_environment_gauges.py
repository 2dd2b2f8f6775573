"""Gauges of environments, and of deleted queues and groups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.definitions import MetricDefinition
from penstock.durable.queue_gauges import EnvironmentGauge, GaugeReader
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask
from penstock.streams.emit_batch import Counts
from penstock.streams.emitter import Emitter
from tests.integration.broker.brokers import UNREACHABLE_REDIS_URL, Brokers, ack, pop, push
from tests.integration.environments import create_environment
from tests.waiting import wait_until_async


class RecordingEmitter(Emitter):
    """An emitter that also records the events."""

    def __init__(self) -> None:
        super().__init__(UNREACHABLE_REDIS_URL, buffer=1_000)
        self.events: list[dict[str, str | int]] = []

    def emit(
        self,
        definition: MetricDefinition,
        fields: Mapping[str, str | int],
        shard_key: str | None = None,
        counts: Counts = (),
    ) -> None:
        self.events.append(dict(fields))
        super().emit(definition, fields, shard_key, counts)

    def queue_gauge(self, queue: str, group: str = "", wire: str = "ql") -> list[int]:
        """Return the emitted values of one gauge of a queue, in order."""
        return [int(e[wire]) for e in self.events if (e["queue"], e["group"]) == (queue, group) and wire in e]

    def environment_gauge(self, wire: str, name: str = "default") -> list[int]:
        return [int(e[wire]) for e in self.events if (e["env"], e["queue"]) == (name, "") and wire in e]


@pytest.fixture
def emitter() -> RecordingEmitter:
    return RecordingEmitter()


async def start_broker(brokers: Brokers, emitter: RecordingEmitter) -> tuple[Broker, QueueMetrics]:
    """Start a broker whose metrics are emitted only when the test flushes them."""
    broker = await brokers.start(emitter=emitter)
    _, metrics, _ = brokers.running[-1]
    await metrics.stop()
    return broker, metrics


async def flush_with_environments(metrics: QueueMetrics) -> None:
    metrics.environments_due_s = 0.0
    await metrics.flush()


async def test_an_environment_is_the_sum_of_its_queues(brokers: Brokers, emitter: RecordingEmitter) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    await push(broker, "a", "b", "c", queue="one")
    await push(broker, "d", "e", queue="two")
    await create_environment(broker.database, Scope(environment="other"))
    await broker.push(Scope(environment="other"), [NewMessage("one", "Default", b"x")])
    popped = await pop(broker, queue="one", batch=2)
    await flush_with_environments(metrics)
    assert (emitter.environment_gauge("eql"), emitter.environment_gauge("ecc")) == ([3], [2])
    assert emitter.environment_gauge("eql", "other") == [1]
    assert 0 <= emitter.environment_gauge("eage")[0] < 60_000
    assert not emitter.environment_gauge("ecl")
    await ack(broker, popped)
    for queue, remaining in (("one", 1), ("two", 2)):
        drained = await pop(broker, queue=queue, batch=10)
        assert len(drained.messages) == remaining
        await ack(broker, drained)
    await flush_with_environments(metrics)
    assert [emitter.environment_gauge(wire)[-1] for wire in ("eql", "ecc", "eage")] == [0, 0, 0]
    assert len(emitter.environment_gauge("eql", "other")) == 1


async def test_tasks_of_run_queues_count_in_their_environment(
    brokers: Brokers, emitter: RecordingEmitter, redis_url: str
) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    scope = Scope(environment=f"both-{uuid4().hex[:8]}")
    await create_environment(broker.database, scope)
    run_queues, unreachable = RunQueues(redis_url), RunQueues(UNREACHABLE_REDIS_URL)
    await run_queues.enqueue(scope, "tasks", [NewTask(), NewTask(), NewTask()])
    await run_queues.dequeue(scope, "tasks")
    await wait_until_async(lambda: _oldest_is_older_than(run_queues, scope, 50), 5, "the tasks are older")
    pushed_s = time.monotonic()
    await broker.push(scope, [NewMessage("messages", "Default", b"x")])
    metrics.exchange_gauges = unreachable.exchange_environment_gauges
    await flush_with_environments(metrics)
    assert emitter.environment_gauge("eql", scope.environment) == [], "a partial sum is not emitted"
    metrics.exchange_gauges = run_queues.exchange_environment_gauges
    await flush_with_environments(metrics)
    message_age_ms = (time.monotonic() - pushed_s) * 1000
    assert emitter.environment_gauge("eql", scope.environment) == [3]
    assert emitter.environment_gauge("ecc", scope.environment) == [1]
    [age_ms] = emitter.environment_gauge("eage", scope.environment)
    assert message_age_ms < age_ms <= (await run_queues.get_environment(scope)).oldest_age_ms, (
        "the oldest is a task"
    )
    await run_queues.stop()
    await unreachable.stop()


async def _oldest_is_older_than(run_queues: RunQueues, scope: Scope, ms: int) -> bool:
    return (await run_queues.get_environment(scope)).oldest_age_ms > ms


async def test_an_environment_that_is_being_deleted_has_no_gauges(
    brokers: Brokers, emitter: RecordingEmitter
) -> None:
    """A broker that stored its gauges again would leave them to the next environment with this name."""
    broker, metrics = await start_broker(brokers, emitter)
    scope = Scope(environment="short-lived")
    await create_environment(broker.database, scope)
    await broker.push(scope, [NewMessage("q", "Default", b"x")])
    await push(broker, "a")
    await broker.database.fetch("SELECT request_environment_deletion_v1($1, $2, $3)", *scope)
    await flush_with_environments(metrics)
    assert emitter.environment_gauge("eql", scope.environment) == []
    assert emitter.environment_gauge("eql") == [1]


async def test_environment_gauges_are_read_at_intervals_and_after_the_last_change(
    brokers: Brokers, emitter: RecordingEmitter
) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    for n in range(5):
        await push(broker, str(n))
        await metrics.flush()
    assert emitter.environment_gauge("eql") == [1]
    assert emitter.queue_gauge("q") == [1, 2, 3, 4, 5]
    await flush_with_environments(metrics)
    assert emitter.environment_gauge("eql") == [1, 5]
    await flush_with_environments(metrics)
    assert emitter.environment_gauge("eql") == [1, 5]


async def test_stop_emits_the_last_environment_gauges(brokers: Brokers, emitter: RecordingEmitter) -> None:
    broker = await brokers.start(emitter=emitter)
    await push(broker, "a")
    await wait_until_async(
        lambda: _emitted_depths(emitter, [1]), 20, "the gauges of the environment are emitted"
    )
    drained = await pop(broker)
    await ack(broker, drained)
    _, metrics, _ = brokers.running[-1]
    await metrics.stop()
    assert emitter.environment_gauge("eql")[-1] == 0


async def test_environment_gauges_that_cannot_be_read_are_read_later(
    brokers: Brokers, emitter: RecordingEmitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    read_gauges, calls = GaugeReader.of_environments, 0

    async def fail_once(reader: GaugeReader, scopes: Sequence[Scope]) -> list[EnvironmentGauge]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise DatabaseUnavailable("gone")
        return await read_gauges(reader, scopes)

    monkeypatch.setattr(GaugeReader, "of_environments", fail_once)
    await push(broker, "a")
    await metrics.flush()
    assert (emitter.environment_gauge("eql"), emitter.queue_gauge("q")) == ([], [1])
    await flush_with_environments(metrics)
    assert emitter.environment_gauge("eql") == [1]


async def test_the_gauges_of_a_deleted_queue_end_at_zero(brokers: Brokers, emitter: RecordingEmitter) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    await push(broker, "a", "b")
    await pop(broker, group="g")
    await metrics.flush()
    assert (
        emitter.queue_gauge("q", "g"),
        emitter.queue_gauge("q", "g", "cc"),
        emitter.environment_gauge("eql"),
    ) == ([1], [1], [1])
    await push(broker, "c")
    assert await broker.queues.delete(DEFAULT_SCOPE, "q")
    assert [
        (emitter.queue_gauge("q", group)[-1], emitter.queue_gauge("q", group, "cc")[-1])
        for group in ("", "g")
    ] == [(0, 0)] * 2
    await flush_with_environments(metrics)
    assert (emitter.queue_gauge("q")[-1], emitter.queue_gauge("q", "g")[-1]) == (0, 0)
    assert emitter.environment_gauge("eql")[-1] == 0
    assert not await broker.queues.delete(DEFAULT_SCOPE, "q")


async def test_a_queue_that_is_created_again_emits_the_last_gauges(
    brokers: Brokers, emitter: RecordingEmitter
) -> None:
    broker, _ = await start_broker(brokers, emitter)
    other_broker, other_metrics = await start_broker(brokers, emitter)
    await push(broker, "a", "b")
    await push(other_broker, "c")
    assert await broker.queues.delete(DEFAULT_SCOPE, "q")
    await push(other_broker, "d", "e", "f")
    await other_metrics.flush()
    assert emitter.queue_gauge("q")[-1] == 3


async def test_the_gauges_of_a_deleted_group_end_at_zero_and_its_queue_continues(
    brokers: Brokers, emitter: RecordingEmitter
) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    await push(broker, "a", "b")
    await pop(broker, group="g")
    await metrics.flush()
    assert await broker.groups.delete(DEFAULT_SCOPE, "g") == 1
    await metrics.flush()
    assert (emitter.queue_gauge("q", "g")[-1], emitter.queue_gauge("q")[-1]) == (0, 2)


async def test_without_metrics_no_gauges_are_read(
    brokers: Brokers, emitter: RecordingEmitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, metrics = await start_broker(brokers, emitter)
    emitter.enabled = False

    async def fail(*_: object) -> None:
        raise AssertionError("the gauges were read")

    monkeypatch.setattr(GaugeReader, "of_queues", fail)
    monkeypatch.setattr(GaugeReader, "of_environments", fail)
    await push(broker, "a")
    await metrics.flush()
    assert not emitter.events


async def _emitted_depths(emitter: RecordingEmitter, values: list[int]) -> bool:
    return emitter.environment_gauge("eql") == values
