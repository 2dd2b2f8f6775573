"""`penstock alerts silences`: times without notices."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import RenderableType
from rich.text import Text

from penstock.cli.alert_incident_commands import IncidentSeverity
from penstock.cli.durations import parse_duration_s
from penstock.cli.listing import Listing
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.alert_documents import SilenceDocument

SILENCES_PATH = "/api/v1/alert-silences"

silences = typer.Typer(help="List, add and remove times without notices.", no_args_is_help=True)

_STATE_COLOURS = {"active": "yellow", "scheduled": "cyan", "ended": "dim"}


@silences.command("ls")
@with_option_groups
@watchable
def list_silences(
    *,
    include_ended: Annotated[bool, typer.Option("--all", help="Also silences that ended.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="Number of silences.")] = 100,
    broker_options: BrokerOptions,
) -> None:
    """List silences that apply now or later, the latest first."""
    from penstock.cli.alert_documents import SilencePageDocument

    with broker_options.connect() as broker:
        page = broker.get(SILENCES_PATH, SilencePageDocument, limit=limit)
    documents = [silence for silence in page["silences"] if include_ended or silence["state"] != "ended"]
    broker_options.print(documents, _silence_listing(documents))


@silences.command("add", hidden=True)  # the name until 0.1
@silences.command("create")
@with_option_groups
def add_silence(
    *,
    queue: Annotated[str | None, typer.Option(help="A queue, or a pattern with * and ?.")] = None,
    rule: Annotated[str | None, typer.Option(help="Name of a rule.")] = None,
    severity: Annotated[IncidentSeverity | None, typer.Option(help="Only rules of this severity.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Only rules with this label, as NAME=VALUE; repeat it for more.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="It ends after this time, such as 30m, 2h or 7d.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            help="Only at these times: 'mon-fri 22:00-06:00', 'sat,sun 00:00-00:00', 'daily 02:00-03:00'."
        ),
    ] = None,
    zone: Annotated[str, typer.Option(help="Time zone of --every, such as Europe/Berlin.")] = "UTC",
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    broker_options: BrokerOptions,
) -> None:
    """Add a silence. Without --for it lasts until it is removed; without a scope it is for everything."""
    from penstock.cli.alert_documents import SilenceDocument

    fields = {
        "queue": queue,
        "rule": rule,
        "severity": severity.value if severity else None,
        "labels": _parse_labels(label or []),
        "endsAt": _end_after(duration) if duration else None,
        "recurrence": _parse_recurrence(every, zone) if every else None,
        "comment": comment,
        "createdBy": getpass.getuser(),
    }
    body = {field: value for field, value in fields.items() if value}
    with broker_options.connect() as broker:
        silence = broker.post(SILENCES_PATH, SilenceDocument, body)
    broker_options.print(
        silence, Text(f"Silence {silence['id']}: {_scope_text(silence)}, {_time_text(silence)}.")
    )


@silences.command("rm")
@with_option_groups
def remove_silence(
    silence_id: Annotated[str, typer.Argument(help="Id of the silence.")], broker_options: BrokerOptions
) -> None:
    """Remove a silence. Queues that still fire are notified at once."""
    from penstock.cli.alert_documents import SilenceDocument

    with broker_options.connect() as broker:
        document = broker.delete(f"{SILENCES_PATH}/{quote(silence_id, safe='')}", SilenceDocument)
    broker_options.print(document, Text(f"Silence {silence_id} is removed."))


def _parse_labels(labels: list[str]) -> dict[str, str]:
    pairs = [label.partition("=") for label in labels]
    for name, separator, _ in pairs:
        if not (name and separator):
            raise InvalidRequest(f"The label {name!r} has no value. Use --label NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _end_after(duration: str) -> str:
    seconds = parse_duration_s("--for", duration)
    try:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    except OverflowError:
        raise InvalidRequest(f"--for {duration!r} is too long. Leave it out for no end.") from None


def _parse_recurrence(every: str, zone: str) -> object:
    import msgspec

    from penstock.alerts.incidents.recurrence import parse_every

    try:
        return msgspec.to_builtins(parse_every(every, zone))
    except ValueError as error:
        raise InvalidRequest(f"--every {every!r} is not valid: {error}.") from None


def _silence_listing(documents: list[SilenceDocument]) -> RenderableType:
    if not documents:
        return "There are no silences."
    listing = Listing(
        "Id", "State", "Silences", "When", "By", "Comment", folding=("Silences", "When", "Comment")
    )
    for silence in documents:
        colour = _STATE_COLOURS[silence["state"]]
        listing.add_row(
            silence["id"],
            f"[{colour}]{silence['state']}[/{colour}]",
            Text(_scope_text(silence)),
            Text(_time_text(silence)),
            Text(silence["createdBy"]),
            Text(silence["comment"]),
        )
    return listing


def _scope_text(silence: SilenceDocument) -> str:
    parts = [f"{name} {silence[name]}" for name in ("queue", "rule", "severity") if silence[name]]
    parts += [f"{name}={value}" for name, value in silence["labels"].items()]
    return ", ".join(parts) or "everything"


def _time_text(silence: SilenceDocument) -> str:
    parts = []
    if recurrence := silence["recurrence"]:
        days = recurrence["days"]
        assert isinstance(days, list)
        parts.append(f"{','.join(days)} {recurrence['from']}-{recurrence['to']} {recurrence['timeZone']}")
    for word, moment in (("from", silence["startsAt"]), ("until", silence["endsAt"])):
        if moment:
            parts.append(f"{word} {moment[:19].replace('T', ' ')} UTC")
    return ", ".join(parts) or "until it is removed"
