"""Simulated incidents: cooldown, grouping, silences and skipped minutes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.alerts.backtest.rule_history import RuleHistory
from penstock.alerts.backtest.simulation import SimulatedIncident, Simulation, simulate
from tests.unit.alerts.backtest.histories import START_S, backlog_rule, history, minute_of


def test_an_incident_has_its_times_queues_and_peak() -> None:
    [incident] = simulate(backlog_rule(), history(orders="0 20 50 30 0", mails="0 0 11 0 0"))
    assert (minute_of(incident.opened_s), minute_of(incident.resolved_s)) == (1, 4)
    assert incident.peaks == {"orders": 50, "mails": 11}
    assert (incident.firings, minute_of(incident.notified_s)) == (2, 1)


def test_a_rule_that_still_fires_has_an_open_incident() -> None:
    [incident] = simulate(backlog_rule(), history(orders="0 20 50"))
    assert incident.resolved_s is None


def test_a_second_incident_within_the_cooldown_is_held_back() -> None:
    incidents = simulate(backlog_rule(cooldownMinutes=5), history(orders="20 0 20 0 0 0 0 20 0"))
    assert [incident.held_back_by for incident in incidents] == [None, "cooldown", None]


def test_an_incident_that_lasts_is_notified_when_the_cooldown_ends() -> None:
    [_, second] = simulate(backlog_rule(cooldownMinutes=5), history(orders="20 0 20 20 20 20 20 20"))
    assert (minute_of(second.opened_s), minute_of(second.notified_s)) == (
        2,
        6,
    )  # the resolved notice came at 1


def test_a_silence_holds_back_until_it_ends() -> None:
    silenced_until_s = START_S + 3 * 60
    values = history(orders="0 20 0 20 0 0 0 0")

    def is_silenced(queue: str, now_s: float) -> bool:
        return now_s < silenced_until_s

    first, second = simulate(backlog_rule(), values, is_silenced)
    assert (first.held_back_by, second.held_back_by) == ("silence", None)


def test_a_minute_with_lost_events_neither_fires_nor_resolves() -> None:
    lost = np.array([False, True, True, False, True, False])
    values = replace(history(orders="20 0 0 0 20 0"), lost_columns=lost)
    [incident] = simulate(backlog_rule(), values)
    assert (minute_of(incident.opened_s), minute_of(incident.resolved_s)) == (0, 3)


def test_the_simulation_stops_after_too_many_pages() -> None:
    rule, values = backlog_rule(cooldownMinutes=0), history(orders="20 0 " * 50)
    assert len(simulate(rule, values)) == 50
    assert len(simulate(rule, values, max_notified=3)) == 4


class EveryMinute(Simulation):
    """A simulation that skips nothing."""

    __slots__ = ()

    def _next_column(self, column: int) -> int:
        return column + 1


@pytest.mark.parametrize("repeat", [None, 4])
@given(
    cells=st.lists(
        st.lists(st.sampled_from(["0", "8", "12", "50", "_"]), min_size=30, max_size=30),
        min_size=1,
        max_size=3,
    ),
    for_minutes=st.sampled_from([0, 2]),
    keep_minutes=st.sampled_from([0, 2]),
    cooldown=st.sampled_from([0, 3, 15]),
    silenced_minute=st.integers(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_skipped_minutes_change_nothing(
    cells: list[list[str]],
    for_minutes: int,
    keep_minutes: int,
    cooldown: int,
    silenced_minute: int,
    repeat: int | None,
) -> None:
    rule = backlog_rule(
        forMinutes=for_minutes,
        keepFiringForMinutes=keep_minutes,
        cooldownMinutes=cooldown,
        clearThreshold=5,
        repeatMinutes=repeat,
    )
    values = history(**{f"queue{number}": " ".join(row) for number, row in enumerate(cells)})

    def is_silenced(queue: str, now_s: float) -> bool:
        return now_s >= START_S + silenced_minute * 60

    def run(simulation: type[Simulation], over: RuleHistory) -> list[SimulatedIncident]:
        return simulation(rule, over, is_silenced).run()

    assert run(Simulation, values) == run(EveryMinute, values)
