"""What a check finds: violations of guarantees, and how many things it looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Guarantee(StrEnum):
    """A guarantee of the platform. The text appears in the report."""

    STORED_ONCE = "an acknowledged push is stored exactly once"
    NOTHING_INVENTED = "only what was sent is stored and delivered"
    PUSH_ORDER = "a partition keeps the order of pushes"
    DELIVERY_ORDER = "a group gets messages in order and skips none"
    ACKED_ONCE = "an acked message is not delivered again"
    ONE_LEASE = "a partition has one live lease per group"
    FENCING = "a lost lease changes nothing"
    ATOMIC = "a transaction takes effect as a whole or not at all"
    COMMITTED = "nothing is visible before its commit"
    DEAD_LETTERS = "dead letters are those that were given up, and are counted"
    TASK_KEPT = "an acknowledged task runs until it is finished or dead"
    TASK_ONCE = "an idempotency key makes one task"
    TASK_ACKED_ONCE = "an acked task does not run again"
    TASK_LEASE = "a task has one live lease, and its tokens grow"
    TASK_LIMIT = "a run queue never exceeds its limit"
    TASK_DEAD = "dead tasks are counted"
    SERIES = "series agree with the history in every tier"
    ALERT_FIRES = "an alert fires while its condition holds, and only then"
    ALERT_ONCE = "a transition of an incident is one notice, and none is sent again once it was received"
    ALERT_RECEIVED = "notices that are stored as sent were received, signed and in order"


NEED_PIPELINE = frozenset(
    {Guarantee.SERIES, Guarantee.ALERT_FIRES, Guarantee.ALERT_ONCE, Guarantee.ALERT_RECEIVED}
)
"""The guarantees that only a run with the pipeline checks."""


@dataclass(frozen=True, slots=True)
class Violation:
    guarantee: Guarantee
    text: str
    calls: tuple[int, ...] = ()
    """Ids of the calls that show it, to find them in the history file."""


@dataclass(slots=True)
class Findings:
    violations: list[Violation] = field(default_factory=list)
    checked: Counter[Guarantee] = field(default_factory=Counter)
    """How many facts were compared for each guarantee."""

    def check(self, guarantee: Guarantee, holds: bool, text: str, *calls: int) -> None:
        """Count one checked fact, and record a violation if it does not hold."""
        self.checked[guarantee] += 1
        if not holds:
            self.violations.append(Violation(guarantee, text, calls))
