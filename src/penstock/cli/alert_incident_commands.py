"""`penstock alerts incidents`, `show`, `ack` and `note`: incidents, and what people do about them."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Listing, details
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.watch import watchable

if TYPE_CHECKING:
    from penstock.cli.alert_documents import IncidentDetailsDocument, IncidentDocument

_STATE_COLOURS = {"open": "red", "acknowledged": "yellow", "resolved": "green"}


class IncidentSeverity(StrEnum):
    """Severities of a rule."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


IncidentId = Annotated[str, typer.Argument(help="Id of an incident, as `alerts incidents` shows it.")]
Author = Annotated[str | None, typer.Option("--by", help="Who you are. Default: the name of your login.")]


@with_option_groups
@watchable
def list_incidents(
    *,
    include_resolved: Annotated[bool, typer.Option("--all", help="Also resolved incidents.")] = False,
    queue: Annotated[str | None, typer.Option(help="Only incidents that affect this queue.")] = None,
    rule: Annotated[str | None, typer.Option(help="Only incidents of this rule.")] = None,
    severity: Annotated[IncidentSeverity | None, typer.Option(help="Only this severity.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="Number of incidents.")] = 20,
    broker_options: BrokerOptions,
) -> None:
    """List the incidents that are not resolved, the latest first."""
    from penstock.cli.alert_documents import IncidentPageDocument

    with broker_options.connect() as broker:
        page = broker.get(
            "/api/v1/incidents",
            IncidentPageDocument,
            state=None if include_resolved else "unresolved",
            queue=queue,
            rule=rule,
            severity=severity.value if severity else None,
            limit=limit,
        )
    broker_options.print(page["incidents"], _incident_listing(page["incidents"]))


@with_option_groups
@watchable
def show_incident(incident_id: IncidentId, broker_options: BrokerOptions) -> None:
    """Show an incident: its queues and values, the cause, notices and notes."""
    from penstock.cli.alert_documents import IncidentDetailsDocument

    with broker_options.connect() as broker:
        incident = broker.get(_path(incident_id), IncidentDetailsDocument)
    broker_options.print(incident, _incident_details(incident))


@with_option_groups
def acknowledge(incident_id: IncidentId, broker_options: BrokerOptions, by: Author = None) -> None:
    """Acknowledge an incident: notices are not repeated, and its channels get a notice."""
    from penstock.cli.alert_documents import IncidentDetailsDocument

    with broker_options.connect() as broker:
        body = {"by": by or getpass.getuser()}
        incident = broker.post(f"{_path(incident_id)}/acknowledge", IncidentDetailsDocument, body)
    text = f"Incident {incident['id']} is acknowledged by {escape(incident['acknowledgedBy'] or '')}."
    broker_options.print(incident, text)


@with_option_groups
def add_note(
    incident_id: IncidentId,
    note: Annotated[str, typer.Argument(help="Text of the note.")],
    broker_options: BrokerOptions,
    by: Author = None,
) -> None:
    """Add a note to an incident."""
    from penstock.cli.alert_documents import IncidentNoteDocument

    with broker_options.connect() as broker:
        body = {"text": note, "author": by or getpass.getuser()}
        document = broker.post(f"{_path(incident_id)}/notes", IncidentNoteDocument, body)
    broker_options.print(document, "The note is added.")


def _path(incident_id: str) -> str:
    return f"/api/v1/incidents/{quote(incident_id, safe='')}"


def _incident_listing(documents: list[IncidentDocument]) -> RenderableType:
    if not documents:
        return "There are no incidents."
    listing = Listing(
        *("Id", "State", "Severity", "Opened", "Rule", "Queues", "Cause"), folding=("Queues", "Cause")
    )
    for incident in documents:
        colour = _STATE_COLOURS[incident["state"]]
        listing.add_row(
            incident["id"],
            f"[{colour}]{_state(incident)}[/{colour}]",
            incident["severity"],
            _time(incident["openedAt"]),
            escape(incident["rule"] or ""),
            escape(_queues_text(incident)),
            escape(incident["cause"]["summary"]) if incident["cause"] else "",
        )
    return listing


def _state(incident: IncidentDocument) -> str:
    if incident["silenced"]:
        return f"{incident['state']}, silenced"
    return f"{incident['state']}, inhibited" if incident["inhibitedBy"] else incident["state"]


def _queues_text(incident: IncidentDocument) -> str:
    names = [queue["queue"] or "(environment)" for queue in incident["queues"]]
    more = incident["queueCount"] - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def _incident_details(incident: IncidentDetailsDocument) -> RenderableType:
    acknowledged_at, resolved_at = incident["acknowledgedAt"], incident["resolvedAt"]
    values = [
        ("State", _state(incident)),
        ("Rule", f"{incident['rule']} ({incident['ruleType']}, {incident['severity']})"),
        ("Opened", _time(incident["openedAt"])),
        (
            "Acknowledged",
            f"{_time(acknowledged_at)} by {incident['acknowledgedBy']}" if acknowledged_at else "",
        ),
        ("Resolved", f"{_time(resolved_at)}: {incident['resolution']}" if resolved_at else ""),
        ("Inhibited by", incident["inhibitedBy"] or ""),
        ("Cause", incident["cause"]["summary"] if incident["cause"] else ""),
    ]
    blocks: list[RenderableType] = [
        details(f"Incident {incident['id']}", [pair for pair in values if pair[1]], folding=("Cause",))
    ]
    queues = Listing("Queue", "Fired", "Resolved", "Why", folding=("Why",))
    for queue in incident["queues"]:
        queues.add_row(
            Text(queue["queue"] or "(environment)"),
            _time(queue["firedAt"]),
            _time(queue["resolvedAt"]) or "–",
            Text(queue["summary"]),
        )
    more = incident["queueCount"] - len(incident["queues"])
    blocks += ["", queues, *([f"and {more:,} more queues"] if more > 0 else [])]
    if incident["cause"] and incident["cause"]["excluded"]:
        excluded = Listing("Excluded cause", "Why", folding=("Why",))
        for check in incident["cause"]["excluded"]:
            excluded.add_row(Text(check["kind"]), Text(check["reason"]))
        blocks += ["", excluded]
    if incident["notices"]:
        notices = Listing("Notice", "Channel", "State", "Written")
        for notice in reversed(incident["notices"]):
            notices.add_row(
                notice["transition"], Text(notice["channel"]), notice["state"], _time(notice["createdAt"])
            )
        blocks += ["", notices]
    if incident["notes"]:
        notes = Listing("Note", "By", "At", folding=("Note",))
        for note in incident["notes"]:
            notes.add_row(Text(note["text"]), Text(note["author"]), _time(note["at"]))
        blocks += ["", notes]
    return Group(*blocks)


def _time(timestamp: str | None) -> str:
    return "" if timestamp is None else timestamp[:19].replace("T", " ")
