"""`penstock pop`: take messages of a durable queue or tasks of a run queue, and show them."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.ack_command import ack_receipts
from penstock.cli.durations import parse_duration_s
from penstock.cli.exit_codes import ExitCode
from penstock.cli.listing import Details, with_hint
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.queue_arguments import GroupOfConsumer, PartitionName, QueueName
from penstock.cli.queue_kind import KindOption, QueueKind, find_queue
from penstock.cli.receipts import format_message_receipt, format_task_receipt
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, JsonObject

MAX_WAIT_S = 300.0
RESPONSE_MARGIN_S = 10.0
"""How long after the end of the wait the response may take."""


@with_option_groups
def pop(
    *,
    queue: QueueName,
    group: GroupOfConsumer = None,
    batch: Annotated[
        int, typer.Option("--batch", "-n", min=1, max=1_000, help="Maximum number of messages or tasks.")
    ] = 1,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait up to this time for the first one: 30s, 5m.")
    ] = None,
    partition: PartitionName = None,
    ack: Annotated[bool, typer.Option("--ack", help="Ack them as completed at once.")] = False,
    kind: KindOption = None,
    broker_options: BrokerOptions,
) -> None:
    """Pop messages, or dequeue tasks of a run queue. Exit code 1 if there are none.

    A popped message is leased: other consumers of the group do not get it until the lease ends. Ack it with
    its receipt.
    """
    wait_s = 0.0 if wait is None else parse_duration_s("--wait", wait)
    if wait_s > MAX_WAIT_S:
        raise InvalidRequest("--wait is longer than 5 minutes. Use at most 5m, and pop again.")
    with broker_options.connect() as broker:
        existing = find_queue(broker, queue, kind)
        if existing.kind == QueueKind.RUN:
            if group is not None or partition is not None:
                raise InvalidRequest(f"{queue!r} is a run queue: it has no groups and no partitions.")
            messages = _dequeue(broker, existing.path, batch, wait_s)
        else:
            messages = _pop_messages(
                broker, existing.path.rpartition("/")[2], group, batch, wait_s, partition
            )
        if ack and messages:
            ack_receipts(broker, [str(message["receipt"]) for message in messages])
    document = {"queue": queue, "kind": existing.kind, "acked": ack, "messages": messages}
    broker_options.print(document, _describe(queue, messages, is_acked=ack))
    if not messages:
        raise typer.Exit(ExitCode.NEGATIVE)


def _pop_messages(
    broker: BrokerClient, queue: str, group: str | None, batch: int, wait_s: float, partition: str | None
) -> list[JsonObject]:
    from urllib.parse import quote

    path = f"/api/v1/pop/queue/{queue}"
    path += f"/partition/{quote(partition, safe='')}" if partition is not None else ""
    parameters: dict[str, str | int | None] = {"consumerGroup": group, "batch": batch, "partitions": batch}
    if wait_s:
        parameters |= {"wait": "true", "timeout": round(wait_s * 1000)}
    body = broker.get_waiting(path, wait_s + RESPONSE_MARGIN_S, **parameters)
    messages = cast("list[JsonObject]", body.get("messages", []))
    return [{**message, "receipt": format_message_receipt(message)} for message in messages]


def _dequeue(broker: BrokerClient, path: str, batch: int, wait_s: float) -> list[JsonObject]:
    worker = f"{socket.gethostname()}:{os.getpid()}"
    fields: JsonObject = {"limit": batch, "waitMs": round(wait_s * 1000), "worker": worker}
    body = broker.post(f"{path}/dequeue", dict, fields, timeout_s=wait_s + RESPONSE_MARGIN_S)
    return [{**task, "receipt": format_task_receipt(task)} for task in body["tasks"]]


def _describe(queue: str, messages: list[JsonObject], *, is_acked: bool) -> RenderableType:
    if not messages:
        return Text(f"{queue} has no message that can be taken now. --wait waits for one.")
    blocks: list[RenderableType] = []
    for message in messages:
        blocks += [_message_details(message, is_acked), Text("")]
    shown = Group(*blocks[:-1])
    if is_acked:
        noun = "1 message is" if len(messages) == 1 else f"{len(messages):,} messages are"
        return with_hint(shown, f"{noun} acked.")
    return with_hint(shown, "`penstock ack RECEIPT` finishes a message, --failed reports a failed attempt.")


def _message_details(message: JsonObject, is_acked: bool) -> Details:
    is_task = "token" in message
    payload = message["payload"] if is_task else message["data"]
    attempt = message["attempt"] if is_task else int(str(message["retryCount"])) + 1
    rows = [
        ("payload", json.dumps(payload, ensure_ascii=False), True),
        ("partition", "" if is_task else str(message["partition"]), False),
        ("pushed", str(message["enqueuedAt"] if is_task else message["createdAt"]), False),
        ("attempt", str(attempt), False),
        ("lease until", str(message.get("heldUntil") or ""), False),
        ("receipt", "" if is_acked else str(message["receipt"]), False),
    ]
    title = Text(str(message["id"] if is_task else message["transactionId"]))
    return Details(title, [(label, Text(value), folds) for label, value, folds in rows if value])
