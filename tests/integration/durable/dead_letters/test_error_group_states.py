"""States of error groups: compared with a model after every step of random histories."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.durable.alerts.evaluation_store import EvaluationStore, NewErrorGroupRow
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.error_group_store import (
    DeadLetterErrorGroup,
    ErrorGroupChange,
    ErrorGroupStore,
)
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.dead_letters.dead_letter_steps import kill
from tests.integration.durable.queue_under_test import START, QueueUnderTest

EXAMPLES = 60
STEPS = 15


@dataclass
class GroupModel:
    """What the documentation says about the state of one error group."""

    is_known: bool = False
    state: str = "new"
    until: datetime | None = None
    count: int | None = None
    rate: int | None = None
    deaths: int = 0
    deaths_by_hour: Counter[datetime] = field(default_factory=Counter)

    def die(self, deaths: int, now: datetime) -> None:
        self.deaths += deaths
        self.deaths_by_hour[now.replace(minute=0, second=0, microsecond=0)] += deaths

    def change(self, change: ErrorGroupChange) -> None:
        assert change.state is not None
        self.state, self.deaths, self.deaths_by_hour = change.state, 0, Counter()
        self.until, self.count, self.rate = change.ignored_until, change.ignored_count, change.ignored_rate

    def expected_state(self, now: datetime) -> str:
        if self.state == "resolved" and self.deaths:
            return "back_again"
        returns = (
            (self.until is not None and now >= self.until)
            or (self.count is not None and self.deaths >= self.count)
            or (self.rate is not None and max(self.deaths_by_hour.values(), default=0) > self.rate)
        )
        return "back_again" if self.state == "ignored" and returns else self.state


async def evaluate_error_groups(queue: QueueUnderTest) -> list[NewErrorGroupRow]:
    """Record and report the error groups at the time of the queue, as an evaluation of alerts does."""
    environment = await queue.database.fetchrow("SELECT min(id) AS id FROM environments")
    assert environment is not None
    now_s = queue.now.timestamp()
    return await EvaluationStore(queue.database).merge_error_groups(environment["id"], [], now_s - 1e9, now_s)


class ErrorGroupMachine(RuleBasedStateMachine):
    """Random histories of one error group on the real database."""

    runner: asyncio.Runner
    database: Database
    numbers = count()
    states: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.queue = QueueUnderTest(self.database, f"queue-{next(self.numbers)}")
        self.model = GroupModel()
        self.store = ErrorGroupStore(self.database)
        self.key = self.runner.run(self._first_death())

    async def _first_death(self) -> Any:
        await kill(self.queue, "first")
        self.model.is_known = True
        row = await self.database.fetchrow(
            "SELECT error_key FROM dead_letters d JOIN queues q ON q.id = d.queue_id WHERE q.name = $1",
            self.queue.name,
        )
        assert row is not None
        return row["error_key"]

    @rule(deaths=st.sampled_from([1, 1, 2, 3]))
    def die(self, deaths: int) -> None:
        self.runner.run(kill(self.queue, *map(str, range(deaths))))
        self.model.die(deaths, self.queue.now)

    @rule(minutes=st.sampled_from([1, 20, 40, 59, 61, 180]))
    def advance_time(self, minutes: int) -> None:
        self.queue.later(minutes * 60_000)

    @rule(step=st.sampled_from(["fold", "delete_dead_letters", "assign", "evaluate_alerts"]))
    def run_step_without_effect_on_the_state(self, step: str) -> None:
        getattr(self, step)()

    def fold(self) -> None:
        self.runner.run(dead_letter_counts.fold_deltas(self.database))

    def delete_dead_letters(self) -> None:
        query = "DELETE FROM dead_letters d USING queues q WHERE q.id = d.queue_id AND q.name = $1"
        self.runner.run(self.database.fetch(query, self.queue.name))

    @rule(state=st.sampled_from(["open", "resolved"]))
    def set_state(self, state: str) -> None:
        self._change(ErrorGroupChange(state=state))

    @rule(
        minutes=st.sampled_from([None, None, 30, 100]),
        ignored_count=st.sampled_from([None, 1, 2, 4]),
        rate=st.sampled_from([None, 1, 2, 4]),
    )
    def ignore(self, minutes: int | None, ignored_count: int | None, rate: int | None) -> None:
        until = None if minutes is None else self.queue.now + timedelta(minutes=minutes)
        self._change(
            ErrorGroupChange(
                state="ignored", ignored_until=until, ignored_count=ignored_count, ignored_rate=rate
            )
        )

    def assign(self) -> None:
        change = ErrorGroupChange(sets_owner=True, owner="ada")
        self.runner.run(
            self.store.change(DEFAULT_SCOPE, self.key, self.queue.name, change, now=self.queue.now)
        )

    def evaluate_alerts(self) -> None:
        rows = self.runner.run(evaluate_error_groups(self.queue))
        is_reported = self.queue.name in {row.queue for row in rows}
        state = self.model.expected_state(self.queue.now)
        assert not is_reported or state not in ("ignored", "resolved")
        assert is_reported or state != "back_again"

    def _change(self, change: ErrorGroupChange) -> None:
        queues = self.runner.run(
            self.store.change(DEFAULT_SCOPE, self.key, self.queue.name, change, now=self.queue.now)
        )
        if queues:  # a group without dead letters and without a record is unknown
            self.model.change(change)

    @invariant()
    def state_matches_model(self) -> None:
        groups: list[DeadLetterErrorGroup] = self.runner.run(
            self.store.list_error_groups(
                DEFAULT_SCOPE,
                queue=self.queue.name,
                error_key=self.key,
                limit=2,
                offset=0,
                now=self.queue.now,
            )
        )
        state = self.model.expected_state(self.queue.now)
        assert [group.status.state for group in groups] in ([state], [] if state == "new" else [state])
        self.states[state] += 1


def test_states_of_error_groups_match_their_model_after_every_step(database_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        database = Database(database_url, 1)

        class Machine(ErrorGroupMachine):
            """The state machine with the runner and database of this test."""

        Machine.runner, Machine.database = runner, database
        try:
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=STEPS,
                    derandomize=True,
                    database=None,
                    deadline=None,
                    phases=[Phase.generate, Phase.shrink],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(database.close())
    assert set(Machine.states) == {"new", "open", "ignored", "resolved", "back_again"}


async def test_the_state_of_a_group_is_the_most_urgent_of_its_queues(queue: QueueUnderTest) -> None:
    other = QueueUnderTest(queue.database, "payments")
    store = ErrorGroupStore(queue.database)
    await kill(queue, "a")
    await kill(other, "b")

    async def list_states(**selection: Any) -> list[str]:
        groups = await store.list_error_groups(DEFAULT_SCOPE, limit=10, offset=0, **selection)
        return [group.status.state for group in groups]

    [group] = await store.list_error_groups(DEFAULT_SCOPE, limit=10, offset=0)
    change = ErrorGroupChange(state="ignored", sets_owner=True, owner="ada", changed_by="user:ada")
    assert await store.change(DEFAULT_SCOPE, group.error_key, "orders", change) == ["orders"]

    assert await list_states() == ["new"]
    assert await list_states(queue="orders") == ["ignored"]
    assert await list_states(states=["ignored"]) == []
    assert await list_states(states=["ignored"], queue="orders") == ["ignored"]
    [group] = await store.list_error_groups(DEFAULT_SCOPE, limit=10, offset=0)
    assert (group.status.owner, group.status.changed_by) == ("ada", "user:ada")
    both = await store.change(DEFAULT_SCOPE, group.error_key, None, ErrorGroupChange(state="resolved"))
    assert both == ["orders", "payments"]
    assert await list_states() == ["resolved"]


@pytest.mark.parametrize(
    ("change", "days", "is_kept"),
    [
        (None, 91, False),
        (ErrorGroupChange(sets_note=True, note="known"), 179, True),
        (ErrorGroupChange(sets_note=True, note="known"), 181, False),
        (ErrorGroupChange(state="ignored", ignored_until=START + timedelta(days=200)), 199, True),
        (ErrorGroupChange(state="ignored"), 181, False),
    ],
)
async def test_a_group_without_dead_letters_is_forgotten_90_days_after_its_last_change(
    queue: QueueUnderTest, change: ErrorGroupChange | None, days: int, is_kept: bool
) -> None:
    store = ErrorGroupStore(queue.database)
    await kill(queue, "a")
    [group] = await store.list_error_groups(DEFAULT_SCOPE, limit=1, offset=0)
    await evaluate_error_groups(queue)
    await queue.database.fetch("DELETE FROM dead_letters")
    if change is not None:
        changed_at = START + timedelta(days=89)
        assert await store.change(DEFAULT_SCOPE, group.error_key, None, change, now=changed_at) == ["orders"]

    queue.now = START + timedelta(days=days)
    await evaluate_error_groups(queue)

    groups = await store.list_error_groups(
        DEFAULT_SCOPE, error_key=group.error_key, limit=1, offset=0, now=queue.now
    )
    assert len(groups) == is_kept
