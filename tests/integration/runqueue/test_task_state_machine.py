"""Property test: run queues agree with their model in limits, states, leases, rings and counters.

`RUN_QUEUE_EXAMPLES=2000` starts a long, random run; the default is short and deterministic.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from penstock.runqueue.queue import RunQueues
from tests.integration.runqueue.model_comparison import QUEUES, ModelComparison

LONG_RUN = int(os.environ.get("RUN_QUEUE_EXAMPLES", 0))
EXAMPLES, STEPS = LONG_RUN or 16, 40

queue = st.sampled_from(QUEUES)
queue_or_any = st.sampled_from([None, *QUEUES])
few = st.integers(1, 4)
numbers = st.lists(st.integers(0, 30), min_size=1, max_size=4)

ARGUMENTS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    # step: its frequency, and its arguments
    "enqueue": (
        6,
        {
            "queue": queue,
            "priorities": st.lists(st.sampled_from([0, 0, 0, 5, 9]), min_size=1, max_size=5),
            "kind": st.sampled_from(["plain", "plain", "plain", "delayed", "with_ttl"]),
            "max_attempts": st.integers(1, 3),
        },
    ),
    "enqueue_keyed": (1, {"queue": queue, "key": st.sampled_from(["k1", "k2"])}),
    "enqueue_and_expire": (1, {"queue": queue, "tasks": few, "delayed": st.booleans()}),
    "enqueue_and_promote": (1, {"queue": queue, "tasks": few}),
    "dequeue": (6, {"queue": queue_or_any, "limit": st.integers(1, 6)}),
    "dequeue_and_vanish": (2, {"queue": queue_or_any, "limit": few}),
    "sweep": (2, {}),
    "ack": (4, {"numbers": numbers}),
    "nack": (
        3,
        {"numbers": numbers, "retry": st.sampled_from([True, True, False]), "delayed": st.booleans()},
    ),
    "heartbeat": (1, {"numbers": numbers}),
    "release": (1, {"numbers": numbers}),
    "use_stale_leases": (2, {}),
    "limit_queue": (2, {"queue": queue, "limit": st.sampled_from([None, 1, 2, 4])}),
    "limit_environment": (
        2,
        {"limit": st.sampled_from([None, 1, 2, 4]), "burst": st.sampled_from([1, 1.5, 2])},
    ),
    "pause": (2, {"queue": queue, "paused": st.booleans()}),
    "redrive": (1, {"queue": queue, "count": few}),
    "delete_queue": (1, {"queue": queue}),
    "delete_dead": (1, {"queue": queue, "count": few}),
}
steps = st.sampled_from([name for name, (weight, _) in ARGUMENTS.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(ARGUMENTS[name][1]))
)


class TaskMachine(RuleBasedStateMachine):
    runner: asyncio.Runner
    queues: RunQueues
    client: Redis
    comparisons = 0

    @initialize()
    def create(self) -> None:
        self.tasks = ModelComparison(self.runner, self.queues, self.client)

    @rule(step=steps)
    def run_step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self.tasks, name)(**arguments)

    @invariant()
    def states_agree(self) -> None:
        self.tasks.assert_states_agree()
        type(self).comparisons += 1

    def teardown(self) -> None:
        self.tasks.assert_counters_agree()
        self.tasks.drain()
        self.tasks.assert_states_agree()
        self.tasks.assert_counters_agree()


def test_run_queues_agree_with_their_model_at_every_step(redis_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:

        async def connect() -> tuple[RunQueues, Redis]:
            return RunQueues(redis_url, shards=1, min_visibility_ms=1), Redis.from_url(redis_url)

        queues, client = runner.run(connect())
        TaskMachine.runner, TaskMachine.queues, TaskMachine.client = runner, queues, client
        try:
            run_state_machine_as_test(
                TaskMachine,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=STEPS,
                    derandomize=not LONG_RUN,
                    database=None,
                    deadline=None,
                    phases=[Phase.generate, Phase.shrink],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(queues.stop())
            runner.run(client.aclose())
        assert TaskMachine.comparisons > 500, "too few steps to mean anything"
