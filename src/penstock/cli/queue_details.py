"""What `penstock queues show` prints of a durable queue or a run queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Listing, details, with_hint
from penstock.cli.queue_arguments import to_group_label
from penstock.cli.tables import format_duration

if TYPE_CHECKING:
    from penstock.cli.queue_kind import ExistingQueue

MAX_PARTITIONS = 20


def queue_details(existing: ExistingQueue) -> RenderableType:
    """Build the values of a queue; a durable queue has its groups and partitions below."""
    state = cast("dict[str, Any]", existing.state)
    return _durable_queue(state) if "partitions" in state else _run_queue(state)


def _run_queue(state: dict[str, Any]) -> RenderableType:
    values = [
        *_common_values("run", state),
        ("delayed", f"{state['delayed']:,}"),
        ("dead", f"{state['dead']:,}"),
        ("limit", "none" if state["concurrency"] is None else f"{state['concurrency']:,} at once"),
        ("oldest", format_duration(state["oldestAgeMs"] / 1000) if state["depth"] else "–"),
    ]
    return details(state["name"], values)


def _durable_queue(state: dict[str, Any]) -> RenderableType:
    totals = state["totals"]
    values = [
        *_common_values("durable", state),
        ("kept", f"{totals['total']:,} messages of {totals['pushed']:,} pushed"),
        ("dead", f"{totals['deadLetter']:,}"),
        ("options", ", ".join(f"{name} {_option_text(value)}" for name, value in state["options"].items())),
    ]
    parts: list[RenderableType] = [details(state["name"], values, folding=("options",)), Text("")]
    parts += [_group_listing(state["consumerGroups"]), Text("")] if state["consumerGroups"] else []
    return Group(*parts, _partition_listing(state))


def _common_values(kind: str, state: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("kind", kind),
        ("state", "paused" if state["paused"] else "active"),
        ("waiting", f"{state['depth']:,}"),
        ("running", f"{state['running']:,}"),
    ]


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _group_listing(groups: list[dict[str, Any]]) -> Listing:
    listing = Listing("Group", "State", "Behind", "Leased", "Oldest", "Dead")
    for group in groups:
        age = group["maxTimeLag"]
        listing.add_row(
            escape(to_group_label(group["name"])),
            group["state"],
            f"{group['totalLag']:,}",
            f"{group['processing']:,}",
            format_duration(age) if age else "–",
            f"{group['deadLetter']:,}",
        )
    return listing


def _partition_listing(state: dict[str, Any]) -> RenderableType:
    listing = Listing("Partition", "Id", "Kept", "Waiting", "Leased", "Last push")
    for partition in state["partitions"][:MAX_PARTITIONS]:
        counts = partition["messages"]
        listing.add_row(
            escape(partition["name"]),
            str(partition["id"]),
            f"{counts['total']:,}",
            f"{counts['pending']:,}",
            f"{counts['processing']:,}",
            (partition["lastPushAt"] or "–")[:19].replace("T", " "),
        )
    count = state["partitionCount"]
    shown = min(len(state["partitions"]), MAX_PARTITIONS)
    return with_hint(listing, f"{shown} of {count:,} partitions.") if count > shown else listing
