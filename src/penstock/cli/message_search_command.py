"""`penstock messages search`: find messages by text, id, time or index key, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.cli.exit_codes import ExitCode
from penstock.cli.message_commands import MESSAGES_PATH, MessageFilterState, message_listing
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.queue_arguments import GroupOfConsumer, PartitionName, QueueFilter
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, JsonObject

STEP_TIMEOUT_S = 60.0
MAX_STEP_MATCHES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What the messages have in common."""

    queue: QueueFilter = None
    partition: PartitionName = None
    group: GroupOfConsumer = None
    state: Annotated[MessageFilterState | None, typer.Option(help="Only messages in this state.")] = None
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Pushed at this time or later.")
    ] = None
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Pushed before this time.")] = None
    message_id: Annotated[str | None, typer.Option("--id", help="Message id.")] = None
    transaction_id: Annotated[str | None, typer.Option("--transaction-id", help="Transaction id.")] = None
    key: Annotated[
        str | None,
        typer.Option(metavar="PATH=VALUE", help="Value of an index key of the queue, as in $.orderId=42."),
    ] = None

    def to_parameters(self, text: str | None) -> dict[str, str | int | None]:
        key, separator, value = (self.key or "").partition("=")
        if self.key is not None and not (key and separator):
            raise InvalidRequest(f"--key {self.key!r} is not PATH=VALUE, as in --key '$.orderId=42'.")
        parameters: dict[str, str | int | None] = {
            "queue": self.queue,
            "partition": self.partition,
            "consumerGroup": self.group,
            "status": self.state.value if self.state else None,
            "from": self.start,
            "to": self.end,
            "id": self.message_id,
            "transactionId": self.transaction_id,
            "text": text,
            "key": key or None,
            "value": value if separator else None,
        }
        if not any(parameters.values()):
            raise InvalidRequest("Say what to search for: a text, --id, --transaction-id, --key or --from.")
        return parameters


@with_option_groups
def search(
    *,
    text: Annotated[
        str | None, typer.Argument(help="Text in the JSON of the payload; a to z match in either case.")
    ] = None,
    search_options: SearchOptions,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Number of messages.")] = 20,
    broker_options: BrokerOptions,
) -> None:
    """Search messages; Ctrl-C ends the search and shows its matches so far. Exit code 1 without a match."""
    parameters = search_options.to_parameters(text)
    with broker_options.connect() as broker:
        result = _Search(broker, parameters, limit)
        with _progress_bar(hidden=broker_options.as_json) as (bar, task):
            try:
                for examined, total in result.steps():
                    bar.update(task, completed=examined, total=total)
            except KeyboardInterrupt:
                result.is_cancelled = True
    document = {
        "messages": result.matches,
        "examined": result.examined,
        "total": result.total,
        "complete": result.is_complete,
    }
    broker_options.print(document, result.describe())
    if not result.matches:
        raise typer.Exit(ExitCode.NEGATIVE)


class _Search:
    """A search in steps, as far as it has come."""

    def __init__(self, broker: BrokerClient, parameters: dict[str, str | int | None], limit: int) -> None:
        self._broker = broker
        self._parameters = parameters
        self._limit = limit
        self.matches: list[JsonObject] = []
        self.examined = 0
        self.total: int | None = None
        self.is_complete = False
        self.is_cancelled = False

    def steps(self) -> Iterator[tuple[int, int | None]]:
        """Run the search until its end or its limit; yield the examined messages and their total."""
        cursor: str | None = None
        while not self.is_complete and len(self.matches) < self._limit:
            step_limit = min(MAX_STEP_MATCHES, self._limit - len(self.matches))
            parameters = {**self._parameters, "limit": step_limit, "cursor": cursor}
            step = self._broker.get_waiting(f"{MESSAGES_PATH}/search", STEP_TIMEOUT_S, **parameters)
            progress, messages = step["progress"], step["messages"]
            assert isinstance(progress, dict)
            assert isinstance(messages, list)
            self.matches += messages
            self.examined, self.total = progress["examined"], progress["total"]
            cursor = None if step["nextCursor"] is None else str(step["nextCursor"])
            self.is_complete = cursor is None
            yield self.examined, self.total

    def describe(self) -> RenderableType:
        total = "" if self.total is None else f" of {self.total:,}"
        sentence = f"{self.examined:,}{total} messages looked at, {len(self.matches):,} found."
        if self.is_cancelled:
            sentence += " The search was cancelled."
        elif not self.is_complete:
            sentence += " There may be more: use --limit."
        if not self.matches:
            return Text(sentence)
        return Group(message_listing(self.matches, None), Text(f"\n{sentence}", style="dim"))


@contextmanager
def _progress_bar(*, hidden: bool) -> Iterator[tuple[Progress, TaskID]]:
    console = Console(stderr=True, highlight=False)
    counts = TextColumn("{task.completed:,} looked at")
    columns = (TextColumn("Searching"), BarColumn(), counts, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield progress, progress.add_task("search", total=None)
