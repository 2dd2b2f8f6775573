"""The durable queue, step by step against its model, over thousands of steps.

Every step does one thing to the real database and to `QueueModel`, with the clock in the test's hands, and
then compares everything that can be seen: log, cursors, leases, attempts, dead letters, gauges, size. At
the end of each run all leases and delays pass and everything is taken to its end, so nothing can be stuck.

`STATE_MACHINE_EXAMPLES=5000` makes it a long, random run; otherwise it is short and always the same.
"""

from __future__ import annotations

import asyncio
import os
from itertools import count
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from penstock.durable.pool import Database
from tests.integration.durable.checked_queue import CheckedQueue, Word
from tests.integration.durable.queue_model import Options

PARTITIONS = ("x", "y", "z")
GROUPS = ("a", "b", "c")

LONG_RUN = int(os.environ.get("STATE_MACHINE_EXAMPLES", 0))
STEPS = 50
EXAMPLES = LONG_RUN or 100

# What is drawn never depends on what the database answered: it may choose between equals.

queue_options = st.builds(
    Options,
    retry_limit=st.integers(0, 2),
    retry_delay_ms=st.sampled_from([0, 500]),
    dead_after_limit=st.sampled_from([True, True, True, False]),
    keep_dead=st.sampled_from([True, True, True, False]),
    delay_ms=st.sampled_from([0, 0, 0, 700]),
    window_ms=st.sampled_from([0, 0, 0, 400]),
    ttl_ms=st.sampled_from([0, 0, 0, 2_500]),
    max_wait_ms=st.sampled_from([0, 0, 0, 0, 0, 2_000]),
    max_size=st.sampled_from([0, 0, 6]),
)
keys = st.sampled_from([None, None, "k1", "k2", "k3", "k4", "k5"])
pushes = st.dictionaries(
    st.sampled_from(PARTITIONS), st.lists(keys, min_size=1, max_size=4), min_size=1, max_size=3
)
statuses = st.sampled_from(["completed", "completed", "completed", "failed", "retry", "dlq"])
recent_pops = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
words = st.lists(
    st.builds(Word, recent_pops, st.integers(0, 5), statuses, st.sampled_from([0] * 12 + [1, 2, 3, 4])),
    min_size=1,
    max_size=5,
)
places = st.one_of(st.sampled_from(["all", "new"]), st.integers(0, 3_000))
any_partition = st.sampled_from(PARTITIONS)
one_or_all = st.sampled_from([None, None, *PARTITIONS])
any_group = st.sampled_from(GROUPS)
any_message = st.integers(0, 40)

ARGUMENTS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    # step: how often, and what it is given
    "time_passes": (5, {"ms": st.sampled_from([1, 50, 100, 100, 400, 700, 999, 1_000, 1_500, 3_000])}),
    "subscribe": (1, {"name": any_group, "subscription": places}),
    "push": (6, {"wanted": pushes}),
    "take_some": (6, {"group": st.sampled_from(GROUPS[:2]), "batch": st.integers(1, 5)}),
    "take_singly": (6, {"group": st.sampled_from(GROUPS[:2]), "requests": st.integers(1, 3)}),
    "take_and_die": (4, {"group": st.sampled_from(GROUPS[:2]), "batch": st.integers(1, 3)}),
    "pop": (
        4,
        {
            "group": any_group,
            "asked": st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=3),
            "only": one_or_all,
            "auto_ack": st.sampled_from([False, False, True]),
        },
    ),
    "finish_a_pop": (4, {"number": recent_pops}),
    "settle_some": (
        5,
        {
            "number": recent_pops,
            "which": st.sets(st.integers(0, 4), min_size=1, max_size=3),
            "status": st.sampled_from(["completed", "failed", "retry"]),
        },
    ),
    "settle": (4, {"said": words}),
    "transact": (3, {"said": st.one_of(st.just([]), words), "wanted": st.one_of(st.just({}), pushes)}),
    "extend": (2, {"number": recent_pops, "ms": st.sampled_from([1, 600, 2_000])}),
    "receive_nothing": (1, {"number": recent_pops}),
    "seek": (1, {"group": any_group, "place": places, "only": one_or_all}),
    "delete": (1, {"name": any_partition, "number": any_message}),
    "bury": (1, {"name": any_partition, "number": any_message, "group": any_group}),
    "retry": (1, {"number": any_message, "group": st.sampled_from([None, *GROUPS])}),
}
steps = st.sampled_from([name for name, (weight, _) in ARGUMENTS.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(ARGUMENTS[name][1]))
)


class QueueMachine(RuleBasedStateMachine):
    runner: asyncio.Runner
    database: Database
    numbers = count(1)
    agreed = 0

    @initialize(options=queue_options, existing=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def make_queue(self, options: Options, existing: set[str]) -> None:
        self.queue = CheckedQueue(self.runner, self.database, f"queue-{next(self.numbers)}")
        self.queue.make(options, sorted(existing))

    @rule(step=steps)
    def do(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self.queue, name)(**arguments)

    @invariant()
    def queue_and_model_agree(self) -> None:
        self.queue.agree()
        type(self).agreed += 1

    def teardown(self) -> None:
        self.queue.drain()
        self.queue.agree()


def test_the_queue_agrees_with_its_model_at_every_step(database_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        database = Database(database_url, 1)
        machine = type("Machine", (QueueMachine,), {"runner": runner, "database": database})
        try:
            run_state_machine_as_test(
                machine,
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
            runner.run(database.close())
        assert machine.agreed > 3_000, "too few steps to mean anything"
