"""The rules that suit most environments. They exist once an operator switches them on for a channel."""

from __future__ import annotations

from penstock.alerts.rules.alert_rule import AlertRule, RuleType, Severity, StalledForm

DEFAULT_RULES = (
    AlertRule(
        name="backlog grows",
        description="The backlog would take more than an hour to drain, or does not shrink at all.",
        type=RuleType.TIME_TO_DRAIN,
        threshold=3_600_000.0,
        window_minutes=15,
        for_minutes=10.0,
        keep_firing_for_minutes=5.0,
    ),
    AlertRule(
        name="oldest message is old",
        description="A message that could be delivered has waited for more than 15 minutes.",
        type=RuleType.OLDEST_AGE,
        threshold=900_000.0,
        for_minutes=2.0,
        keep_firing_for_minutes=2.0,
    ),
    AlertRule(
        name="dead letters arrive",
        description="Messages became dead letters in the last 10 minutes.",
        type=RuleType.DEAD_LETTERS,
        threshold=0.0,
        window_minutes=10,
    ),
    AlertRule(
        name="stalled",
        description="Work waits and nothing starts, or work is running and nothing completes.",
        type=RuleType.STALLED,
        form=StalledForm.EITHER,
        window_minutes=15,
        severity=Severity.CRITICAL,
    ),
    AlertRule(
        name="metrics are behind",
        description="Alerts are blind: the pipeline has not counted events for two minutes.",
        type=RuleType.PIPELINE_STALE,
        threshold=120_000.0,
        severity=Severity.CRITICAL,
    ),
)
