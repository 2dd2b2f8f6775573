"""Compare the durable queue with its model over thousands of random steps.

Every step runs on the real database and on `QueueModel`, at a time that the test controls. Then the test
compares log, cursors, leases, attempts, dead letters, gauges and size. At the end of each run all leases and
delays expire and all messages are popped and acked, so no message can be stuck.

`STATE_MACHINE_EXAMPLES=5000` makes it a long, random run; otherwise it is short and deterministic.
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
from tests.integration.durable.checked_queue import AckChoice, CheckedQueue
from tests.integration.durable.queue_model import Options

PARTITIONS = ("x", "y", "z")
GROUPS = ("a", "b", "c")

LONG_RUN = int(os.environ.get("STATE_MACHINE_EXAMPLES", 0))
STEPS = 50
EXAMPLES = LONG_RUN or 100

# Drawn values never depend on results of the database: it may choose between equal partitions.

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
ack_choices = st.lists(
    st.builds(AckChoice, recent_pops, st.integers(0, 5), statuses, st.sampled_from([0] * 12 + [1, 2, 3, 4])),
    min_size=1,
    max_size=5,
)
seek_targets = st.one_of(st.sampled_from(["all", "new"]), st.integers(0, 3_000))
any_partition = st.sampled_from(PARTITIONS)
one_or_all = st.sampled_from([None, None, *PARTITIONS])
any_group = st.sampled_from(GROUPS)
any_message = st.integers(0, 40)

ARGUMENTS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    # step: its weight, and its arguments
    "advance_time": (5, {"ms": st.sampled_from([1, 50, 100, 100, 400, 700, 999, 1_000, 1_500, 3_000])}),
    "subscribe": (1, {"name": any_group, "subscription": seek_targets}),
    "push": (6, {"keys_by_partition": pushes}),
    "pop_batch": (6, {"group": st.sampled_from(GROUPS[:2]), "batch": st.integers(1, 5)}),
    "pop_singly": (6, {"group": st.sampled_from(GROUPS[:2]), "requests": st.integers(1, 3)}),
    "pop_and_crash": (4, {"group": st.sampled_from(GROUPS[:2]), "batch": st.integers(1, 3)}),
    "pop": (
        4,
        {
            "group": any_group,
            "sizes": st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=3),
            "partition_name": one_or_all,
            "auto_ack": st.sampled_from([False, False, True]),
        },
    ),
    "ack_whole_pop": (4, {"number": recent_pops}),
    "ack_some": (
        5,
        {
            "number": recent_pops,
            "indexes": st.sets(st.integers(0, 4), min_size=1, max_size=3),
            "status": st.sampled_from(["completed", "failed", "retry"]),
        },
    ),
    "ack_choices": (4, {"choices": ack_choices}),
    "transact": (
        3,
        {"choices": st.one_of(st.just([]), ack_choices), "keys_by_partition": st.one_of(st.just({}), pushes)},
    ),
    "extend": (2, {"number": recent_pops, "ms": st.sampled_from([1, 600, 2_000])}),
    "release": (1, {"number": recent_pops}),
    "seek": (1, {"group": any_group, "target": seek_targets, "partition_name": one_or_all}),
    "delete": (1, {"name": any_partition, "number": any_message}),
    "declare_dead": (1, {"name": any_partition, "number": any_message, "group": any_group}),
    "retry": (1, {"number": any_message, "group": st.sampled_from([None, *GROUPS])}),
}
steps = st.sampled_from([name for name, (weight, _) in ARGUMENTS.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(ARGUMENTS[name][1]))
)


class QueueMachine(RuleBasedStateMachine):
    runner: asyncio.Runner
    database: Database
    numbers = count(1)
    comparisons = 0

    @initialize(options=queue_options, existing=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def make_queue(self, options: Options, existing: set[str]) -> None:
        self.queue = CheckedQueue(self.runner, self.database, f"queue-{next(self.numbers)}")
        self.queue.create(options, sorted(existing))

    @rule(step=steps)
    def run_step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self.queue, name)(**arguments)

    @invariant()
    def queue_matches_model(self) -> None:
        self.queue.compare()
        type(self).comparisons += 1

    def teardown(self) -> None:
        self.queue.drain()
        self.queue.compare()


def test_the_queue_matches_its_model_after_every_step(database_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        database = Database(database_url, 1)

        class Machine(QueueMachine):
            """The state machine with the runner and database of this test."""

        Machine.runner, Machine.database = runner, database
        try:
            run_state_machine_as_test(
                Machine,
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
        assert Machine.comparisons > 3_000, "too few steps for a meaningful result"
