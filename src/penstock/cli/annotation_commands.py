"""`penstock annotations …`: mark deploys and other events in the charts of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Listing
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.queue_arguments import QueueFilter
from penstock.cli.watch import watchable

if TYPE_CHECKING:
    from penstock.cli.broker_client import JsonObject

chart_annotations = typer.Typer(help="Mark deploys and other events in the charts.", no_args_is_help=True)

ANNOTATIONS_PATH = "/api/v1/annotations"
Kind = Annotated[str, typer.Option(help="Kind of the event, such as deploy.")]


@chart_annotations.command("create")
@with_option_groups
def create(
    *,
    text: Annotated[str, typer.Argument(help="What happened, such as the version that was deployed.")],
    kind: Kind = "deploy",
    queue: QueueFilter = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="When it happened. Default: now.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Name of the event: a second call with the same name changes nothing.")
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Add an annotation to the charts of a queue, or of all queues."""
    fields = {"kind": kind, "text": text, "queue": queue, "at": at, "key": key}
    body = {name: value for name, value in fields.items() if value is not None}
    with broker_options.connect() as broker:
        annotation = broker.post(ANNOTATIONS_PATH, dict, body)
    charts = f"the charts of {queue}" if queue else "all charts"
    broker_options.print(annotation, Text(f"Annotation {annotation['id']} is in {charts}."))


@chart_annotations.command("ls")
@with_option_groups
@watchable
def list_annotations(
    *,
    queue: QueueFilter = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Default: 24 hours before the end.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Default: now.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000, help="Number of annotations.")
    ] = 50,
    broker_options: BrokerOptions,
) -> None:
    """List annotations and incidents, the latest first: of a queue, or of all."""
    parameters = {"queue": queue, "kind": kind, "from": start, "to": end, "limit": limit}
    with broker_options.connect() as broker:
        page = broker.get(ANNOTATIONS_PATH, dict, **parameters)
    broker_options.print(page["annotations"], _annotation_listing(page["annotations"]))


@chart_annotations.command("rm")
@with_option_groups
def delete(
    *,
    annotation_id: Annotated[str, typer.Argument(help="Id of the annotation, as `annotations ls` shows it.")],
    broker_options: BrokerOptions,
) -> None:
    """Remove an annotation from the charts."""
    with broker_options.connect() as broker:
        result = broker.delete(f"{ANNOTATIONS_PATH}/{annotation_id}", dict)
    broker_options.print(result, Text(f"Annotation {annotation_id} is removed."))


def _annotation_listing(rows: list[JsonObject]) -> RenderableType:
    if not rows:
        return Text("There are no annotations in this time.")
    listing = Listing("Id", "Time (UTC)", "Kind", "Queue", "Text", "By", folding=("Text",))
    for row in rows:
        listing.add_row(
            str(row["id"]),
            str(row["at"])[:19].replace("T", " "),
            escape(str(row["kind"])),
            escape(str(row["queue"] or "all")),
            escape(str(row["text"] or "")),
            escape(str(row.get("subject") or "–")),
        )
    return listing
