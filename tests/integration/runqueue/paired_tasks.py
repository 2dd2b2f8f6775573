"""Run queues and a model of them in plain Python: every step is done to both, and then they must agree.

The model knows no times. What a step leaves to the clock has either passed when the step ends (a task that
expires, a worker that vanishes) or does not come in the test's life.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from redis.asyncio import Redis

from penstock.errors import LeaseLost, PenstockError, UnknownQueue, UnknownTask, WrongState
from penstock.model import Scope
from penstock.runqueue.keys import PER_NAME, environment_name, queue_name, shard_prefix
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Lease, Nack, NewTask, TaskState
from tests.integration.runqueue.task_events import events, total

QUEUES = ("one", "two", "three")
ELIGIBLE, DELAYED, RUNNING, DEAD = TaskState.ELIGIBLE, TaskState.DELAYED, TaskState.RUNNING, TaskState.DEAD
SOON_MS, NEVER_MS = 3, 600_000


@dataclass
class ModelTask:
    queue: str
    priority: int
    max_attempts: int
    state: TaskState
    mortal: bool = False
    """Has a time to live, which is for its first start."""
    expires: bool = False
    attempts: int = 0
    lease: Lease | None = None
    vanished: bool = False


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

    def of(self, state: TaskState, queue: str | None = None) -> list[str]:
        return [i for i, t in self.tasks.items() if t.state is state and queue in (None, t.queue)]

    def most(self, queue: str) -> float:
        return min(self.limits.get(queue, math.inf), self.environment_limit or math.inf)

    @property
    def environment_most(self) -> float:
        return math.floor(self.environment_limit * self.burst) if self.environment_limit else math.inf

    def room(self, queue: str) -> float:
        return 0 if queue in self.paused else max(0, self.most(queue) - len(self.of(RUNNING, queue)))

    def handed_out(self, queues: tuple[str, ...], wanted: int) -> float:
        together = max(0, self.environment_most - len(self.of(RUNNING)))
        return min(wanted, together, sum(min(len(self.of(ELIGIBLE, q)), self.room(q)) for q in queues))


class PairedTasks:
    """One environment, in a database of its own that is emptied first."""

    def __init__(self, runner: asyncio.Runner, queues: RunQueues, client: Redis) -> None:
        self._runner = runner
        self._queues = queues
        self._redis = client
        self.scope = Scope("model")
        self.model = Model()
        self._keys = count()
        self._old_leases: list[Lease] = []
        self._do(self._redis.flushdb())
        self._queues._shards._number = None

    def _do(self, awaitable: Any) -> Any:
        async def awaited() -> Any:
            return await awaitable

        return self._runner.run(awaited())

    def enqueue(self, queue: str, priorities: list[int], kind: str, max_attempts: int) -> None:
        options = {"delayed": {"delay_ms": NEVER_MS}, "mortal": {"ttl_ms": NEVER_MS}, "plain": {}}[kind]
        new = [NewTask(b"x", priority, max_attempts=max_attempts, **options) for priority in priorities]
        state = DELAYED if kind == "delayed" else ELIGIBLE
        for priority, added in zip(
            priorities, self._do(self._queues.enqueue(self.scope, queue, new)), strict=True
        ):
            mortal = kind == "mortal"
            self.model.tasks[added.id] = ModelTask(queue, priority, max_attempts, state, mortal, mortal)
        self._made(queue, len(priorities))

    def enqueue_keyed(self, queue: str, key: str) -> None:
        [added] = self._do(self._queues.enqueue(self.scope, queue, [NewTask(idempotency_key=key)]))
        assert added.duplicate == ((queue, key) in self.model.keys)
        assert added.id == self.model.keys.setdefault((queue, key), added.id)
        if not added.duplicate:
            self.model.tasks[added.id] = ModelTask(queue, 0, 3, ELIGIBLE)
            self._made(queue, 1)

    def enqueue_and_expire(self, queue: str, tasks: int, delayed: bool) -> None:
        new = [NewTask(ttl_ms=SOON_MS, delay_ms=NEVER_MS if delayed else 0)] * tasks
        self._do(self._queues.enqueue(self.scope, queue, new))
        self._made(queue, tasks)
        self._pass(SOON_MS)
        self.sweep()
        self.model.counters["expired"] += tasks

    def enqueue_and_promote(self, queue: str, tasks: int) -> None:
        for added in self._do(self._queues.enqueue(self.scope, queue, [NewTask(delay_ms=SOON_MS)] * tasks)):
            self.model.tasks[added.id] = ModelTask(queue, 0, 3, ELIGIBLE)
        self._made(queue, tasks)
        self._pass(SOON_MS)
        self.sweep()

    def dequeue(self, queue: str | None, wanted: int) -> None:
        self._take(queue, wanted, NEVER_MS)

    def dequeue_and_vanish(self, queue: str | None, wanted: int) -> None:
        for task in self._take(queue, wanted, SOON_MS):
            task.vanished = True
        self._pass(SOON_MS)

    def sweep(self) -> None:
        swept = self._do(self._queues.sweep())
        gone = [task for task in self.model.tasks.values() if task.vanished]
        for task in gone:
            self._failed(task, retry=True, delayed=False)
        died = sum(task.state is DEAD for task in gone)
        assert (swept.released, swept.dead) == (len(gone) - died, died)
        assert self._do(self._queues.sweep()).released == 0

    def ack(self, numbers: list[int]) -> None:
        chosen = self._held(numbers)
        outcomes = self._do(self._queues.ack_many(self.scope, [lease for _, lease in chosen]))
        assert not [outcome for outcome in outcomes if isinstance(outcome, PenstockError)]
        for task_id, lease in chosen:
            self._old_leases.append(lease)
            del self.model.tasks[task_id]
        self.model.counters["acked"] += len(chosen)

    def nack(self, numbers: list[int], retry: bool, delayed: bool) -> None:
        chosen = self._held(numbers)
        delay_ms = NEVER_MS if delayed else 0
        nacks = [Nack(lease, "failed", retry, delay_ms) for _, lease in chosen]
        for (task_id, _), outcome in zip(
            chosen, self._do(self._queues.nack_many(self.scope, nacks)), strict=True
        ):
            self._failed(self.model.tasks[task_id], retry, delayed)
            assert outcome.state is self.model.tasks[task_id].state

    def heartbeat(self, numbers: list[int]) -> None:
        chosen = self._held(numbers)
        outcomes = self._do(self._queues.heartbeat_many(self.scope, [lease for _, lease in chosen], NEVER_MS))
        assert all(outcome.state is RUNNING for outcome in outcomes)

    def give_back(self, numbers: list[int]) -> None:
        chosen = self._held(numbers)
        self._do(self._queues.give_back(self.scope, [lease for _, lease in chosen]))
        for task_id, lease in chosen:
            self._old_leases.append(lease)
            task = self.model.tasks[task_id]
            task.state, task.lease, task.attempts = ELIGIBLE, None, task.attempts - 1

    def settle_late(self) -> None:
        """Whoever comes with a lease of before changes nothing."""
        verbs = self._queues
        leases = self._old_leases[-5:]
        for outcomes in (
            self._do(verbs.ack_many(self.scope, leases)),
            self._do(verbs.nack_many(self.scope, [Nack(lease) for lease in leases])),
            self._do(verbs.heartbeat_many(self.scope, leases)),
            self._do(verbs.give_back(self.scope, leases)),
        ):
            for lease, outcome in zip(leases, outcomes, strict=True):
                assert isinstance(outcome, LeaseLost if lease.id in self.model.tasks else UnknownTask)

    def limit_queue(self, queue: str, limit: int | None) -> None:
        self._do(self._queues.set_queue_limit(self.scope, queue, limit))
        self.model.known.add(queue)
        self.model.limits.pop(queue, None)
        if limit is not None:
            self.model.limits[queue] = limit

    def limit_environment(self, limit: int | None, burst: float) -> None:
        self._do(self._queues.set_environment_limit(self.scope, limit, burst))
        self.model.environment_limit, self.model.burst = limit, burst

    def pause(self, queue: str, paused: bool) -> None:
        self._do((self._queues.pause if paused else self._queues.resume)(self.scope, queue))
        self.model.known.add(queue)
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    def redrive(self, queue: str, some: int) -> None:
        dead = self.model.of(DEAD, queue)[:some]
        if dead:
            self._do(self._queues.redrive(self.scope, queue, dead))
        for task_id in dead:
            task = self.model.tasks[task_id]
            task.state, task.attempts, task.expires = ELIGIBLE, 0, task.mortal

    def delete_dead(self, queue: str, some: int) -> None:
        dead = self.model.of(DEAD, queue)[:some]
        if dead:
            self._do(self._queues.delete_dead(self.scope, queue, dead))
        for task_id in dead:
            del self.model.tasks[task_id]

    def delete_queue(self, queue: str) -> None:
        try:
            self._do(self._queues.delete_queue(self.scope, queue))
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
        """Everything runs to its end, so nothing is stuck and nothing is left."""
        self.sweep()
        self.limit_environment(None, 1)
        for queue in QUEUES:
            self.limit_queue(queue, None)
            self.pause(queue, False)
            self.redrive(queue, 10_000)
        self.give_back(list(range(len(self.model.of(RUNNING)))))
        self._take(None, 1_000, NEVER_MS)
        assert not self.model.of(ELIGIBLE)
        self.ack(list(range(len(self.model.of(RUNNING)))))
        assert set(self.model.tasks) == set(self.model.of(DELAYED))

    def agree(self) -> None:
        self._do(self._agree())

    def counters_agree(self) -> None:
        found = self._do(events(self._redis, self.scope))
        names = ("enqueued", "dequeued", "acked", "nacked", "dead", "expired")
        assert {name: total(found, name) for name in names} == {
            name: self.model.counters[name] for name in names
        }
        assert sum(len(e.samples.get("wait_ms", ())) for e in found) == self.model.counters["dequeued"]
        for queue in self.model.known:
            last = [e for e in found if e.dimensions[3] == queue][-1]
            assert last.gauges["depth"] == len(self.model.of(ELIGIBLE, queue))
            assert last.gauges["running"] == len(self.model.of(RUNNING, queue))
            assert last.gauges["delayed"] == len(self.model.of(DELAYED, queue))
        if found:
            assert found[-1].gauges["env_delayed"] == len(self.model.of(DELAYED))
        assert self._do(self._queues.repair()) == 0

    async def _agree(self) -> None:
        model, prefix = self.model, shard_prefix(0)
        states = {state.queue: state for state in await self._queues.queues(self.scope)}
        assert set(states) == model.known
        found: dict[TaskState, set[str]] = {state: set() for state in TaskState}
        for queue, state in states.items():
            counts = {
                ELIGIBLE: state.eligible,
                DELAYED: state.delayed,
                RUNNING: state.running,
                DEAD: state.dead,
            }
            assert counts == {s: len(model.of(s, queue)) for s in TaskState}
            assert (state.limit, state.paused) == (model.limits.get(queue), queue in model.paused)
            name = queue_name(self.scope, queue)
            for of_state in TaskState:
                key = prefix + PER_NAME[f"{of_state}_of"] + name
                sorted_set = of_state in (ELIGIBLE, DEAD)
                members = await (self._redis.zrange(key, 0, -1) if sorted_set else self._redis.smembers(key))
                found[of_state] |= {member.decode() for member in members}
        assert found == {state: set(model.of(state)) for state in TaskState}, "each in exactly one state"
        for kept in ("tasks", "payloads"):
            assert {key.decode() for key in await self._redis.hkeys(prefix + kept)} == set(model.tasks)
        timers = {member.decode() for member in await self._redis.zrange(prefix + "timers", 0, -1)}
        expiring = {i for i in model.of(ELIGIBLE) if model.tasks[i].expires}
        assert timers == found[RUNNING] | found[DELAYED] | expiring
        environment = await self._queues.environment(self.scope)
        assert (environment.eligible, environment.delayed) == (
            len(model.of(ELIGIBLE)),
            len(model.of(DELAYED)),
        )
        assert environment.running == len(model.of(RUNNING))
        ring = await self._redis.zrange(prefix + PER_NAME["ring_of"] + environment_name(self.scope), 0, -1)
        ready = {q for q in model.known if model.of(ELIGIBLE, q) and model.room(q) > 0}
        assert {name.decode().rpartition("/")[2] for name in ring} == ready
        waiting = await self._redis.zrange(
            prefix + PER_NAME["oldest_of"] + environment_name(self.scope), 0, -1
        )
        holding = {q for q in model.known if model.of(ELIGIBLE, q)}
        assert {name.decode().rpartition("/")[2] for name in waiting} == holding
        is_ready = bool(ready) and len(model.of(RUNNING)) < model.environment_most
        assert bool(await self._redis.zcard(prefix + "ready")) == is_ready

    def _take(self, queue: str | None, wanted: int, visibility_ms: int) -> list[ModelTask]:
        expected = self.model.handed_out(QUEUES if queue is None else (queue,), wanted)
        before = {
            q: sorted((self.model.tasks[i].priority for i in self.model.of(ELIGIBLE, q)), reverse=True)
            for q in QUEUES
        }
        taken = self._do(
            self._queues.dequeue(self.scope, queue, limit=wanted, visibility_ms=visibility_ms, worker="w")
        )
        assert len(taken) == expected
        for q in QUEUES:
            of_queue = [task.priority for task in taken if task.queue == q]
            assert of_queue == before[q][: len(of_queue)], "the highest priorities first"
        for task in taken:
            its = self.model.tasks[task.id]
            assert its.state is ELIGIBLE, "handed out while somebody has it"
            its.state, its.lease, its.attempts = RUNNING, task.lease, its.attempts + 1
            assert (task.attempt, task.queue) == (its.attempts, its.queue)
        for q in {task.queue for task in taken}:
            assert len(self.model.of(RUNNING, q)) <= self.model.most(q)
        assert not taken or len(self.model.of(RUNNING)) <= self.model.environment_most
        self.model.counters["dequeued"] += len(taken)
        return [self.model.tasks[task.id] for task in taken]

    def _held(self, numbers: list[int]) -> list[tuple[str, Lease]]:
        held = [(i, t.lease) for i, t in self.model.tasks.items() if t.lease is not None and not t.vanished]
        chosen = {number % len(held) for number in numbers} if held else set()
        return [held[number] for number in sorted(chosen)]

    def _failed(self, task: ModelTask, retry: bool, delayed: bool) -> None:
        assert task.lease is not None
        self._old_leases.append(task.lease)
        task.lease, task.vanished, task.expires = None, False, False
        if retry and task.attempts < task.max_attempts:
            task.state = DELAYED if delayed else ELIGIBLE
            self.model.counters["nacked"] += 1
        else:
            task.state = DEAD
            self.model.counters["dead"] += 1

    def _made(self, queue: str, tasks: int) -> None:
        self.model.known.add(queue)
        self.model.counters["enqueued"] += tasks

    def _pass(self, ms: int) -> None:
        """Until that much time has gone by for Redis."""
        start = self._do(self._queues._scripts.now_ms())
        while self._do(self._queues._scripts.now_ms()) < start + ms:
            pass
