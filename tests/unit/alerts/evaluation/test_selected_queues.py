"""The queues that a rule selects among those that exist."""

from __future__ import annotations

import pytest

from penstock.alerts.evaluation.selected_queues import QueueScopes
from penstock.alerts.rules.alert_rule import AlertRule, RuleType
from penstock.warehouse.matrix.queue_matrix import Subject

SUBJECTS = [
    Subject("orders"),
    Subject("deleted"),
    Subject("orders", "billing"),
    Subject("orders-eu"),
    Subject("[x]"),
]
LIVE_QUEUES = {"orders", "orders-eu", "[x]"}


@pytest.mark.parametrize(
    ("queue", "group", "rows"),
    [
        (None, None, [0, 3, 4]),
        ("orders", None, [0]),
        ("orders", "billing", [2]),
        ("orders*", None, [0, 3]),
        ("order?", None, [0]),
        ("deleted", None, []),
        ("[x]", None, [4]),
        ("[x]*", None, [4]),
        ("unknown", None, []),
    ],
)
def test_a_scope_selects_existing_queues(queue: str | None, group: str | None, rows: list[int]) -> None:
    rule = AlertRule(name="r", type=RuleType.BACKLOG, threshold=1.0, queue=queue, group=group)

    selected = QueueScopes(LIVE_QUEUES).select(rule, "minutes", SUBJECTS)

    assert selected.rows.tolist() == rows
    assert list(selected.queues) == [SUBJECTS[row].queue for row in rows]
