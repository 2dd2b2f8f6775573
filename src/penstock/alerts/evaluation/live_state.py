"""The state of queues that PostgreSQL and Redis have now, and that the metrics do not have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from penstock.alerts.rules.alert_rule import RuleType
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.durable.alerts.evaluation_store import EvaluationStore, RuleRow
from penstock.errors import RedisUnavailable
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import QueueState

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """What the servers say about a queue now. Queues that do not exist have no entry."""

    dead_letters: int = 0
    expiring: Mapping[tuple[float, str], int] = field(default_factory=dict)
    """Unfinished messages by the hours within which they expire, and by consumer group."""

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
    """Reads the live queues of environments; only what their rules need."""

    store: EvaluationStore
    run_queues: RunQueues

    async def read(
        self, environment: RuleRow, rules: Sequence[CompleteRule], now_s: float
    ) -> dict[str, LiveQueue]:
        """Return the queues by name, in a number of calls that does not grow with rules and queues."""
        facts = await self.store.queue_facts(environment.environment_id)
        expiring = await self._read_expiring(environment, rules, now_s)
        run_queues = await self._list_run_queues(environment)
        live = {queue.queue: LiveQueue(dead_letters=queue.dead) for queue in run_queues}
        return live | {
            fact.queue: LiveQueue(fact.dead_letters, expiring.get(fact.queue, {})) for fact in facts
        }

    async def _list_run_queues(self, environment: RuleRow) -> list[QueueState]:
        try:
            return await self.run_queues.list_queues(environment.scope)
        except RedisError as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from error

    async def _read_expiring(
        self, environment: RuleRow, rules: Sequence[CompleteRule], now_s: float
    ) -> Mapping[str, Mapping[tuple[float, str], int]]:
        """Return the expiring messages of each queue, as in `LiveQueue.expiring`."""
        hours = {rule.rule.within_hours or 0.0 for rule in rules if rule.rule.type is RuleType.EXPIRES_SOON}
        expiring: dict[str, dict[tuple[float, str], int]] = defaultdict(dict)
        if hours:
            within_s = {within_hours * SECONDS_PER_HOUR: within_hours for within_hours in sorted(hours)}
            for row in await self.store.expiring_messages(environment.environment_id, list(within_s), now_s):
                expiring[row.queue][within_s[row.within_s], row.group_name] = row.messages
        return expiring
