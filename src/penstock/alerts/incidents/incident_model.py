"""Incidents: a rule that fires, with all queues for which it does."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class AffectedQueue:
    """A queue for which the rule of an incident fired. The empty name stands for the whole environment."""

    queue: str
    fired_s: float
    value: float | None
    threshold: float | None
    summary: str
    resolved_s: float | None = None
    notified_s: float | None = None
    """The first notice that names the queue."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident of one rule; a rule has at most one open incident."""

    id: uuid.UUID
    rule_id: uuid.UUID | None
    """None: the rule was deleted."""
    opened_s: float
    queues: Mapping[str, AffectedQueue]
    resolved_s: float | None = None
    resolution: str | None = None
    notified_s: float | None = None
    """The last notice; None: there was none yet."""
    notice_count: int = 0
    is_acknowledged: bool = False
    is_silenced: bool = False
    inhibited_by: uuid.UUID | None = None
    cause: Mapping[str, Any] | None = field(default=None)
    chart: bytes | None = None
    """PNG; None unless this evaluation draws it."""
    is_new: bool = False
    """This evaluation opens it."""

    @property
    def firing_queues(self) -> list[AffectedQueue]:
        return [queue for queue in self.queues.values() if queue.resolved_s is None]
