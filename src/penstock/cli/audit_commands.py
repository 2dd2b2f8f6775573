"""`penstock audit`: search, show and export the audit log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.cli.durations import parse_duration_s
from penstock.cli.json_difference import describe_difference
from penstock.cli.listing import Details, Listing, with_hint
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import AuditEntryDocument

audit = typer.Typer(help="Who changed what: search and export the audit log.", no_args_is_help=True)

AUDIT_PATH = "/api/v1/audit"
MAX_ENTRIES = 500
EVERY_ENVIRONMENT = "*"
UNKNOWN = "unknown"

AllEnvironments = Annotated[
    bool,
    typer.Option("--all-environments", help="Of all environments; for platform administrators."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Which entries a command selects."""

    denied: Annotated[bool, typer.Option("--denied", help="Only calls that were denied.")] = False
    subject: Annotated[
        str | None, typer.Option(help="Only calls of this token or person: NAME or token:NAME.")
    ] = None
    action: Annotated[
        str | None, typer.Option(help="Only calls with this text in method or path: PUT, run-queues.")
    ] = None
    object_text: Annotated[
        str | None, typer.Option("--object", help="Only calls for an object with this text, such as a queue.")
    ] = None
    since: Annotated[str | None, typer.Option(help="Only the time since then, such as 30m or 1d.")] = None
    request_id: Annotated[str | None, typer.Option(help="Only the call with this X-Request-Id.")] = None
    all_environments: AllEnvironments = False

    def to_parameters(self) -> dict[str, str | int | None]:
        """Return the query parameters of the API."""
        start = None
        if self.since is not None:
            start = _time_before(parse_duration_s("--since", self.since))
        return {
            "denied": "true" if self.denied else None,
            "subject": self.subject,
            "action": self.action,
            "object": self.object_text,
            "from": start,
            "requestId": self.request_id,
            "environment": EVERY_ENVIRONMENT if self.all_environments else None,
        }


@audit.command("ls")
@with_option_groups
@watchable
def list_entries(
    *,
    audit_options: AuditOptions,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, max=MAX_ENTRIES, help="Number of entries.")
    ] = 20,
    broker_options: BrokerOptions,
) -> None:
    """List audit entries, the latest first."""
    from penstock.cli.broker_client import AuditPageDocument

    parameters = audit_options.to_parameters()
    with broker_options.connect() as broker:
        page = broker.get(AUDIT_PATH, AuditPageDocument, **parameters, limit=limit)
    entries = page["entries"]
    output: RenderableType = _entry_listing(entries, audit_options.all_environments)
    if page["nextCursor"]:
        output = with_hint(
            output, f"There are more than {limit} entries: use --since, --limit or `audit export`."
        )
    broker_options.print(entries, output)


@audit.command("show")
@with_option_groups
def show_entry(
    *,
    entry_id: Annotated[int, typer.Argument(metavar="ID", min=1, help="Id of the entry.")],
    all_environments: AllEnvironments = False,
    broker_options: BrokerOptions,
) -> None:
    """Show one entry: who, from where, what, and what changed."""
    from penstock.cli.broker_client import AuditEntryDocument

    environment = EVERY_ENVIRONMENT if all_environments else None
    with broker_options.connect() as broker:
        entry = broker.get(f"{AUDIT_PATH}/{entry_id}", AuditEntryDocument, environment=environment)
    broker_options.print(entry, _entry_details(entry))


@audit.command("export")
@with_option_groups
def export_entries(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="File to write; it must not exist. Default: standard output.")
    ] = None,
    audit_options: AuditOptions,
    broker_options: BrokerOptions,
) -> None:
    """Write all matching entries as JSON lines, the latest first."""
    parameters = audit_options.to_parameters()
    with broker_options.connect() as broker:
        lines = broker.stream_lines(f"{AUDIT_PATH}/export", **parameters)
        with _open_output(file) as output:
            entries = _write_lines(lines, output, shows_progress=file is not None)
    if file is not None:
        print(f"Wrote {entries:,} {'entry' if entries == 1 else 'entries'} to {file}.")


@contextmanager
def _open_output(file: Path | None) -> Iterator[BinaryIO]:
    """Open the file for entries. It is private, and removed again if the export fails."""
    if file is None:
        yield sys.stdout.buffer
        return
    try:
        file.touch(0o600, exist_ok=False)
        output = file.open("wb")
    except FileExistsError:
        raise InvalidRequest(f"{file} exists. Choose another name, or remove it.") from None
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error.strerror}.") from None
    try:
        with output:
            yield output
    except BaseException:
        file.unlink()
        raise


def _write_lines(lines: Iterable[bytes], output: BinaryIO, shows_progress: bool) -> int:
    """Write the lines and return their number; on a terminal, show it meanwhile."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("Exporting"), TextColumn("{task.completed:,} entries"), TimeElapsedColumn())
    entries = 0
    with Progress(*columns, console=console, transient=True, disable=not shows_progress) as progress:
        task = progress.add_task("export", total=None)
        for line in lines:
            output.write(line + b"\n")
            entries += 1
            progress.update(task, completed=entries)
    return entries


def _entry_listing(entries: list[AuditEntryDocument], has_environments: bool) -> RenderableType:
    if not entries:
        return "There are no such entries."
    environment = ("Environment",) if has_environments else ()
    listing = Listing("Id", "Time (UTC)", "Who", "Status", "Call", *environment, folding=("Who", "Call"))
    for entry in entries:
        style = "red" if entry["denied"] else "yellow" if entry["status"] >= 400 else ""
        listing.add_row(
            entry["id"],
            entry["at"][:19].replace("T", " "),
            Text(_caller_text(entry)),
            Text(str(entry["status"]), style=style),
            Text(_describe_call(entry)),
            *(Text(entry["environment"] or "–") for _ in environment),
        )
    return listing


def _entry_details(entry: AuditEntryDocument) -> RenderableType:
    values = [
        ("time", f"{entry['at'][:23].replace('T', ' ')} UTC"),
        ("who", _caller_text(entry)),
        ("token", entry["tokenId"] or "–"),
        ("from", entry["address"] or "–"),
        ("environment", entry["environment"] or "–"),
        ("status", f"{entry['status']}{', denied' if entry['denied'] else ''}"),
        ("object", ", ".join(f"{name} {_short(value)}" for name, value in entry["object"].items()) or "–"),
        ("request id", entry["requestId"]),
    ]
    folding = ("object",)
    rows = [(label, Text(value), label in folding) for label, value in values]
    summary = Details(Text(f"{entry['id']}: {entry['action']}"), rows)
    return Group(summary, Text(""), *describe_difference(entry["before"], entry["after"]))


def _caller_text(entry: AuditEntryDocument) -> str:
    return entry["subject"] or f"{UNKNOWN}, {entry['address']}"


def _describe_call(entry: AuditEntryDocument) -> str:
    """Return the call with the names of its object in place of the parameters."""
    call = entry["action"].replace("/api/v1", "")
    others = []
    for name, value in entry["object"].items():
        placeholder = f"{{{name}}}"
        if placeholder in call:
            call = call.replace(placeholder, _short(value))
        else:
            others.append(f"{name}={_short(value)}")
    return " ".join([call, *others])


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time_before(seconds: float) -> str:
    try:
        return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        raise InvalidRequest("--since is too long ago. Leave it out for all entries.") from None
