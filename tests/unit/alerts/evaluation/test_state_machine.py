"""Timelines of one rule for one queue: what each evaluation says, and the state that follows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.alerts.evaluation.state_machine import AlertState, Timing, Transition, Verdict, next_state

VERDICTS = {
    "!": Verdict.BREACHED,
    "~": Verdict.BETWEEN,
    ".": Verdict.CLEAR,
    "?": Verdict.UNKNOWN,
}
AT_ONCE = Timing()
LETTERS = {"ok": "o", "pending": "p", "firing": "F", "clearing": "c", "unknown": "?"}


@dataclass(frozen=True, slots=True)
class Timeline:
    """One character per minute: the verdict of the evaluation, and the first letter of the expected state."""

    name: str
    verdicts: str
    states: str
    notices: dict[int, Transition]
    timing: Timing = AT_ONCE


FIRED, RESOLVED = Transition.FIRED, Transition.RESOLVED

TIMELINES = [
    Timeline("fires at once without for", ".!!..", "oFFoo", {1: FIRED, 3: RESOLVED}),
    Timeline("pending for two minutes", ".!!!!.", "oppFFo", {3: FIRED, 5: RESOLVED}, Timing(for_s=120)),
    Timeline("a spike shorter than for", ".!!.!!.", "oppoppo", {}, Timing(for_s=120)),
    Timeline("between the thresholds does not clear", "!~~~.", "FFFFo", {0: FIRED, 4: RESOLVED}),
    Timeline("between the thresholds does not fire", "~!~!", "opop", {}, Timing(for_s=600)),
    Timeline(
        "keeps firing until it was clear for two minutes",
        *("!...!...", "FccoFcco", {0: FIRED, 3: RESOLVED, 4: FIRED, 7: RESOLVED}),
        Timing(keep_firing_for_s=120),
    ),
    Timeline("flapping is one incident", "!.!.!...", "FcFcFcco", {0: FIRED, 7: RESOLVED}, Timing(0, 120)),
    Timeline("unknown does not resolve", "!????.", "F????o", {0: FIRED, 5: RESOLVED}),
    Timeline("unknown does not fire", ".!????!!!", "op????ppF", {8: FIRED}, Timing(for_s=120)),
    Timeline("unknown from the start", "???.", "???o", {}),
    Timeline("unknown while clearing", "!.??..", "Fc??cc", {0: FIRED}, Timing(0, 180)),
]


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline.name)
def test_a_timeline_has_the_expected_states(timeline: Timeline) -> None:
    state, states, notices = AlertState(), "", {}
    for minute, verdict in enumerate(timeline.verdicts):
        state, transition = next_state(state, VERDICTS[verdict], 1_000.0 + minute * 60, timeline.timing)
        states += LETTERS[state.label]
        if transition is not None:
            notices[minute] = transition

    assert states == timeline.states
    assert notices == timeline.notices


@pytest.mark.parametrize("step_s", [3_600.0, -3_600.0])
def test_a_step_of_the_clock_fires_nothing_early(step_s: float) -> None:
    timing = Timing(for_s=600)
    state, _ = next_state(AlertState(), Verdict.BREACHED, 10_000.0, timing)

    state, transition = next_state(state, Verdict.BREACHED, 10_000.0 + step_s, timing)

    assert (state.label, transition) == ("pending", None)


def test_an_evaluator_that_paused_counts_none_of_its_pause() -> None:
    timing = Timing(keep_firing_for_s=300)
    state, _ = next_state(AlertState(), Verdict.BREACHED, 10_000.0, timing)
    state, _ = next_state(state, Verdict.CLEAR, 10_030.0, timing)

    state, transition = next_state(state, Verdict.CLEAR, 10_030.0 + 3_600, timing)

    assert (state.label, transition) == ("clearing", None)
