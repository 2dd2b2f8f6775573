"""Incidents and notices over several evaluations: cooldowns, groups, silences and repeats."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.alerts.incidents.incident_model import Incident
from penstock.alerts.incidents.incident_tracker import FiringQueue, NoticePolicy, update_incident

RULE = uuid.UUID(int=1)


@dataclass
class Tracker:
    """Feeds evaluations to the tracker and remembers what the evaluator would store."""

    cooldown_s: float = 900.0
    repeat_s: float | None = None
    is_silenced: Callable[[str], bool] = lambda queue: False
    inhibited_by: uuid.UUID | None = None
    incident: Incident | None = None
    notified_s: dict[str, float] = field(default_factory=dict)
    now_s: float = 10_000.0

    def evaluate(self, *queues: str, after_s: float = 30.0) -> tuple[str | None, tuple[str, ...]]:
        """Evaluate with these queues firing; return the transition and the queues of the notice."""
        self.now_s += after_s
        policy = NoticePolicy(
            self.cooldown_s, self.notified_s, self.is_silenced, self.inhibited_by, self.repeat_s
        )
        firing = {queue: FiringQueue(queue, 5.0, 1.0, "too many") for queue in queues}
        update = update_incident(self.incident, RULE, firing, self.now_s, policy)
        if update is None:
            return None, ()
        self.incident = update.incident if update.incident.resolved_s is None else None
        if update.transition is not None and update.transition != "resolved":
            self.notified_s |= dict.fromkeys(update.notified_queues, self.now_s)
        return update.transition, update.notified_queues


NOTHING = (None, ())


def test_an_incident_opens_stays_and_resolves() -> None:
    tracker = Tracker()

    assert tracker.evaluate() == NOTHING
    assert tracker.evaluate("a") == ("opened", ("a",))
    assert tracker.evaluate("a") == NOTHING
    assert tracker.evaluate() == ("resolved", ("a",))


def test_queues_that_join_are_notified_together_after_the_group_interval() -> None:
    tracker = Tracker()
    tracker.evaluate("a")

    assert tracker.evaluate("a", "b") == NOTHING
    assert tracker.evaluate("a", "b", "c") == ("update 1", ("b", "c"))


def test_a_queue_that_fires_again_waits_for_its_cooldown() -> None:
    tracker = Tracker(cooldown_s=300)
    tracker.evaluate("a")
    tracker.evaluate()

    assert tracker.evaluate("a") == NOTHING
    assert tracker.evaluate("a", after_s=300) == ("opened", ("a",))


def test_an_incident_within_the_cooldown_that_resolves_is_silent() -> None:
    tracker = Tracker(cooldown_s=300)
    tracker.evaluate("a")
    tracker.evaluate()

    assert tracker.evaluate("a") == NOTHING
    assert tracker.evaluate() == NOTHING


def test_the_cooldown_of_a_queue_does_not_hold_back_another() -> None:
    tracker = Tracker(cooldown_s=3_600)
    tracker.evaluate("a")
    tracker.evaluate()

    assert tracker.evaluate("b") == ("opened", ("b",))


def test_a_firing_rule_is_repeated_only_if_it_asks_for_it() -> None:
    tracker = Tracker(cooldown_s=60, repeat_s=3_600)
    tracker.evaluate("a")

    assert tracker.evaluate("a", after_s=1_800) == NOTHING
    assert tracker.evaluate("a", after_s=1_800) == ("update 1", ("a",))


def test_after_a_silence_what_still_fires_is_notified_at_once() -> None:
    silenced = {"a"}
    tracker = Tracker(is_silenced=lambda queue: queue in silenced)

    assert tracker.evaluate("a") == NOTHING
    silenced.clear()
    assert tracker.evaluate("a") == ("opened", ("a",))


def test_a_silenced_incident_resolves_silently() -> None:
    tracker = Tracker(is_silenced=lambda queue: True)
    tracker.evaluate("a")

    assert tracker.evaluate() == NOTHING


def test_an_inhibited_incident_is_held_back() -> None:
    tracker = Tracker(inhibited_by=uuid.UUID(int=2))

    assert tracker.evaluate("a") == NOTHING
    tracker.inhibited_by = None
    assert tracker.evaluate("a") == ("opened", ("a",))
