"""`penstock ops …`: deferred operations, the load of the broker, its journal, and the vacuum horizon."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.durations import parse_duration_s
from penstock.cli.listing import Listing, details, with_hint
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.queue_arguments import QueueFilter
from penstock.cli.tables import format_duration, format_journal
from penstock.cli.watch import watchable

if TYPE_CHECKING:
    from penstock.cli.broker_client import JsonObject

operations = typer.Typer(
    help="Deferred pushes and acks, the load of the broker, its journal, the vacuum horizon.",
    no_args_is_help=True,
)

OPERATIONS_PATH = "/api/v1/operations"
STATE_COLOURS = {
    "pending": "yellow",
    "completed": "green",
    "failed": "red",
    "calm": "green",
    "busy": "yellow",
}


class OperationState(StrEnum):
    """States of a deferred operation."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


OperationId = Annotated[UUID, typer.Argument(help="Id of the operation, as `ops ls` and `push` show it.")]


@operations.command("ls")
@with_option_groups
@watchable
def list_operations(
    *,
    state: Annotated[OperationState | None, typer.Option(help="Only operations in this state.")] = None,
    queue: QueueFilter = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Number of operations.")] = 20,
    broker_options: BrokerOptions,
) -> None:
    """List deferred pushes and acks, the oldest first. Completed ones are kept for an hour."""
    with broker_options.connect() as broker:
        page = broker.get(
            OPERATIONS_PATH, dict, status=state.value if state else None, queue=queue, limit=limit
        )
    rows: list[JsonObject] = page["operations"]
    output = _operation_listing(rows)
    if page["next"]:
        output = with_hint(output, f"The oldest {limit:,} operations. Use --state, --queue or --limit.")
    broker_options.print(rows, output)


@operations.command("show")
@with_option_groups
@watchable
def show_operation(*, operation_id: OperationId, broker_options: BrokerOptions) -> None:
    """Show a deferred operation: its place in the lane, or its result."""
    with broker_options.connect() as broker:
        operation = broker.get(f"{OPERATIONS_PATH}/{operation_id}", dict)
    wait = operation["estimatedWait"]
    values = [
        ("state", operation["status"]),
        ("deferred because", str(operation["reason"]).replace("_", " ")),
        ("queue", operation["queue"]),
        ("partition", operation["partition"]),
        ("items", f"{operation['items']:,}"),
        ("accepted", operation["createdAt"]),
        ("finished", operation["finishedAt"] or "–"),
        ("attempts", str(operation["attempts"])),
        ("place in the lane", str(operation["queuePosition"] or "–")),
        ("expected wait", "–" if wait is None else format_duration(wait)),
        ("error", operation["error"] or "–"),
    ]
    title = f"{operation['type']} {operation['operationId']}"
    broker_options.print(operation, details(title, values, folding=("error",)))


@operations.command("retry")
@with_option_groups
def retry_operation(*, operation_id: OperationId, broker_options: BrokerOptions) -> None:
    """Retry a failed operation, before all others of its lane."""
    with broker_options.connect() as broker:
        result = broker.post(f"{OPERATIONS_PATH}/{operation_id}/retry", dict)
    broker_options.print(result, Text(f"Operation {operation_id} is retried."))


@operations.command("cancel")
@with_option_groups
def cancel_operation(
    *, operation_id: OperationId, yes: SkipConfirmation = False, broker_options: BrokerOptions
) -> None:
    """Delete an operation that is pending or failed: it is never executed, and its messages are lost."""
    with broker_options.connect() as broker:
        if not yes:
            operation = broker.get(f"{OPERATIONS_PATH}/{operation_id}", dict)
            question = (
                f"Drop this {operation['type']} of {operation['items']:,} items to {operation['queue']}?"
            )
            typer.confirm(question, abort=True, err=True)
        result = broker.delete(f"{OPERATIONS_PATH}/{operation_id}", dict)
    broker_options.print(result, Text(f"Operation {operation_id} is deleted."))


@operations.command("lanes")
@with_option_groups
@watchable
def list_lanes(
    *,
    queue: QueueFilter = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Number of lanes.")] = 20,
    broker_options: BrokerOptions,
) -> None:
    """List the lanes of partitions with deferred operations, the most urgent first."""
    with broker_options.connect() as broker:
        page = broker.get(f"{OPERATIONS_PATH}/lanes", dict, queue=queue, limit=limit)
    broker_options.print(page, _lane_listing(page["lanes"]))


@operations.command("load")
@with_option_groups
@watchable
def show_load(*, broker_options: BrokerOptions) -> None:
    """Show what the broker does with new requests: execute, defer or refuse, and why."""
    with broker_options.connect() as broker:
        statistics = broker.get(f"{OPERATIONS_PATH}/stats", dict)
    broker_options.print(statistics, _load_output(statistics))


@operations.command("journal")
@with_option_groups
@watchable
def show_journal(*, broker_options: BrokerOptions) -> None:
    """Show the pushes that wait on the broker's disk until PostgreSQL is reachable again."""
    with broker_options.connect() as broker:
        journal = broker.get(f"{OPERATIONS_PATH}/stats", dict)["journal"]
    broker_options.print({"journal": journal}, _journal_text(journal))


@operations.command("horizon")
@with_option_groups
@watchable
def show_horizon(
    *,
    longer_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only holders for at least this time: 30s, 10m.")
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """List what keeps PostgreSQL from vacuuming: open transactions, replication slots, standbys."""
    seconds = None
    if longer_than is not None:
        seconds = round(parse_duration_s("--longer-than", longer_than, may_be_zero=True))
    with broker_options.connect() as broker:
        document = broker.get("/api/v1/status/horizon", dict, longerThan=seconds)
    broker_options.print(document, _horizon_output(document))


def _operation_listing(rows: list[JsonObject]) -> RenderableType:
    if not rows:
        return Text("There are no deferred operations: the broker executes requests at once.")
    listing = Listing(
        "Operation", "Kind", "State", "Queue", "Partition", "Items", "Error", folding=("Error",)
    )
    for row in rows:
        state = str(row["status"])
        listing.add_row(
            str(row["operationId"]),
            str(row["type"]),
            Text(state, style=STATE_COLOURS[state]),
            escape(str(row["queue"])),
            escape(str(row["partition"])),
            f"{row['items']:,}",
            escape(str(row["error"] or "")),
        )
    return listing


def _lane_listing(lanes: list[JsonObject]) -> RenderableType:
    if not lanes:
        return Text("No lane has waiting operations.")
    listing = Listing(
        "Queue", "Partition", "Kind", "Waiting", "State", "First operation", "Error", folding=("Error",)
    )
    for lane in lanes:
        first = lane["first"]
        assert isinstance(first, dict)
        listing.add_row(
            escape(str(lane["queue"])),
            escape(str(lane["partition"])),
            str(lane["type"]),
            f"{lane['operations']:,}",
            Text("blocked", style="red") if lane["blocked"] else Text("drains", style="green"),
            str(first["operationId"]),
            escape(str(first["error"] or "")),
        )
    return with_hint(listing, "`penstock ops retry` or `cancel` of the first operation opens a lane.")


def _load_output(statistics: JsonObject) -> RenderableType:
    load = statistics["load"]
    assert isinstance(load, dict)
    connections = load["connections"]
    listing = Listing(
        "Request", "State", "Load", "Busy from", "Waiting", "Drained/s", "Decisions", folding=("Decisions",)
    )
    for kind, state in load["operations"].items():
        decisions = ", ".join(f"{count:,} {name}" for name, count in state["decisions"].items() if count)
        listing.add_row(
            kind,
            Text(state["state"], style=STATE_COLOURS.get(state["state"], "red")),
            f"{state['load']:.2f}",
            "–" if state["threshold"] is None else f"{state['threshold']:g}",
            f"{state['waiting']:,}",
            f"{state['drainedPerSecond']:,.1f}",
            decisions or "–",
        )
    values = [
        ("load management", "on" if load["enabled"] else "off"),
        (
            "connections",
            f"{connections['busy']} of {connections['limit']} busy, {connections['waiters']} requests wait",
        ),
        ("database", f"{load['databaseMs']:.1f} ms per call"),
        ("event loop", f"{load['eventLoopLateMs']:.1f} ms late"),
    ]
    journal = _journal_text(statistics["journal"])
    return Group(details("Load of the process that responded", values), Text(""), listing, Text(""), journal)


def _journal_text(journal: object) -> Text:
    from penstock.broker.journal.push_journal import JournalDepth  # slow to import

    if not isinstance(journal, dict):
        return Text("This broker has no journal.", style="dim")
    return format_journal(JournalDepth(journal["records"], journal["bytes"], journal["oldestAgeSeconds"]))


def _horizon_output(document: JsonObject) -> RenderableType:
    holders = document["holders"]
    assert isinstance(holders, list)
    if not holders:
        shortest = format_duration(float(str(document["longerThan"])))
        return Text(f"Nothing has held the vacuum horizon for {shortest} or longer.")
    listing = Listing("Holder", "Held for", "User", "Application", "What to do", folding=("What to do",))
    for holder in holders:
        listing.add_row(
            escape(f"{holder['kind']} {holder['name']}"),
            format_duration(holder["ageSeconds"]),
            escape(holder["user"] or "–"),
            escape(holder["application"] or "–"),
            escape(holder["advice"]),
        )
    return listing
