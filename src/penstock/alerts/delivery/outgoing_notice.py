"""A notice on its way to a receiver, and its texts for people."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from penstock.alerts.delivery.notice import ACKNOWLEDGED, OPENED, RESOLVED, TEST, NoticeMessage
from penstock.clock import iso

MAX_LISTED_QUEUES = 5
"""Queues that a text for people lists."""
TIME_AROUND = timedelta(minutes=30)
"""What a link to a queue shows before the incident and after the notice."""

_STATUS_WORDS = {OPENED: "Firing", ACKNOWLEDGED: "Acknowledged", RESOLVED: "Resolved", TEST: "Test"}


@dataclass(frozen=True, slots=True)
class OutgoingNotice:
    """A notice with the id that stays the same in every attempt."""

    id: uuid.UUID
    created_at: datetime
    message: NoticeMessage
    incident_url: str | None = None
    queue_url: str | None = None
    """The page of the first queue, with the time around the incident."""

    @property
    def incident_key(self) -> str:
        """The id under which a receiver keeps all notices of the incident together."""
        return str(self.message.incident_id or self.id)

    @property
    def status_word(self) -> str:
        """Firing, Update, Acknowledged, Resolved or Test."""
        return _STATUS_WORDS.get(self.message.transition, "Update")

    @property
    def title(self) -> str:
        return f"{self.status_word}: {self.message.rule_name} ({self.message.severity})"

    def facts(self) -> list[tuple[str, str]]:
        """Return the labelled details, without those that are empty."""
        message = self.message
        facts = [
            ("Cause", message.cause or ""),
            ("Queues", self._queue_names()),
            ("Rule", f"{message.rule_name} ({message.rule_type})"),
            ("Environment", message.environment),
            ("Opened", format_time(message.opened_at)),
            ("Resolved", format_time(message.resolved_at) if message.resolved_at else ""),
            ("Labels", ", ".join(f"{name}={value}" for name, value in sorted(message.labels.items()))),
        ]
        return [(label, text) for label, text in facts if text]

    def links(self) -> list[tuple[str, str]]:
        """Return the labelled links, without those that are empty."""
        links = [
            ("Incident", self.incident_url),
            ("Queue", self.queue_url),
            ("Runbook", self.message.runbook),
        ]
        return [(label, url) for label, url in links if url]

    def _queue_names(self) -> str:
        names = [queue.name for queue in self.message.queues if queue.name][:MAX_LISTED_QUEUES]
        remaining = self.message.queue_count - len(names)
        return ", ".join(names) + (f" and {remaining:,} more" if names and remaining > 0 else "")


def queue_page_path(message: NoticeMessage, created_at: datetime) -> str | None:
    """Return the console's page of the first queue, from before the incident until after the notice.

    None if the incident is of the whole environment.
    """
    name = next((queue.name for queue in message.queues if queue.name), None)
    if name is None:
        return None
    start = iso(message.opened_at - TIME_AROUND)
    end = iso((message.resolved_at or created_at) + TIME_AROUND)
    page = f"/console/queues/{quote(name, safe='')}?from={start}&to={end}"
    return with_environment(page, message.environment)


def with_environment(path: str, environment: str) -> str:
    """Return the path and query of a page with the environment that the console selects for it."""
    return f"{path}&environment={quote(environment)}"


def format_time(time: datetime) -> str:
    """Format a time for people, such as `2026-03-01 12:00:05 UTC`."""
    return iso(time)[:19].replace("T", " ") + " UTC"


def shorten_text(text: str, max_length: int) -> str:
    """Cut a text to what a receiver accepts."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"
