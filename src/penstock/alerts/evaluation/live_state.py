"""The state of queues that PostgreSQL and Redis have now, and that the metrics do not have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from penstock.alerts.evaluation.dead_task_reader import DeadTaskReader
from penstock.alerts.rules.alert_rule import RuleType
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.durable.alerts.evaluation_store import EvaluationStore, RuleRow
from penstock.errors import RedisUnavailable
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import QueueState

SECONDS_PER_HOUR = 3600.0
MAX_LAG_S = 120.0
"""Windows end at the watermark of the metrics, which is at most this old."""


@dataclass(frozen=True, slots=True)
class NewErrorGroup:
    """An error of dead letters that is new since a time, or back after it was resolved or ignored."""

    since_s: float
    returned_from: str | None
    pattern: str
    example: str


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """What the servers say about a queue now. Queues that do not exist have no entry."""

    dead_letters: int = 0
    expiring: Mapping[tuple[float, str], int] = field(default_factory=dict)
    """Unfinished messages by the hours within which they expire, and by consumer group."""
    new_error_groups: Sequence[NewErrorGroup] = ()
    """The latest first; those of the longest window of the rules."""

    def count_expiring(self, within_hours: float, group: str | None) -> int:
        """Return the expiring messages of a group, or of the group that has the most."""
        counts = (
            messages
            for (hours, name), messages in self.expiring.items()
            if hours == within_hours and group in (None, name)
        )
        return max(counts, default=0)


@dataclass(frozen=True, slots=True)
class LiveStateReader:
    """Reads the live queues of one environment; only what its rules need."""

    environment: RuleRow
    run_queues: RunQueues
    _dead_tasks: DeadTaskReader = field(default_factory=DeadTaskReader)

    async def read(
        self, store: EvaluationStore, rules: Sequence[CompleteRule], now_s: float
    ) -> dict[str, LiveQueue]:
        """Return the queues by name. The number of calls to PostgreSQL does not grow with them."""
        facts = await store.queue_facts(self.environment.environment_id)
        run_queues = await self._list_run_queues()
        expiring = await self._read_expiring(store, rules, now_s)
        errors = await self._read_new_error_groups(store, rules, run_queues, now_s)
        live = {
            queue.queue: LiveQueue(queue.dead, new_error_groups=errors.get(queue.queue, ()))
            for queue in run_queues
        }
        return live | {
            fact.queue: LiveQueue(fact.dead_letters, expiring.get(fact.queue, {}), errors.get(fact.queue, ()))
            for fact in facts
        }

    async def _list_run_queues(self) -> list[QueueState]:
        try:
            return await self.run_queues.list_queues(self.environment.scope)
        except RedisError as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from error

    async def _read_expiring(
        self, store: EvaluationStore, rules: Sequence[CompleteRule], now_s: float
    ) -> Mapping[str, Mapping[tuple[float, str], int]]:
        """Return the expiring messages of each queue, as in `LiveQueue.expiring`."""
        hours = {rule.rule.within_hours or 0.0 for rule in rules if rule.rule.type is RuleType.EXPIRES_SOON}
        expiring: dict[str, dict[tuple[float, str], int]] = defaultdict(dict)
        if hours:
            within_s = {within_hours * SECONDS_PER_HOUR: within_hours for within_hours in sorted(hours)}
            environment_id = self.environment.environment_id
            for row in await store.expiring_messages(environment_id, list(within_s), now_s):
                expiring[row.queue][within_s[row.within_s], row.group_name] = row.messages
        return expiring

    async def _read_new_error_groups(
        self,
        store: EvaluationStore,
        rules: Sequence[CompleteRule],
        run_queues: Sequence[QueueState],
        now_s: float,
    ) -> Mapping[str, Sequence[NewErrorGroup]]:
        """Return the new error groups of each queue, if a rule needs them."""
        windows = [rule.window_s for rule in rules if rule.rule.type is RuleType.NEW_ERROR_GROUP]
        groups: dict[str, list[NewErrorGroup]] = defaultdict(list)
        if windows:
            tasks = await self._dead_tasks.read(self.run_queues, self.environment.scope, run_queues)
            since_s = now_s - max(windows) - MAX_LAG_S
            for row in await store.merge_error_groups(self.environment.environment_id, tasks, since_s, now_s):
                groups[row.queue].append(
                    NewErrorGroup(row.new_since.timestamp(), row.returned_from, row.pattern, row.example)
                )
        return groups
