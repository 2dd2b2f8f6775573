"""`penstock groups …`: list consumer groups with their lag, seek and delete them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.durations import parse_duration_s
from penstock.cli.listing import Listing, details, with_hint
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.queue_arguments import GroupName, PartitionName, QueueFilter, QueueName, to_group_label
from penstock.cli.tables import format_duration
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import JsonObject

groups = typer.Typer(help="List consumer groups with their lag, seek and delete them.", no_args_is_help=True)

GROUPS_PATH = "/api/v1/consumer-groups"
FIRST_MESSAGE_TIME = "1970-01-01T00:00:00Z"
MaxGroups = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Maximum number of rows.")]


@groups.command("ls")
@with_option_groups
@watchable
def list_groups(*, queue: QueueFilter = None, limit: MaxGroups = 100, broker_options: BrokerOptions) -> None:
    """List consumer groups by name and queue, with the messages they have not finished."""
    with broker_options.connect() as broker:
        rows = broker.get_list(GROUPS_PATH, queue=queue, limit=limit)
    broker_options.print({"groups": rows}, _group_listing(rows, limit))


@groups.command("show")
@with_option_groups
@watchable
def show_group(
    *, group: GroupName, queue: QueueFilter = None, limit: MaxGroups = 50, broker_options: BrokerOptions
) -> None:
    """Show a group: its lag in each queue, and its partitions."""
    with broker_options.connect() as broker:
        document = broker.get(_group_path(group), dict, queue=queue, limit=limit)
    parts: list[RenderableType] = []
    for queue_name, position in document.items():
        parts += [_position_details(group, queue_name, position), Text("")]
    broker_options.print(document, Group(*parts[:-1]))


@groups.command("lagging")
@with_option_groups
@watchable
def list_lagging(
    *,
    longer_than: Annotated[
        str, typer.Option(metavar="TIME", help="Minimum age of the oldest unfinished message: 30s, 5m.")
    ] = "1m",
    limit: MaxGroups = 100,
    broker_options: BrokerOptions,
) -> None:
    """List partitions in which a group is behind, the oldest message first."""
    seconds = round(parse_duration_s("--longer-than", longer_than, may_be_zero=True))
    with broker_options.connect() as broker:
        rows = broker.get_list(f"{GROUPS_PATH}/lagging", minLagSeconds=seconds, limit=limit)
    listing = Listing("Group", "Queue", "Partition", "Behind", "Oldest")
    for row in rows:
        listing.add_row(
            escape(to_group_label(str(row["consumer_group"]))),
            escape(str(row["queue_name"])),
            escape(str(row["partition_name"])),
            f"{row['offset_lag']:,}",
            format_duration(float(str(row["time_lag_seconds"]))),
        )
    nothing = Text(f"No group has an unfinished message older than {longer_than}.")
    broker_options.print({"partitions": rows}, listing if rows else nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekOptions:
    """Where a group continues."""

    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="The first message pushed at this time or later."),
    ] = None
    to_start: Annotated[bool, typer.Option("--to-start", help="The first message that is kept.")] = False
    to_end: Annotated[bool, typer.Option("--to-end", help="Past the last message: skip all that wait.")] = (
        False
    )

    def to_body(self) -> JsonObject:
        if (self.to is not None) + self.to_start + self.to_end != 1:
            raise InvalidRequest("Use one of --to, --to-start and --to-end.")
        if self.to_end:
            return {"toEnd": True}
        return {"timestamp": FIRST_MESSAGE_TIME if self.to_start else self.to}


@groups.command("seek")
@with_option_groups
def seek(
    *,
    group: GroupName,
    queue: QueueName,
    seek_options: SeekOptions,
    partition: PartitionName = None,
    yes: SkipConfirmation = False,
    broker_options: BrokerOptions,
) -> None:
    """Move a group in a queue: replay messages or skip them. Held leases end."""
    body = seek_options.to_body()
    path = f"{_group_path(group)}/queues/{quote(queue, safe='')}"
    path += f"/partitions/{quote(partition, safe='')}" if partition is not None else ""
    with broker_options.connect() as broker:
        if not yes:
            label = to_group_label(group)
            typer.confirm(f"Move {label} in {queue}? Its leases end.", abort=True, err=True)
        result = broker.post(f"{path}/seek", dict, body, timeout_s=300)
    text = f"{to_group_label(group)} moved in {queue}"
    if "messagesSkipped" in result:
        skipped, replayed = result["messagesSkipped"], result["messagesReplayed"]
        text += f": {skipped:,} messages skipped, {replayed:,} to be processed again"
    broker_options.print(result, Text(f"{text}."))


@groups.command("rm")
@with_option_groups
def delete(
    *,
    group: GroupName,
    queue: QueueFilter = None,
    yes: SkipConfirmation = False,
    broker_options: BrokerOptions,
) -> None:
    """Delete a group in all queues or in one. Its next pop creates it again, at its start."""
    label = to_group_label(group)
    where = f"in {queue}" if queue else "in all queues"
    with broker_options.connect() as broker:
        if not yes:
            typer.confirm(
                f"Delete the group {label} {where}? It forgets what it finished.", abort=True, err=True
            )
        path = _group_path(group) + (f"/queues/{quote(queue, safe='')}" if queue else "")
        result = broker.delete(path, dict)
    broker_options.print(result, Text(f"The group {label} is deleted {where}."))


def _group_path(group: str) -> str:
    return f"{GROUPS_PATH}/{quote(group, safe='')}"


def _group_listing(rows: list[JsonObject], limit: int) -> RenderableType:
    if not rows:
        return Text("There are no consumer groups. The first pop of a group creates it.")
    listing = Listing("Group", "Queue", "State", "Behind", "Leased", "Oldest", "Dead")
    for row in rows:
        age = row["maxTimeLag"]
        dead = f"{row['deadLetter']:,}"
        listing.add_row(
            escape(to_group_label(str(row["name"]))),
            escape(str(row["queueName"])),
            str(row["state"]),
            f"{row['totalLag']:,}",
            f"{row['processing']:,}",
            format_duration(float(str(age))) if age else "–",
            f"[red]{dead}[/red]" if row["deadLetter"] else dead,
        )
    if len(rows) < limit:
        return listing
    return with_hint(listing, f"The first {limit:,} rows. Use --queue or --limit to see others.")


def _position_details(group: str, queue: str, position: JsonObject) -> RenderableType:
    age = position["maxTimeLag"]
    values = [
        ("state", str(position["state"])),
        ("behind", f"{position['totalLag']:,} messages, {position['processing']:,} of them leased"),
        ("oldest", format_duration(float(str(age))) if age else "–"),
        ("dead letters", f"{position['deadLetter']:,}"),
        ("starts at", _describe_start(position)),
    ]
    listing = Listing("Partition", "Behind", "Next offset", "Oldest", "Lease until")
    partitions = position["partitions"]
    assert isinstance(partitions, list)
    for row in partitions:
        listing.add_row(
            escape(str(row["partition"])),
            f"{row['offsetLag']:,}",
            f"{row['nextUnfinishedOffset']:,}",
            format_duration(row["timeLagSeconds"]) if row["timeLagSeconds"] else "–",
            row["leaseExpiresAt"] if row["leaseActive"] else "–",
        )
    heading = details(f"{to_group_label(group)} in {queue}", values, folding=("starts at",))
    return Group(heading, Text(""), listing)


def _describe_start(position: JsonObject) -> str:
    mode, time = position["subscriptionMode"], position["subscriptionTimestamp"]
    starts = {"all": "the first message", "new": "messages pushed after its first pop"}
    return starts.get(str(mode), f"messages pushed since {time}")
