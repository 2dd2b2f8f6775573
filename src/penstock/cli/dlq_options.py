"""Options of `penstock dlq`: the dead letters to select, and how to run a job on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from penstock.cli.options import SkipConfirmation
from penstock.cli.queue_arguments import QueueFilter, to_group_name
from penstock.cli.queue_completion import complete_error_group, complete_group
from penstock.model import QUEUE_MODE_LABEL
from penstock.validation_text import TIME_RULE

MAX_TEXT_LENGTH = 255
MAX_YEAR = 9998


def check_time(text: str | None) -> str | None:
    """Return the time. Raises BadParameter unless it is in ISO 8601."""
    try:
        if text is not None and not 1970 <= datetime.fromisoformat(text).year <= MAX_YEAR:
            raise typer.BadParameter(f"the year of {text!r} is not in 1970 to {MAX_YEAR}.")
    except ValueError:
        raise typer.BadParameter(f"{TIME_RULE}, not {text!r}.") from None
    return text


def _check_error_group(text: str | None) -> str | None:
    try:
        return text if text is None else str(UUID(text))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not an error group. `penstock dlq groups` shows the error groups."
        ) from None


def _check_text(text: str | None) -> str | None:
    if text is not None and not 1 <= len(text) <= MAX_TEXT_LENGTH:
        raise typer.BadParameter(f"the text must have 1 to {MAX_TEXT_LENGTH} characters.")
    return text


QueueOption = QueueFilter
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help=f"Only this consumer group; '{QUEUE_MODE_LABEL}': consumers that name no group.",
        callback=to_group_name,
        autocompletion=complete_group,
    ),
]
PartitionOption = Annotated[str | None, typer.Option(help="Only this partition.")]
StartOption = Annotated[
    str | None,
    typer.Option("--from", help="Only dead letters from this time on (ISO 8601, UTC).", callback=check_time),
]
EndOption = Annotated[
    str | None,
    typer.Option("--to", help="Only dead letters before this time (ISO 8601, UTC).", callback=check_time),
]
ErrorOption = Annotated[
    str | None, typer.Option(help="Only dead letters with this text in the error.", callback=_check_text)
]
ErrorGroupOption = Annotated[
    str | None,
    typer.Option(
        help="Only dead letters of this error group; `dlq groups` lists them.",
        callback=_check_error_group,
        autocompletion=complete_error_group,
    ),
]
PayloadOption = Annotated[
    str | None, typer.Option(help="Only dead letters with this text in the payload.", callback=_check_text)
]
All = Annotated[bool, typer.Option("--all", help="All dead letters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show how many dead letters match; change nothing.")]
Rate = Annotated[int | None, typer.Option(min=1, max=100_000, help="Maximum dead letters per second.")]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000,
        help="Requeue so many first, and the rest if all of them are acked. Of `dlq requeue` only.",
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Start the job and do not wait for its end.")]
MaxRows = Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="Maximum number of rows.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The dead letters that a command is about."""

    queue: QueueOption = None
    group: GroupOption = None
    partition: PartitionOption = None
    start: StartOption = None
    end: EndOption = None
    error: ErrorOption = None
    error_group: ErrorGroupOption = None
    payload: PayloadOption = None

    def to_json(self) -> dict[str, str]:
        """Return the options that are set, with the names that the broker's routes use."""
        fields = {
            "queue": self.queue,
            "consumerGroup": self.group,
            "partition": self.partition,
            "from": self.start,
            "to": self.end,
            "error": self.error,
            "errorGroup": self.error_group,
            "payload": self.payload,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How to run a job."""

    select_all: All = False
    rate: Rate = None
    sample: Sample = None
    dry_run: DryRun = False
    yes: SkipConfirmation = False
    detach: Detach = False

    def to_json(self) -> dict[str, int]:
        """Return the options that are set, with the names that the broker's routes use."""
        fields = {"ratePerSecond": self.rate, "sample": self.sample}
        return {name: value for name, value in fields.items() if value is not None}
