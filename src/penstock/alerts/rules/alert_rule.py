"""An alert rule: what it measures, when it fires, and where it sends notices.

JSON and TOML use the same field names, in camelCase. `rule_check` refuses fields that the type does not use.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RuleType(StrEnum):
    """What a rule measures per queue."""

    BACKLOG = "BACKLOG"
    LATENCY = "LATENCY"
    ERROR_RATE = "ERROR_RATE"
    OLDEST_AGE = "OLDEST_AGE"
    DEAD_LETTERS = "DEAD_LETTERS"
    NEW_ERROR_GROUP = "NEW_ERROR_GROUP"
    SATURATION = "SATURATION"
    TIME_TO_DRAIN = "TIME_TO_DRAIN"
    EXPIRES_SOON = "EXPIRES_SOON"
    STALLED = "STALLED"
    CAPACITY_LOSS = "CAPACITY_LOSS"
    SLO = "SLO"
    PIPELINE_STALE = "PIPELINE_STALE"
    """The metrics are behind. It belongs to the environment, not to a queue."""


class Operator(StrEnum):
    GREATER_THAN = "GREATER_THAN"
    LESS_THAN = "LESS_THAN"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Statistic(StrEnum):
    """How the values of a window become one value."""

    MIN = "min"
    MAX = "max"
    AVG = "avg"
    LAST = "last"
    P50 = "p50"
    P95 = "p95"
    P99 = "p99"


class StalledForm(StrEnum):
    WAITING = "waiting"
    """Work waits and nothing starts."""
    RUNNING = "running"
    """Work is running and nothing completes."""
    EITHER = "either"


class DeadLetterMeasure(StrEnum):
    COUNT = "count"
    GROWTH = "growth"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A rule as it is written. None in a field means the default of the rule's type."""

    name: str
    type: RuleType
    description: str = ""
    queue: str | None = None
    """A queue, a pattern with `*` and `?`, or None for all queues of the environment."""
    group: str | None = None
    """A consumer group of the queues; None measures each queue as a whole."""
    operator: Operator | None = None
    threshold: float | None = None
    clear_threshold: float | None = None
    """A firing rule clears at this value; None: at the threshold."""
    statistic: Statistic | None = None
    window_minutes: int | None = None
    for_minutes: float = 0.0
    """How long the condition must hold before the rule fires."""
    keep_firing_for_minutes: float = 0.0
    """How long the condition must be clear before the rule resolves."""
    cooldown_minutes: float = 15.0
    """How long after a notice about a queue the next one may follow. Resolved notices do not wait for it."""
    repeat_minutes: float | None = None
    """A notice is repeated after this time while the rule fires; None: never."""
    min_samples: int | None = None
    """With fewer finished attempts or waits in the window the state is unknown."""
    min_observed_points: int = 0
    """With fewer observed (not carried forward) points in the window the state is unknown."""
    form: StalledForm | None = None
    measure: DeadLetterMeasure | None = None
    objective: float | None = None
    """SLO: the share of work that must start in time, such as 0.95."""
    within_seconds: float | None = None
    """SLO: work starts in time if it waits at most this long."""
    within_hours: float | None = None
    """EXPIRES_SOON: messages that expire within this time count."""
    severity: Severity = Severity.WARNING
    labels: dict[str, str] = {}
    runbook: str | None = None
    channels: tuple[str, ...] = ()
    """Names of the channels that receive notices."""
    enabled: bool = True


PLATFORM_TYPES = frozenset({RuleType.PIPELINE_STALE})
"""Types that belong to an environment. Their incidents explain those of queues and hold them back."""


def is_platform_rule(rule: AlertRule) -> bool:
    return rule.type in PLATFORM_TYPES
