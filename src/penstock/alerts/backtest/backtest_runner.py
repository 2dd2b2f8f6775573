"""Test a rule over a past period and describe the result as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from penstock.alerts.backtest.backtest_period import (
    BacktestPeriod,
    UnknownSpan,
    find_unknown_spans,
    limit_period,
)
from penstock.alerts.backtest.backtest_request import BacktestRequest, check_is_testable
from penstock.alerts.backtest.history_reader import HistoryReader
from penstock.alerts.backtest.incident_replay import compare
from penstock.alerts.backtest.rule_history import EVALUATION_STEP_S, RuleHistory
from penstock.alerts.backtest.simulation import (
    SimulatedIncident,
    count_notified,
    held_back_counts,
    simulate,
)
from penstock.alerts.backtest.threshold_suggestion import check_has_threshold, parse_rate, suggest_threshold
from penstock.alerts.evaluation.descriptions import format_milliseconds, format_value
from penstock.alerts.rules.alert_rule import Operator
from penstock.alerts.rules.rule_types import CompleteRule, Unit
from penstock.clock import iso_of
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse

MAX_INCIDENTS = 1_000
"""Incidents that are described; the counts include all."""
MAX_QUEUES = 20
"""Queues per incident that are described, the worst first."""
MAX_TIMES = 3
"""Times in the sentence."""
SERIES_POINTS = 240

JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class Backtest:
    """The incidents of a rule in a period."""

    request: BacktestRequest
    rule: CompleteRule
    period: BacktestPeriod
    incidents: list[SimulatedIncident]

    @property
    def sentence(self) -> str:
        """What would have happened, such as "would have fired 3 times in 7 d, at …; notified 2"."""
        length = format_milliseconds((self.request.end_s - self.request.start_s) * 1000)
        if not self.incidents:
            return f"would not have fired in {length}"
        times = [_minute(incident.opened_s) for incident in self.incidents[:MAX_TIMES]]
        more = len(self.incidents) - len(times)
        text = f"would have fired {_times(len(self.incidents))} in {length}, at {', '.join(times)}"
        text += f" and {more} more; notified {count_notified(self.incidents)}"
        text = text.replace(" and 0 more", "")
        held_back = [f"{count} held back by {reason}" for reason, count in _held_back(self.incidents)]
        return ", ".join((text, *held_back))

    def to_json(self) -> JsonObject:
        return {
            "threshold": self.rule.threshold,
            "thresholdText": _threshold_text(self.rule, self.rule.threshold),
            "clearThreshold": self.rule.clear_threshold,
            "sentence": self.sentence,
            "fired": len(self.incidents),
            "notified": count_notified(self.incidents),
            "queueFirings": sum(incident.firings for incident in self.incidents),
            "heldBack": dict(held_back_counts(self.incidents)),
            "incidents": [_incident_to_json(self.rule, each) for each in self.incidents[:MAX_INCIDENTS]],
        }


def run_backtest(warehouse: Warehouse, scope: Scope, request: BacktestRequest) -> JsonObject:
    """Test the rule and, as requested, suggest a threshold or compare with a past incident."""
    rule = request.rule
    check_is_testable(rule)
    if request.at_most is not None:
        check_has_threshold(rule)
    period = limit_period(request.start_s, request.end_s, rule, request.now_s, request.counted_until_s)
    max_notified = None
    if request.at_most is not None:
        max_notified = parse_rate(request.at_most, period.end_s - period.start_s)
    reader = HistoryReader(warehouse, scope, request.live_queues)
    history = reader.read(rule, period.start_s, period.end_s, request.now_s)
    test = Backtest(request, rule, period, simulate(rule, history, request.is_silenced))
    document: JsonObject = {
        "rule": rule.rule.name,
        "type": rule.rule.type.value,
        "unit": rule.unit.value,
        "operator": rule.operator.value,
        "from": iso_of(period.start_s),
        "to": iso_of(period.end_s),
        "queues": len(history.queues),
        **test.to_json(),
        "unknown": [_span_to_json(span) for span in find_unknown_spans(warehouse, scope, period)],
        "series": _series_to_json(rule, history),
        "suggestion": None,
        "replay": None,
    }
    if max_notified is not None:
        document["suggestion"] = _suggest(test, history, max_notified)
    if request.past_incident is not None:
        document["replay"] = _replay(test)
    return document


def _suggest(test: Backtest, history: RuleHistory, max_notified: int) -> JsonObject:
    request = test.request
    suggestion = suggest_threshold(test.rule, history, max_notified, request.is_silenced)
    document: JsonObject = {"atMost": request.at_most, "maxNotified": max_notified, "test": None}
    if suggestion is None:
        sentence = f"no threshold would have paged at most {_times(max_notified)}; try a longer forMinutes"
        return {**document, "sentence": sentence}
    suggested = Backtest(request, suggestion.rule, test.period, suggestion.incidents)
    text = _threshold_text(suggestion.rule, suggestion.rule.threshold)
    sentence = f"a threshold of {text} {suggested.sentence}"
    return {**document, "sentence": sentence, "test": suggested.to_json()}


def _replay(test: Backtest) -> JsonObject | None:
    past = test.request.past_incident
    if past is None:
        return None
    comparison = compare(past, test.incidents, test.period.end_s)
    return {
        "incidentId": past.id,
        "rule": past.rule_name,
        "openedAt": iso_of(past.opened_s),
        "resolvedAt": None if past.resolved_s is None else iso_of(past.resolved_s),
        "sentence": comparison.sentence,
        "openedEarlierSeconds": comparison.opened_earlier_s(past),
        "resolvedEarlierSeconds": comparison.resolved_earlier_s(past),
    }


def _incident_to_json(rule: CompleteRule, incident: SimulatedIncident) -> JsonObject:
    is_below = rule.operator is Operator.LESS_THAN
    peaks = sorted(incident.peaks.items(), key=lambda peak: (peak[1] if is_below else -peak[1], peak[0]))
    return {
        "openedAt": iso_of(incident.opened_s),
        "resolvedAt": None if incident.resolved_s is None else iso_of(incident.resolved_s),
        "queues": [{"name": name, **_value_to_json(rule, value)} for name, value in peaks[:MAX_QUEUES]],
        "queueCount": len(peaks),
        "firings": incident.firings,
        **_value_to_json(rule, peaks[0][1] if peaks else math.nan),
        "notified": incident.notified_s is not None,
        "notifiedAt": None if incident.notified_s is None else iso_of(incident.notified_s),
        "notices": incident.notices,
        "heldBackBy": incident.held_back_by,
    }


def _value_to_json(rule: CompleteRule, value: float) -> JsonObject:
    """Return a peak as a number, which is null if it is infinite, and as text."""
    return {
        "peak": value if math.isfinite(value) else None,
        "peakText": "" if math.isnan(value) or rule.unit is Unit.FLAG else format_value(rule.unit, value),
    }


def _series_to_json(rule: CompleteRule, history: RuleHistory) -> JsonObject:
    """Return the worst value over all queues for a plot, in at most SERIES_POINTS points."""
    worst = np.fmin if rule.operator is Operator.LESS_THAN else np.fmax
    minutes = math.ceil(history.columns / SERIES_POINTS)
    values = np.full(math.ceil(history.columns / minutes) * minutes, np.nan)
    if history.queues:
        values[: history.columns] = worst.reduce(history.values.values, axis=0)
    points = worst.reduce(values.reshape(-1, minutes), axis=1)
    finite = points[np.isfinite(points)]
    highest = max(float(finite.max(initial=0.0)), 2 * rule.threshold)
    return {
        "from": iso_of(history.start_s),
        "stepSeconds": minutes * EVALUATION_STEP_S,
        "values": [
            None if math.isnan(value) else min(value, highest) for value in points.astype(float).tolist()
        ],
    }


def _span_to_json(span: UnknownSpan) -> JsonObject:
    return {"from": iso_of(span.start_s), "to": iso_of(span.end_s), "reason": span.reason}


def _held_back(incidents: list[SimulatedIncident]) -> Iterable[tuple[str, int]]:
    return ((reason, count) for reason, count in held_back_counts(incidents).items() if count)


def _threshold_text(rule: CompleteRule, threshold: float) -> str:
    return "" if rule.unit is Unit.FLAG else format_value(rule.unit, threshold)


def _minute(time_s: float) -> str:
    return iso_of(time_s)[:16].replace("T", " ")


def _times(count: int) -> str:
    return {0: "0 times", 1: "once", 2: "twice"}.get(count, f"{count} times")
