"""The period of a backtest: parse it, and limit it to what the metrics cover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.alerts.backtest.rule_history import EVALUATION_STEP_S
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.clock import iso_of
from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import read_first_hour_s
from penstock.warehouse.series.completeness import read_completeness
from penstock.warehouse.series.window import SeriesWindow
from penstock.warehouse.tiers import MINUTE


@dataclass(frozen=True, slots=True)
class UnknownSpan:
    """A part of the period in which metrics are missing, and why."""

    start_s: float
    end_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class BacktestPeriod:
    """The whole minutes of a period that have metrics, and the spans that have none or not all."""

    start_s: int
    end_s: int
    unknown: tuple[UnknownSpan, ...]


def limit_period(
    start_s: float, end_s: float, rule: CompleteRule, now_s: float, counted_until_s: float | None
) -> BacktestPeriod:
    """Return the testable minutes of a period: metrics are kept for 31 days, and counted up to a time."""
    spans = []
    oldest_s = now_s - MINUTE.retention_s + rule.window_s
    counted_s = now_s if counted_until_s is None else min(now_s, counted_until_s)
    first_s, last_s = max(start_s, oldest_s), min(end_s, counted_s)
    if first_s > start_s:
        spans.append(
            UnknownSpan(
                start_s, min(first_s, end_s), f"metrics by the minute are kept for {MINUTE.days} days"
            )
        )
    if last_s < end_s and end_s - last_s > 2 * EVALUATION_STEP_S:
        spans.append(UnknownSpan(max(last_s, start_s), end_s, "not counted yet"))
    first = -int(-first_s // EVALUATION_STEP_S) * EVALUATION_STEP_S
    last = int(last_s // EVALUATION_STEP_S) * EVALUATION_STEP_S
    if last < first:
        reasons = "; ".join(span.reason for span in spans) or "it is shorter than a minute"
        raise InvalidRequest(
            f"There is nothing to test from {iso_of(start_s)} to {iso_of(end_s)}: {reasons}. "
            "Choose another period.",
            field="period",
        )
    return BacktestPeriod(first, last, tuple(spans))


def find_unknown_spans(warehouse: Warehouse, scope: Scope, period: BacktestPeriod) -> list[UnknownSpan]:
    """Return the spans that lack metrics: outside the limits, before the first metrics, and with losses."""
    spans = list(period.unknown)
    first_s = read_first_hour_s(warehouse, scope, period.end_s)
    if first_s is None or first_s > period.start_s:
        until_s = period.end_s if first_s is None else first_s
        spans.append(UnknownSpan(period.start_s, until_s, "there are no metrics of this environment yet"))
    spans += _find_losses(warehouse, period)
    return sorted(spans, key=lambda span: span.start_s)


def _find_losses(warehouse: Warehouse, period: BacktestPeriod) -> Iterator[UnknownSpan]:
    window = SeriesWindow(
        period.start_s, period.end_s + EVALUATION_STEP_S, EVALUATION_STEP_S, MINUTE, period.end_s
    )
    has_loss = read_completeness(warehouse, QUEUE, window).has_loss.astype(np.int8)
    edges = np.flatnonzero(np.diff(has_loss, prepend=0, append=0))
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        start_s = period.start_s + first * EVALUATION_STEP_S
        yield UnknownSpan(
            start_s, start_s + (end - first) * EVALUATION_STEP_S, "events of this time were lost"
        )
