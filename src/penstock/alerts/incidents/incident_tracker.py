"""Decide what an evaluation means for the incident of a rule, and whether a notice is due.

All queues for which a rule fires share one incident and one notice. A queue has a cooldown of its own: one
queue never holds back another. A resolved notice waits for nothing, but follows only an earlier notice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.alerts.incidents.incident_model import AffectedQueue, Incident
from penstock.ids import new_id

GROUP_INTERVAL_S = 60.0
"""The shortest time between two notices of one incident about queues that joined it."""

CLEARED = "cleared"

OPENED, UPDATED, RESOLVED = "opened", "update", "resolved"
"""Transitions of an incident that are notified."""


@dataclass(frozen=True, slots=True)
class FiringQueue:
    """A queue for which the rule fires now, with the figures that decided."""

    queue: str
    value: float | None
    threshold: float | None
    summary: str


@dataclass(frozen=True, slots=True)
class NoticePolicy:
    """What holds notices back: the cooldown of each queue, silences, and an inhibiting incident."""

    cooldown_s: float
    last_notified_s: Mapping[str, float]
    """When each queue of the rule was last in a notice."""
    is_silenced: Callable[[str], bool]
    inhibited_by: uuid.UUID | None = None
    repeat_s: float | None = None
    """After this time a queue that still fires is in a notice again; None: never."""

    def is_due(self, queue: AffectedQueue, now_s: float) -> bool:
        """Return whether a notice should name the queue now."""
        if self.is_silenced(queue.queue):
            return False
        if queue.notified_s is not None:
            return self.repeat_s is not None and now_s - queue.notified_s >= max(
                self.repeat_s, self.cooldown_s
            )
        last_s = self.last_notified_s.get(queue.queue)
        return last_s is None or not 0 <= now_s - last_s < self.cooldown_s


@dataclass(frozen=True, slots=True)
class IncidentUpdate:
    """The incident after an evaluation, the transition to notify, and the queues that the notice is about."""

    incident: Incident
    transition: str | None = None
    notified_queues: tuple[str, ...] = ()


def update_incident(
    incident: Incident | None,
    rule_id: uuid.UUID,
    firing: Mapping[str, FiringQueue],
    now_s: float,
    policy: NoticePolicy,
) -> IncidentUpdate | None:
    """Return what follows from the queues that fire now; None if there is no incident and no queue fires."""
    if incident is None:
        if not firing:
            return None
        incident = Incident(new_id(), rule_id, now_s, {}, is_new=True)
    incident = _merge_queues(incident, firing, now_s)
    incident = replace(
        incident,
        is_silenced=bool(firing) and all(policy.is_silenced(queue) for queue in firing),
        inhibited_by=policy.inhibited_by,
    )
    if not firing:
        return _resolve(incident, now_s)
    return _notify(incident, now_s, policy)


def _merge_queues(incident: Incident, firing: Mapping[str, FiringQueue], now_s: float) -> Incident:
    queues = dict(incident.queues)
    for name, queue in queues.items():
        if name not in firing and queue.resolved_s is None:
            queues[name] = replace(queue, resolved_s=now_s)
    for name, current in firing.items():
        known = queues.get(name)
        if known is None or known.resolved_s is not None:
            known = AffectedQueue(name, now_s, None, None, "")
        queues[name] = replace(
            known, value=current.value, threshold=current.threshold, summary=current.summary
        )
    return replace(incident, queues=queues)


def _resolve(incident: Incident, now_s: float) -> IncidentUpdate:
    resolved = replace(incident, resolved_s=now_s, resolution=CLEARED, is_silenced=False, inhibited_by=None)
    if incident.notified_s is None:
        return IncidentUpdate(resolved)
    return IncidentUpdate(_count_notice(resolved, now_s), RESOLVED, tuple(sorted(resolved.queues)))


def _notify(incident: Incident, now_s: float, policy: NoticePolicy) -> IncidentUpdate:
    """Notify the queues that are due: at once, or together after the group interval."""
    due = tuple(sorted(queue.queue for queue in incident.firing_queues if policy.is_due(queue, now_s)))
    is_first = incident.notified_s is None
    is_early = not is_first and 0 <= now_s - (incident.notified_s or 0.0) < GROUP_INTERVAL_S
    if not due or is_early or incident.inhibited_by is not None:
        return IncidentUpdate(incident)
    queues = {**incident.queues, **{name: replace(incident.queues[name], notified_s=now_s) for name in due}}
    transition = OPENED if is_first else f"{UPDATED} {incident.notice_count}"
    return IncidentUpdate(_count_notice(replace(incident, queues=queues), now_s), transition, due)


def _count_notice(incident: Incident, now_s: float) -> Incident:
    return replace(incident, notified_s=now_s, notice_count=incident.notice_count + 1)
