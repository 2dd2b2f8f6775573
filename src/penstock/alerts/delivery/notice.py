"""The content of a notice: everything that a sender needs to tell a receiver about an incident.

The evaluator writes it into the outbox; each kind of channel formats it in its own way. The id of a notice is
the id of its row in the outbox.
"""

from __future__ import annotations

import uuid
from datetime import datetime

import msgspec

MAX_QUEUES = 20
"""Queues that a notice lists. `queue_count` counts all of them."""

OPENED = "opened"
ACKNOWLEDGED = "acknowledged"
RESOLVED = "resolved"
TEST = "test"
"""A notice without an incident, which `penstock alerts send-test` writes."""


class NoticeQueue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue of the incident, and the sentence that says why the rule fires for it."""

    name: str
    """Empty: the whole environment."""
    summary: str
    value: float | None = None
    threshold: float | None = None
    resolved: bool = False


class NoticeMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of a notice, stored as JSON in the outbox."""

    incident_id: uuid.UUID | None
    """None: a test notice."""
    transition: str
    """`opened`, `update 1`, `update 2`, …, `acknowledged`, `resolved` or `test`."""
    environment: str
    """organization/project/environment"""
    rule_name: str
    rule_type: str
    severity: str
    summary: str
    """One sentence with the figures that decided."""
    opened_at: datetime
    resolved_at: datetime | None = None
    queues: tuple[NoticeQueue, ...] = ()
    """The first MAX_QUEUES queues."""
    queue_count: int = 0
    cause: str | None = None
    """One sentence that names the cause; None if no check names one."""
    labels: dict[str, str] = {}
    runbook: str | None = None
    incident_path: str | None = None
    """Path of the incident below the URL of the console."""

    @property
    def is_resolved(self) -> bool:
        return self.transition == RESOLVED
