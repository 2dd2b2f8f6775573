"""What needs the attention of an operator, the most urgent first: what it is, where, and since when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from penstock.alerts.incidents.cause import STALE_LAG_S
from penstock.alerts.incidents.incident_service import IncidentRecord
from penstock.api.health_checks import EFFECTS
from penstock.api.live.queue_rows import GROWTH_MINUTES, QueueRow
from penstock.clock import iso, to_utc

MAX_ITEMS = 5
"""Items of a section; its total counts all."""
OLD_AFTER_S = 60.0
"""Work that waits longer needs attention."""
SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """One problem. `severity` is one of SEVERITIES; `link` is a path of the console."""

    what: str
    where: str
    since_s: float | None
    severity: str
    link: str

    def to_dict(self) -> dict[str, object]:
        return {
            "what": self.what,
            "where": self.where,
            "since": None if self.since_s is None else iso(to_utc(self.since_s)),
            "severity": self.severity,
            "link": self.link,
        }


@dataclass(frozen=True, slots=True)
class AttentionSection:
    """Problems of one kind: the first of them, how many there are, and a link to all."""

    kind: str
    title: str
    items: Sequence[AttentionItem]
    total: int
    link: str

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "title": self.title,
            "items": [item.to_dict() for item in self.items],
            "total": self.total,
            "link": self.link,
        }


def build_section(
    kind: str, title: str, items: Iterable[AttentionItem], link: str, total: int | None = None
) -> AttentionSection:
    """Return a section of the first items, which come in the order of their urgency."""
    listed = list(items)
    return AttentionSection(kind, title, listed[:MAX_ITEMS], len(listed) if total is None else total, link)


def worst_severity(sections: Iterable[AttentionSection]) -> str:
    """Return the highest severity of all items; `ok` if there are none."""
    severities = {item.severity for section in sections for item in section.items}
    return next((severity for severity in SEVERITIES if severity in severities), "ok")


def incident_section(incidents: Sequence[IncidentRecord]) -> AttentionSection:
    """Return the unresolved incidents, the most severe first, then the longest firing."""
    ordered = sorted(
        incidents, key=lambda incident: (SEVERITIES.index(incident.severity), incident.opened_at)
    )
    return build_section(
        "incidents", "Firing incidents", map(_incident_item, ordered), "/console/alerts?tab=incidents"
    )


def component_section(
    down: Mapping[str, str], down_since_s: Mapping[str, float], counted_until_s: float | None, now_s: float
) -> AttentionSection:
    """Return the servers that are away, and the pipeline if it is behind. `down` has the reasons."""
    items = [
        AttentionItem(
            f"{reason.rstrip('.')}. {EFFECTS.get(name, '')}".strip(),
            name,
            down_since_s.get(name),
            "warning" if name in ("clickhouse", "pipeline") else "critical",
            "/console/pipeline" if name in ("clickhouse", "pipeline") else "/console/operations",
        )
        for name, reason in down.items()
    ]
    if "pipeline" not in down and counted_until_s is not None and now_s - counted_until_s >= STALE_LAG_S:
        items.append(
            AttentionItem(
                "The metrics are behind: charts and alerts show an earlier time.",
                "pipeline",
                counted_until_s,
                "warning",
                "/console/pipeline",
            )
        )
    return build_section("components", "Servers and pipeline", items, "/console/pipeline")


def queue_sections(rows: Sequence[QueueRow], now_s: float) -> list[AttentionSection]:
    """Return the queues with old work, growing backlogs and new dead letters, the worst first."""
    old = [row for row in rows if row.oldest_s is not None and now_s - row.oldest_s >= OLD_AFTER_S]
    growing = [row for row in rows if row.growth is not None]
    dying = [row for row in rows if row.activity is not None and row.activity.dead]
    return [
        _queue_section(
            ("oldest", "Oldest waiting work", "/console/queues?sort=oldest"),
            sorted(old, key=lambda row: row.oldest_s or 0.0),
            _old_item,
        ),
        _queue_section(
            ("growing", "Growing backlogs", "/console/queues?problem=growing&sort=growth"),
            sorted(growing, key=lambda row: -(row.growth.messages if row.growth else 0)),
            _growing_item,
        ),
        _queue_section(
            ("dead", "Dead letters of the last hour", "/console/dead-letters"),
            sorted(dying, key=lambda row: -(row.activity.dead if row.activity else 0)),
            _dead_item,
        ),
    ]


def _queue_section(
    heading: tuple[str, str, str], rows: Sequence[QueueRow], to_item: Callable[[QueueRow], AttentionItem]
) -> AttentionSection:
    kind, title, link = heading
    return build_section(kind, title, map(to_item, rows[:MAX_ITEMS]), link, len(rows))


def _incident_item(incident: IncidentRecord) -> AttentionItem:
    rule = msgspec.json.decode(incident.rule, type=dict[str, object])
    queues = msgspec.json.decode(incident.queues, type=list[dict[str, object]])
    summary = str(queues[0]["summary"]) if queues else ""
    names = [str(queue["queue"]) for queue in queues if queue["queue"]]
    more = incident.queue_count - len(names)
    where = ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")
    state = ", acknowledged" if incident.state == "acknowledged" else ""
    return AttentionItem(
        f"{rule.get('name')}{state}: {summary}" if summary else f"{rule.get('name')}{state}",
        where or "environment",
        incident.opened_at.timestamp(),
        incident.severity,
        f"/console/alerts?tab=incidents&incident={incident.id}",
    )


def _old_item(row: QueueRow) -> AttentionItem:
    detail = f" {row.cap_detail}" if row.cap_detail else ""
    what = f"{row.depth or 0:,} waiting.{detail}"
    return AttentionItem(what, row.name, row.oldest_s, "warning", queue_link(row.name))


def _growing_item(row: QueueRow) -> AttentionItem:
    assert row.growth is not None
    what = f"+{row.growth.messages:,} in {GROWTH_MINUTES} minutes, {row.depth or 0:,} waiting."
    return AttentionItem(what, row.name, row.growth.since_s, "warning", queue_link(row.name))


def _dead_item(row: QueueRow) -> AttentionItem:
    assert row.activity is not None
    what = f"{row.activity.dead:,} died in the last hour, {row.dead or 0:,} dead letters now."
    link = f"/console/dead-letters?queue={quote(row.name, safe='')}"
    return AttentionItem(what, row.name, row.activity.dead_since_s, "warning", link)


def queue_link(queue: str) -> str:
    """Return the page of a queue."""
    return f"/console/queues/{quote(queue, safe='')}"
