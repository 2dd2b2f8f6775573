"""An outage of all queues stays cheap to evaluate: the number of stored states is limited."""

from __future__ import annotations

import uuid

import numpy as np

from penstock.alerts.evaluation.conditions import Values
from penstock.alerts.evaluation.rule_evaluation import RuleMeasurement, StoredRule, evaluate_rule
from penstock.alerts.evaluation.state_limit import MAX_STATES, StateLimit
from penstock.alerts.incidents.incident_tracker import NoticePolicy
from penstock.alerts.rules.alert_rule import AlertRule, RuleType
from penstock.alerts.rules.rule_types import complete_rule

QUEUES = [f"queue-{number}" for number in range(100)]
POLICY = NoticePolicy(0.0, {}, is_silenced=lambda queue: False)


def all_breached() -> RuleMeasurement:
    values = np.full((len(QUEUES), 1), 50.0)
    return RuleMeasurement(QUEUES, Values(values, values < 0, {}), lambda row: "50 messages wait")


def backlog_rule() -> StoredRule:
    return StoredRule(uuid.uuid4(), complete_rule(AlertRule(name="r", type=RuleType.BACKLOG, threshold=10.0)))


def test_queues_beyond_the_limit_count_as_pending_and_get_a_state_later() -> None:
    rule = backlog_rule()

    first = evaluate_rule(rule, all_breached(), {}, None, 1_000.0, POLICY, max_new_queues=30)
    assert first.incident is not None
    second = evaluate_rule(
        *(rule, all_breached(), first.states, first.incident.incident, 1_030.0, POLICY), max_new_queues=80
    )

    assert (len(first.states), first.counts["firing"], first.counts["pending"]) == (30, 30, 70)
    assert first.counts["ok"] == 0
    assert first.incident.incident.queues.keys() == set(QUEUES[:30])
    assert (second.counts["firing"], second.counts["pending"]) == (100, 0)


def test_without_a_limit_all_queues_get_a_state() -> None:
    outcome = evaluate_rule(backlog_rule(), all_breached(), {}, None, 1_000.0, POLICY)

    assert outcome.states.keys() == set(QUEUES)


def test_rules_share_the_limit_but_each_can_name_the_queues_of_a_notice() -> None:
    limit = StateLimit.of_states([range(MAX_STATES - 50), range(30)])
    assert limit.max_new_queues(range(30)) == 20

    limit.count_new(range(30), range(50))

    assert limit.max_new_queues(range(50)) == 0
    assert limit.max_new_queues(range(15)) == 5
