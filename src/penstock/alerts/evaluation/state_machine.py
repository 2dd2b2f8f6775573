"""The state of one rule for one queue: ok, pending, firing, clearing, and unknown.

Unknown is not a phase of its own: the state keeps its phase and the time it has spent there, and continues
when the condition is known again. So an unknown condition neither fires nor resolves.

The time in a phase is the sum of the times between evaluations, each at most MAX_GAP_S: neither a step of the
clock nor a pause of the evaluator makes a rule fire or resolve early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

MAX_GAP_S = 90.0
"""The longest time between two evaluations that counts towards `forMinutes` and `keepFiringForMinutes`."""


class Phase(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    CLEARING = "clearing"


class Verdict(StrEnum):
    """What one evaluation says about the condition."""

    BREACHED = "breached"
    BETWEEN = "between"
    """Not breached, but not past the clear threshold either."""
    CLEAR = "clear"
    UNKNOWN = "unknown"


class Transition(StrEnum):
    """A change of state that opens or closes an incident."""

    FIRED = "fired"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a condition must hold before a rule fires, and be clear before it resolves."""

    for_s: float = 0.0
    keep_firing_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AlertState:
    """The state of a rule for a queue after the evaluation at `evaluated_s`."""

    phase: Phase = Phase.OK
    since_s: float = 0.0
    """When the phase began."""
    in_phase_s: float = 0.0
    """Known time in the phase."""
    evaluated_s: float = 0.0
    unknown_reason: str | None = None

    @property
    def label(self) -> str:
        """The name of the state for people: the phase, or `unknown`."""
        return self.phase.value if self.unknown_reason is None else "unknown"

    @property
    def is_firing(self) -> bool:
        return self.phase in (Phase.FIRING, Phase.CLEARING)


def next_state(
    state: AlertState, verdict: Verdict, now_s: float, timing: Timing, unknown_reason: str = ""
) -> tuple[AlertState, Transition | None]:
    """Return the state after an evaluation, and the transition that it causes."""
    if verdict is Verdict.UNKNOWN:
        return replace(state, evaluated_s=now_s, unknown_reason=unknown_reason or "unknown"), None
    known_s = 0.0
    if state.evaluated_s and state.unknown_reason is None:
        known_s = min(max(now_s - state.evaluated_s, 0.0), MAX_GAP_S)
    state = replace(state, in_phase_s=state.in_phase_s + known_s, evaluated_s=now_s, unknown_reason=None)
    if state.is_firing:
        return _while_firing(state, verdict, now_s, timing)
    return _while_quiet(state, verdict, now_s, timing)


def _while_quiet(
    state: AlertState, verdict: Verdict, now_s: float, timing: Timing
) -> tuple[AlertState, Transition | None]:
    if verdict is not Verdict.BREACHED:
        return _enter(state, Phase.OK, now_s), None
    state = _enter(state, Phase.PENDING, now_s)
    if state.in_phase_s < timing.for_s:
        return state, None
    return _enter(state, Phase.FIRING, now_s), Transition.FIRED


def _while_firing(
    state: AlertState, verdict: Verdict, now_s: float, timing: Timing
) -> tuple[AlertState, Transition | None]:
    if verdict is not Verdict.CLEAR:
        return _enter(state, Phase.FIRING, now_s), None
    state = _enter(state, Phase.CLEARING, now_s)
    if state.in_phase_s < timing.keep_firing_for_s:
        return state, None
    return _enter(state, Phase.OK, now_s), Transition.RESOLVED


def _enter(state: AlertState, phase: Phase, now_s: float) -> AlertState:
    """Return the state in the phase; a phase that lasts keeps its time."""
    if phase is state.phase:
        return state
    return replace(state, phase=phase, since_s=now_s, in_phase_s=0.0)
