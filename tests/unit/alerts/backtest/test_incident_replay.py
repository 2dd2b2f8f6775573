"""The comparison of a past incident with a changed rule."""

from __future__ import annotations

import pytest

from penstock.alerts.backtest.backtest_request import PastIncident
from penstock.alerts.backtest.incident_replay import compare
from penstock.alerts.backtest.simulation import SimulatedIncident

PAST = PastIncident("1", "backlog", 10_000, 16_000)
END_S = 18_000


def simulated(opened_s: float, resolved_s: float | None, notified: bool = True) -> SimulatedIncident:
    return SimulatedIncident(opened_s, resolved_s, notified_s=opened_s if notified else None)


@pytest.mark.parametrize(
    ("incidents", "sentence"),
    [
        ([], "would not have fired"),
        ([simulated(1_000, 2_000)], "would not have fired"),
        ([simulated(9_760, 16_000)], "would have fired 4 min earlier and resolved at the same time"),
        ([simulated(10_030, 16_600)], "would have fired at the same time and resolved 10 min later"),
        (
            [simulated(9_760, 11_000), simulated(12_000, 16_000)],
            "would have fired 4 min earlier and had 2 incidents instead of 1",
        ),
        (
            [simulated(10_000, None)],
            "would have fired at the same time and still fired half an hour after the incident was resolved",
        ),
        (
            [simulated(10_600, 16_000, False)],
            "would have fired 10 min later, resolved at the same time and sent no notice",
        ),
    ],
)
def test_the_difference_is_one_sentence(incidents: list[SimulatedIncident], sentence: str) -> None:
    assert compare(PAST, incidents, END_S).sentence == sentence


def test_an_open_incident_has_no_end_to_compare() -> None:
    past = PastIncident("1", "backlog", 10_000, None)
    assert compare(past, [simulated(9_000, None)], END_S).sentence == "would have fired 17 min earlier"
