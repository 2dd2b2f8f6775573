"""Options of `penstock dlq`: the dead letters to select, and how to run a job on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from penstock.cli.options import SkipConfirmation

QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="Only this queue.")]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="Only this consumer group.")]
PartitionOption = Annotated[str | None, typer.Option(help="Only this partition.")]
StartOption = Annotated[
    str | None, typer.Option("--from", help="Only dead letters from this time on (ISO 8601, UTC).")
]
EndOption = Annotated[
    str | None, typer.Option("--to", help="Only dead letters before this time (ISO 8601, UTC).")
]
ErrorOption = Annotated[str | None, typer.Option(help="Only dead letters with this text in the error.")]
ErrorGroupOption = Annotated[
    str | None, typer.Option(help="Only dead letters of this error group; `dlq groups` lists them.")
]
PayloadOption = Annotated[str | None, typer.Option(help="Only dead letters with this text in the payload.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show how many dead letters match; change nothing.")]
Rate = Annotated[int | None, typer.Option(min=1, max=100_000, help="Maximum dead letters per second.")]
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
    dry_run: DryRun = False
    yes: SkipConfirmation = False
    detach: Detach = False
