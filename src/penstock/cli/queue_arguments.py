"""Arguments and options that name a queue, a partition or a consumer group."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.queue_completion import complete_group, complete_queue
from penstock.model import QUEUE_MODE, QUEUE_MODE_LABEL


def to_group_name(label: str | None) -> str | None:
    """Return the name of a consumer group that a table shows: queue mode has another name in the broker."""
    return QUEUE_MODE if label == QUEUE_MODE_LABEL else label


def to_group_label(name: str) -> str:
    """Return the name of a consumer group for people."""
    return QUEUE_MODE_LABEL if name == QUEUE_MODE else name


QueueName = Annotated[str, typer.Argument(help="Name of the queue.", autocompletion=complete_queue)]
QueueFilter = Annotated[
    str | None, typer.Option("--queue", "-q", help="Only this queue.", autocompletion=complete_queue)
]
GroupName = Annotated[
    str,
    typer.Argument(
        help=f"Name of the consumer group; '{QUEUE_MODE_LABEL}': consumers that name no group.",
        callback=to_group_name,
        autocompletion=complete_group,
    ),
]
GroupOfConsumer = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help=f"Consumer group. Default: {QUEUE_MODE_LABEL}, the group of consumers that name none.",
        callback=to_group_name,
        autocompletion=complete_group,
    ),
]
PartitionName = Annotated[str | None, typer.Option("--partition", "-p", help="Partition of the queue.")]
