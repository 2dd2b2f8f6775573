"""Histories for tests: the value of each queue per minute, written as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.alerts.backtest.rule_history import RuleHistory
from penstock.alerts.evaluation.conditions import Values
from penstock.alerts.rules.rule_check import parse_rule
from penstock.alerts.rules.rule_types import CompleteRule, complete_rule

START_S = 1_800_000_000


def backlog_rule(**fields: Any) -> CompleteRule:
    """A rule that fires above 10 messages, with a cooldown of 15 minutes."""
    return complete_rule(parse_rule({"name": "backlog", "type": "BACKLOG", "threshold": 10, **fields}))


def history(**queues: str) -> RuleHistory:
    """The history of queues: one value per minute, `_` where there is none."""
    rows = [[np.nan if cell == "_" else float(cell) for cell in text.split()] for text in queues.values()]
    values = np.array(rows)
    return RuleHistory(list(queues), START_S, Values(values, np.zeros(values.shape, dtype=np.bool_), {}))


def minute_of(time_s: float | None) -> int | None:
    """The minute of a time in the history."""
    return None if time_s is None else int(time_s - START_S) // 60
