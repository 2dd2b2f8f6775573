"""Compare run queues with a model in plain Python: every step runs on both, and then they must agree.

The model has no clock. A time that a step sets either passes before the step ends (a task that expires, a
worker that vanishes) or lies beyond the end of the test.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TypedDict, TypeVar, cast

import pytest
from redis.asyncio import Redis

from penstock.errors import LeaseLost, PenstockError, UnknownQueue, UnknownTask, WrongState
from penstock.model import Scope
from penstock.runqueue.keys import KEY_PREFIXES, environment_name, queue_name, shard_prefix
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Lease, Nack, NewTask, TaskChange, TaskState
from tests.integration.runqueue.emitted_events import read_emitted_events, sum_counter

QUEUES = ("mail", "calls", "reports")
Result = TypeVar("Result")
ELIGIBLE, DELAYED, RUNNING, DEAD = TaskState.ELIGIBLE, TaskState.DELAYED, TaskState.RUNNING, TaskState.DEAD
SOON_MS, NEVER_MS = 3, 600_000


@dataclass
class ModelTask:
    queue: str
    priority: int
    max_attempts: int
    state: TaskState
    has_ttl: bool = False
    """The time to live applies to the first start only."""
    can_expire: bool = False
    attempts: int = 0
    lease: Lease | None = None
    worker_vanished: bool = False


@dataclass
class Model:
    tasks: dict[str, ModelTask] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    environment_limit: int | None = None
    burst: float = 1.0
    counters: Counter[str] = field(default_factory=Counter)

    def ids_in_state(self, state: TaskState, queue: str | None = None) -> list[str]:
        return [i for i, t in self.tasks.items() if t.state is state and queue in (None, t.queue)]

    def max_running(self, queue: str) -> float:
        return min(self.limits.get(queue, math.inf), self.environment_limit or math.inf)

    @property
    def environment_max_running(self) -> float:
        return math.floor(self.environment_limit * self.burst) if self.environment_limit else math.inf

    def free_slots(self, queue: str) -> float:
        return (
            0
            if queue in self.paused
            else max(0, self.max_running(queue) - len(self.ids_in_state(RUNNING, queue)))
        )

    def startable(self, queues: tuple[str, ...], limit: int) -> float:
        environment_slots = max(0, self.environment_max_running - len(self.ids_in_state(RUNNING)))
        return min(
            limit,
            environment_slots,
            sum(min(len(self.ids_in_state(ELIGIBLE, q)), self.free_slots(q)) for q in queues),
        )


class NewTaskOptions(TypedDict, total=False):
    delay_ms: int
    ttl_ms: int


class ModelComparison:
    """Run queues of one environment and their model. Empties its Redis database first."""

    def __init__(self, runner: asyncio.Runner, queues: RunQueues, client: Redis) -> None:
        self._runner = runner
        self._queues = queues
        self._redis = client
        self.scope = Scope("model")
        self.model = Model()
        self._keys = count()
        self._old_leases: list[Lease] = []
        self._run(self._redis.flushdb())
        self._queues._shards._count = None

    def _run(self, awaitable: Awaitable[Result]) -> Result:
        async def run() -> Result:
            return await awaitable

        return self._runner.run(run())

    def enqueue(self, queue: str, priorities: list[int], kind: str, max_attempts: int) -> None:
        options: NewTaskOptions = {}
        if kind == "delayed":
            options["delay_ms"] = NEVER_MS
        elif kind == "with_ttl":
            options["ttl_ms"] = NEVER_MS
        new = [NewTask(b"x", priority, max_attempts=max_attempts, **options) for priority in priorities]
        state = DELAYED if kind == "delayed" else ELIGIBLE
        for priority, added in zip(
            priorities, self._run(self._queues.enqueue(self.scope, queue, new)), strict=True
        ):
            has_ttl = kind == "with_ttl"
            self.model.tasks[added.id] = ModelTask(queue, priority, max_attempts, state, has_ttl, has_ttl)
        self._count_enqueued(queue, len(priorities))

    def enqueue_keyed(self, queue: str, key: str) -> None:
        [added] = self._run(self._queues.enqueue(self.scope, queue, [NewTask(idempotency_key=key)]))
        assert added.duplicate == ((queue, key) in self.model.keys)
        assert added.id == self.model.keys.setdefault((queue, key), added.id)
        if not added.duplicate:
            self.model.tasks[added.id] = ModelTask(queue, 0, 3, ELIGIBLE)
            self._count_enqueued(queue, 1)

    def enqueue_and_expire(self, queue: str, tasks: int, delayed: bool) -> None:
        new = [NewTask(ttl_ms=SOON_MS, delay_ms=NEVER_MS if delayed else 0)] * tasks
        self._run(self._queues.enqueue(self.scope, queue, new))
        self._count_enqueued(queue, tasks)
        self._wait_ms(SOON_MS)
        self.sweep()
        self.model.counters["expired"] += tasks

    def enqueue_and_promote(self, queue: str, tasks: int) -> None:
        for added in self._run(self._queues.enqueue(self.scope, queue, [NewTask(delay_ms=SOON_MS)] * tasks)):
            self.model.tasks[added.id] = ModelTask(queue, 0, 3, ELIGIBLE)
        self._count_enqueued(queue, tasks)
        self._wait_ms(SOON_MS)
        self.sweep()

    def dequeue(self, queue: str | None, limit: int) -> None:
        self._dequeue(queue, limit, NEVER_MS)

    def dequeue_and_vanish(self, queue: str | None, limit: int) -> None:
        for task in self._dequeue(queue, limit, SOON_MS):
            task.worker_vanished = True
        self._wait_ms(SOON_MS)

    def sweep(self) -> None:
        result = self._run(self._queues.sweep())
        vanished = [task for task in self.model.tasks.values() if task.worker_vanished]
        for task in vanished:
            self._fail_attempt(task, retry=True, delayed=False)
        died = sum(task.state is DEAD for task in vanished)
        assert (result.released, result.dead) == (len(vanished) - died, died)
        assert self._run(self._queues.sweep()).released == 0

    def ack(self, numbers: list[int]) -> None:
        chosen = self._choose_leases(numbers)
        outcomes = self._run(self._queues.ack_many(self.scope, [lease for _, lease in chosen]))
        assert not [outcome for outcome in outcomes if isinstance(outcome, PenstockError)]
        for task_id, lease in chosen:
            self._old_leases.append(lease)
            del self.model.tasks[task_id]
        self.model.counters["acked"] += len(chosen)

    def nack(self, numbers: list[int], retry: bool, delayed: bool) -> None:
        chosen = self._choose_leases(numbers)
        delay_ms = NEVER_MS if delayed else 0
        nacks = [Nack(lease, "failed", retry, delay_ms) for _, lease in chosen]
        for (task_id, _), outcome in zip(
            chosen, self._run(self._queues.nack_many(self.scope, nacks)), strict=True
        ):
            self._fail_attempt(self.model.tasks[task_id], retry, delayed)
            assert isinstance(outcome, TaskChange)
            assert outcome.state is self.model.tasks[task_id].state

    def heartbeat(self, numbers: list[int]) -> None:
        chosen = self._choose_leases(numbers)
        outcomes = self._run(
            self._queues.heartbeat_many(self.scope, [lease for _, lease in chosen], NEVER_MS)
        )
        assert all(isinstance(outcome, TaskChange) and outcome.state is RUNNING for outcome in outcomes)

    def release(self, numbers: list[int]) -> None:
        chosen = self._choose_leases(numbers)
        self._run(self._queues.release(self.scope, [lease for _, lease in chosen]))
        for task_id, lease in chosen:
            self._old_leases.append(lease)
            task = self.model.tasks[task_id]
            task.state, task.lease, task.attempts = ELIGIBLE, None, task.attempts - 1

    def use_stale_leases(self) -> None:
        """A lease that is no longer valid changes nothing."""
        queues = self._queues
        leases = self._old_leases[-5:]
        for outcomes in (
            self._run(queues.ack_many(self.scope, leases)),
            self._run(queues.nack_many(self.scope, [Nack(lease) for lease in leases])),
            self._run(queues.heartbeat_many(self.scope, leases)),
            self._run(queues.release(self.scope, leases)),
        ):
            for lease, outcome in zip(leases, outcomes, strict=True):
                assert isinstance(outcome, LeaseLost if lease.id in self.model.tasks else UnknownTask)

    def limit_queue(self, queue: str, limit: int | None) -> None:
        self._run(self._queues.set_queue_limit(self.scope, queue, limit))
        self.model.known.add(queue)
        self.model.limits.pop(queue, None)
        if limit is not None:
            self.model.limits[queue] = limit

    def limit_environment(self, limit: int | None, burst: float) -> None:
        self._run(self._queues.set_environment_limit(self.scope, limit, burst))
        self.model.environment_limit, self.model.burst = limit, burst

    def pause(self, queue: str, paused: bool) -> None:
        change = (self._queues.pause if paused else self._queues.resume)(self.scope, queue)
        if queue not in self.model.known:
            with pytest.raises(UnknownQueue):
                self._run(change)
            return
        self._run(change)
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    def redrive(self, queue: str, count: int) -> None:
        dead = self.model.ids_in_state(DEAD, queue)[:count]
        if dead:
            self._run(self._queues.redrive(self.scope, queue, dead))
        for task_id in dead:
            task = self.model.tasks[task_id]
            task.state, task.attempts, task.can_expire = ELIGIBLE, 0, task.has_ttl

    def delete_dead(self, queue: str, count: int) -> None:
        dead = self.model.ids_in_state(DEAD, queue)[:count]
        if dead:
            self._run(self._queues.delete_dead(self.scope, queue, dead))
        for task_id in dead:
            del self.model.tasks[task_id]

    def delete_queue(self, queue: str) -> None:
        try:
            self._run(self._queues.delete_queue(self.scope, queue))
        except UnknownQueue:
            assert queue not in self.model.known
        except WrongState:
            assert any(task.queue == queue for task in self.model.tasks.values())
        else:
            assert not any(task.queue == queue for task in self.model.tasks.values())
            self.model.known.remove(queue)
            self.model.limits.pop(queue, None)
            self.model.paused.discard(queue)

    def drain(self) -> None:
        """Run every task to its end, so that nothing is stuck."""
        self.sweep()
        self.limit_environment(None, 1)
        for queue in QUEUES:
            self.limit_queue(queue, None)
            self.pause(queue, False)
            self.redrive(queue, 10_000)
        self.release(list(range(len(self.model.ids_in_state(RUNNING)))))
        self._dequeue(None, 1_000, NEVER_MS)
        assert not self.model.ids_in_state(ELIGIBLE)
        self.ack(list(range(len(self.model.ids_in_state(RUNNING)))))
        assert set(self.model.tasks) == set(self.model.ids_in_state(DELAYED))

    def assert_states_agree(self) -> None:
        self._run(self._assert_states_agree())

    def assert_counters_agree(self) -> None:
        events = self._run(read_emitted_events(self._redis, self.scope))
        names = ("enqueued", "dequeued", "acked", "nacked", "dead", "expired")
        assert {name: sum_counter(events, name) for name in names} == {
            name: self.model.counters[name] for name in names
        }
        assert sum(len(e.samples.get("wait_ms", ())) for e in events) == self.model.counters["dequeued"]
        for queue in self.model.known:
            last = [e for e in events if e.dimensions[3] == queue][-1]
            assert last.gauges["depth"] == len(self.model.ids_in_state(ELIGIBLE, queue))
            assert last.gauges["running"] == len(self.model.ids_in_state(RUNNING, queue))
            assert last.gauges["delayed"] == len(self.model.ids_in_state(DELAYED, queue))
        if events:
            assert events[-1].gauges["env_delayed"] == len(self.model.ids_in_state(DELAYED))
        assert self._run(self._queues.repair()) == 0

    async def _sorted_set(self, key: str) -> set[str]:
        return _texts(cast("list[bytes]", await self._redis.zrange(key, 0, -1)))

    async def _assert_states_agree(self) -> None:
        model, prefix = self.model, shard_prefix(0)
        states = {state.queue: state for state in await self._queues.list_queues(self.scope)}
        assert set(states) == model.known
        ids_by_state: dict[TaskState, set[str]] = {state: set() for state in TaskState}
        for queue, state in states.items():
            counts = {
                ELIGIBLE: state.eligible,
                DELAYED: state.delayed,
                RUNNING: state.running,
                DEAD: state.dead,
            }
            assert counts == {s: len(model.ids_in_state(s, queue)) for s in TaskState}
            assert (state.limit, state.paused) == (model.limits.get(queue), queue in model.paused)
            name = queue_name(self.scope, queue)
            for task_state in TaskState:
                key = prefix + KEY_PREFIXES[f"{task_state}_of"] + name
                if task_state in (ELIGIBLE, DEAD):
                    ids_by_state[task_state] |= await self._sorted_set(key)
                else:
                    ids_by_state[task_state] |= _texts(await self._redis.smembers(key))
        assert ids_by_state == {state: set(model.ids_in_state(state)) for state in TaskState}, (
            "each in exactly one state"
        )
        for key in ("tasks", "payloads"):
            assert _texts(await self._redis.hkeys(prefix + key)) == set(model.tasks)
        timers = await self._sorted_set(prefix + "timers")
        expiring = {i for i in model.ids_in_state(ELIGIBLE) if model.tasks[i].can_expire}
        assert timers == ids_by_state[RUNNING] | ids_by_state[DELAYED] | expiring
        environment = await self._queues.get_environment(self.scope)
        assert (environment.eligible, environment.delayed) == (
            len(model.ids_in_state(ELIGIBLE)),
            len(model.ids_in_state(DELAYED)),
        )
        assert environment.running == len(model.ids_in_state(RUNNING))
        ring = await self._sorted_set(prefix + KEY_PREFIXES["ring_of"] + environment_name(self.scope))
        ready = {q for q in model.known if model.ids_in_state(ELIGIBLE, q) and model.free_slots(q) > 0}
        assert {name.rpartition("/")[2] for name in ring} == ready
        waiting = await self._sorted_set(prefix + KEY_PREFIXES["oldest_of"] + environment_name(self.scope))
        not_empty = {q for q in model.known if model.ids_in_state(ELIGIBLE, q)}
        assert {name.rpartition("/")[2] for name in waiting} == not_empty
        is_ready = bool(ready) and len(model.ids_in_state(RUNNING)) < model.environment_max_running
        assert bool(await self._redis.zcard(prefix + "ready")) == is_ready

    def _dequeue(self, queue: str | None, limit: int, visibility_ms: int) -> list[ModelTask]:
        expected = self.model.startable(QUEUES if queue is None else (queue,), limit)
        before = {
            q: sorted(
                (self.model.tasks[i].priority for i in self.model.ids_in_state(ELIGIBLE, q)), reverse=True
            )
            for q in QUEUES
        }
        taken = self._run(
            self._queues.dequeue(self.scope, queue, limit=limit, visibility_ms=visibility_ms, worker="w")
        )
        assert len(taken) == expected
        for q in QUEUES:
            priorities = [task.priority for task in taken if task.queue == q]
            assert priorities == before[q][: len(priorities)], "the highest priorities first"
        for task in taken:
            expected_task = self.model.tasks[task.id]
            assert expected_task.state is ELIGIBLE, "leased twice"
            expected_task.state, expected_task.lease = RUNNING, task.lease
            expected_task.attempts += 1
            assert (task.attempt, task.queue) == (expected_task.attempts, expected_task.queue)
        for q in {task.queue for task in taken}:
            assert len(self.model.ids_in_state(RUNNING, q)) <= self.model.max_running(q)
        assert not taken or len(self.model.ids_in_state(RUNNING)) <= self.model.environment_max_running
        self.model.counters["dequeued"] += len(taken)
        return [self.model.tasks[task.id] for task in taken]

    def _choose_leases(self, numbers: list[int]) -> list[tuple[str, Lease]]:
        held = [
            (i, t.lease) for i, t in self.model.tasks.items() if t.lease is not None and not t.worker_vanished
        ]
        chosen = {number % len(held) for number in numbers} if held else set()
        return [held[number] for number in sorted(chosen)]

    def _fail_attempt(self, task: ModelTask, retry: bool, delayed: bool) -> None:
        assert task.lease is not None
        self._old_leases.append(task.lease)
        task.lease, task.worker_vanished, task.can_expire = None, False, False
        if retry and task.attempts < task.max_attempts:
            task.state = DELAYED if delayed else ELIGIBLE
            self.model.counters["nacked"] += 1
        else:
            task.state = DEAD
            self.model.counters["dead"] += 1

    def _count_enqueued(self, queue: str, tasks: int) -> None:
        self.model.known.add(queue)
        self.model.counters["enqueued"] += tasks

    def _wait_ms(self, duration_ms: int) -> None:
        """Wait until this much time has passed by the clock of Redis."""
        start = self._run(self._queues._scripts.now_ms(0))
        while self._run(self._queues._scripts.now_ms(0)) < start + duration_ms:
            pass


def _texts(values: Iterable[bytes | str]) -> set[str]:
    return {value.decode() if isinstance(value, bytes) else value for value in values}
