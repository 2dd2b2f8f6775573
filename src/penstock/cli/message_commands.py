"""`penstock messages …`: look at the messages of durable queues, and delete one."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Details, Listing, with_hint
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.queue_arguments import GroupOfConsumer, PartitionName, QueueFilter, to_group_label
from penstock.cli.queue_kind import QueueKind, find_queue
from penstock.cli.watch import watchable

if TYPE_CHECKING:
    from penstock.cli.broker_client import JsonObject

messages = typer.Typer(help="Look at messages of durable queues, and delete one.", no_args_is_help=True)

MESSAGES_PATH = "/api/v1/messages"
STATE_COLOURS = {"pending": "yellow", "processing": "cyan", "completed": "green", "dead_letter": "red"}


class MessageFilterState(StrEnum):
    """State of a message for a consumer group."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    DEAD_LETTER = "dead_letter"


PartitionId = Annotated[str, typer.Argument(help="Id of the partition, as `messages ls` shows it.")]
TransactionId = Annotated[str, typer.Argument(help="Transaction id of the message.")]


@messages.command("ls")
@with_option_groups
@watchable
def list_messages(
    *,
    queue: QueueFilter = None,
    partition: PartitionName = None,
    group: GroupOfConsumer = None,
    state: Annotated[MessageFilterState | None, typer.Option(help="Only messages in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Number of messages.")] = 20,
    broker_options: BrokerOptions,
) -> None:
    """List messages, the newest of each partition first, with their state for a group."""
    with broker_options.connect() as broker:
        if queue is not None:
            find_queue(broker, queue, QueueKind.DURABLE)
        page = broker.get(
            MESSAGES_PATH,
            dict,
            queue=queue,
            partition=partition,
            consumerGroup=group,
            status=state.value if state else None,
            limit=limit,
        )
    broker_options.print(page, message_listing(page["messages"], page["total"]))


@messages.command("show")
@with_option_groups
@watchable
def show_message(
    *, partition_id: PartitionId, transaction_id: TransactionId, broker_options: BrokerOptions
) -> None:
    """Show one message: payload, its state for each consumer group, and its life."""
    path = _message_path(partition_id, transaction_id).replace(MESSAGES_PATH, f"{MESSAGES_PATH}/life", 1)
    with broker_options.connect() as broker:
        message = broker.get(path, dict)
    broker_options.print(message, _message_details(message))


@messages.command("rm")
@with_option_groups
def delete(
    *,
    partition_id: PartitionId,
    transaction_id: TransactionId,
    yes: SkipConfirmation = False,
    broker_options: BrokerOptions,
) -> None:
    """Delete one message for good: its payload is overwritten, and no group gets it any more."""
    with broker_options.connect() as broker:
        if not yes:
            typer.confirm(f"Delete the message {transaction_id} for good?", abort=True, err=True)
        result = broker.delete(_message_path(partition_id, transaction_id), dict)
    broker_options.print(result, Text(f"The message {transaction_id} is deleted."))


def _message_path(partition_id: str, transaction_id: str) -> str:
    return f"{MESSAGES_PATH}/{quote(partition_id, safe='')}/{quote(transaction_id, safe='')}"


def _state_text(state: object) -> Text:
    return Text(str(state).replace("_", " "), style=STATE_COLOURS.get(str(state), ""))


def message_listing(rows: list[JsonObject], total: int | None) -> RenderableType:
    if not rows:
        return Text("There are no such messages.")
    columns = ("Message", "Partition id", "Queue", "Partition", "Offset", "State", "Pushed", "Payload")
    listing = Listing(*columns, folding=("Payload",))
    for row in rows:
        listing.add_row(
            escape(str(row["transactionId"])),
            str(row["partitionId"]),
            escape(str(row["queue"])),
            escape(str(row["partition"])),
            "–" if row.get("offset") is None else f"{row['offset']:,}",
            _state_text(row["status"]),
            str(row["createdAt"])[:19].replace("T", " "),
            Text(_payload_text(row)),
        )
    if total is None or total <= len(rows):
        return listing
    return with_hint(listing, f"{len(rows):,} of {total:,} messages. Use --limit, --partition or --state.")


def _message_details(message: JsonObject) -> RenderableType:
    rows = [
        ("queue", str(message["queue"]), False),
        ("partition", f"{message['partition']} (id {message['partitionId']})", False),
        ("message id", str(message["id"]), False),
        ("offset", "–" if message.get("offset") is None else f"{message['offset']:,}", False),
        ("pushed", str(message["createdAt"]), False),
        ("trace id", str(message.get("traceId") or "–"), False),
        ("payload", _payload_text(message), True),
    ]
    title = Text(str(message["transactionId"]))
    summary = Details(title, [(label, Text(value), folds) for label, value, folds in rows])
    return Group(summary, *_group_states(message), Text(""), _event_listing(message))


def _group_states(message: JsonObject) -> list[RenderableType]:
    groups = message["consumerGroups"]
    assert isinstance(groups, list)
    if not groups:
        return []
    listing = Listing("Group", "State", "Retries", "Lease until", "Error", folding=("Error",))
    for group in groups:
        listing.add_row(
            escape(to_group_label(group["name"])),
            _state_text(group["status"]),
            f"{group['retryCount']:,}",
            group["leaseExpiresAt"] or "–",
            escape(group["errorMessage"] or ""),
        )
    return [Text(""), listing]


def _event_listing(message: JsonObject) -> RenderableType:
    """List what happened to the message, the oldest first."""
    events = message["events"]
    assert isinstance(events, list)
    listing = Listing("Time (UTC)", "Event", "Group", "Details", folding=("Details",))
    for event in events:
        group = event.get("consumerGroup")
        listing.add_row(
            str(event["at"])[:19].replace("T", " "),
            str(event["event"]).replace("_", " "),
            escape(to_group_label(group)) if group else "–",
            Text(_event_details(event)),
        )
    return listing


def _event_details(event: JsonObject) -> str:
    parts = [str(event["error"])] if event.get("error") else []
    parts += [f"attempt {event['attempts']}"] if event.get("attempts") else []
    parts += [f"leased until {event['leaseExpiresAt']}"] if event.get("leaseExpiresAt") else []
    parts += [f"again as {event['messageId']}"] if event.get("messageId") else []
    parts += [f"first as {event['firstTransactionId']}"] if event.get("firstTransactionId") else []
    parts += [str(event["traceEvent"])] if event.get("traceEvent") else []
    return ", ".join(parts)


def _payload_text(message: JsonObject) -> str:
    """Return the payload as JSON, or why it cannot be shown."""
    if problem := message.get("dataProblem"):
        return str(problem)
    return (
        json.dumps(message.get("data"), ensure_ascii=False) if "data" in message else "– (needs read:payload)"
    )
