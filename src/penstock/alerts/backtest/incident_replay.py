"""Compare a past incident with what a changed rule would have done in the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.alerts.backtest.backtest_request import PastIncident
from penstock.alerts.backtest.simulation import SimulatedIncident
from penstock.alerts.evaluation.descriptions import format_milliseconds

SAME_MINUTE_S = 60.0
"""A backtest has whole minutes: a smaller difference is none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The incident of the changed rule that overlaps a past one, and the difference in one sentence."""

    incident: SimulatedIncident | None
    sentence: str

    def opened_earlier_s(self, past: PastIncident) -> float | None:
        return None if self.incident is None else past.opened_s - self.incident.opened_s

    def resolved_earlier_s(self, past: PastIncident) -> float | None:
        if self.incident is None or self.incident.resolved_s is None or past.resolved_s is None:
            return None
        return past.resolved_s - self.incident.resolved_s


def compare(past: PastIncident, incidents: Sequence[SimulatedIncident], end_s: float) -> Comparison:
    """Compare a past incident with the simulated ones of the time around it."""
    past_end_s = end_s if past.resolved_s is None else past.resolved_s
    overlapping = [
        incident
        for incident in incidents
        if incident.opened_s <= past_end_s and (incident.resolved_s or end_s) >= past.opened_s
    ]
    if not overlapping:
        return Comparison(None, "would not have fired")
    first = overlapping[0]
    comparison = Comparison(first, "")
    texts = [_difference("fired", comparison.opened_earlier_s(past))]
    if past.resolved_s is not None:
        if len(overlapping) > 1:
            texts.append(f"had {len(overlapping)} incidents instead of 1")
        elif first.resolved_s is None:
            texts.append("still fired half an hour after the incident was resolved")
        else:
            texts.append(_difference("resolved", comparison.resolved_earlier_s(past)))
    if first.notified_s is None:
        texts.append("sent no notice")
    return Comparison(first, "would have " + _join(texts))


def _difference(verb: str, earlier_s: float | None) -> str:
    if earlier_s is None or abs(earlier_s) < SAME_MINUTE_S:
        return f"{verb} at the same time"
    time = format_milliseconds(round(abs(earlier_s) / 60) * 60_000)
    return f"{verb} {time} {'earlier' if earlier_s > 0 else 'later'}"


def _join(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
