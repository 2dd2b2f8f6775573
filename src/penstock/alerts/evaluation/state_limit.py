"""Limit the states that an environment stores, so that an outage of everything stays cheap to evaluate.

A thousand rules over a thousand queues have a million states. Each one that is not ok costs time in every
evaluation. When the limit is reached, queues without a state wait for one, and count as pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass

from penstock.alerts.delivery.notice import MAX_QUEUES

MAX_STATES = 20_000
"""Stored states of an environment above which a rule gets no new ones, except for its first MAX_QUEUES."""


@dataclass(slots=True)
class StateLimit:
    """How many states the rules of one environment may still add in an evaluation."""

    remaining: int

    @classmethod
    def of_states(cls, states_of_rules: Iterable[Sized]) -> StateLimit:
        return cls(MAX_STATES - sum(map(len, states_of_rules)))

    def max_new_queues(self, states: Sized) -> int:
        """Return how many queues the rule with these states may add. Every notice can name its queues."""
        return max(self.remaining, MAX_QUEUES - len(states), 0)

    def count_new(self, before: Sized, after: Sized) -> None:
        self.remaining -= len(after) - len(before)
