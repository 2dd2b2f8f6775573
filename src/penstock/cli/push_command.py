"""`penstock push`: push messages to a durable queue, or enqueue tasks of a run queue."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.cli.durations import parse_duration_s
from penstock.cli.exit_codes import ExitCode
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.problem_output import show_error
from penstock.cli.queue_arguments import PartitionName, QueueName
from penstock.cli.queue_kind import KindOption, QueueKind, find_queue
from penstock.errors import InvalidRequest, PenstockError, UnknownQueue

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, JsonObject

BATCH = 500
"""Messages of one request."""

MAX_SHOWN = 20
STANDARD_INPUT = "-"

Payload = Annotated[
    str | None,
    typer.Argument(
        help="JSON, or any other text, which is pushed as a string. Without it or with -, each line of the "
        "standard input is the JSON of one message."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options that only tasks of run queues have."""

    delay: Annotated[
        str | None,
        typer.Option(help="Start the task of a run queue after this time at the earliest: 30s, 2h."),
    ] = None
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="Priority of the task of a run queue, larger first.")
    ] = None

    def to_fields(self) -> JsonObject:
        fields: JsonObject = {}
        if self.delay is not None:
            fields["delayMs"] = round(parse_duration_s("--delay", self.delay) * 1000)
        if self.priority is not None:
            fields["priority"] = self.priority
        return fields


@with_option_groups
def push(
    *,
    queue: QueueName,
    payload: Payload = None,
    partition: PartitionName = None,
    transaction_id: Annotated[
        str | None,
        typer.Option(
            "--id", help="Transaction id, or idempotency key of a task: a second push of it is a duplicate."
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Push each payload this many times.")] = 1,
    task_options: TaskOptions,
    kind: KindOption = None,
    broker_options: BrokerOptions,
) -> None:
    """Push messages. The first push to a name creates a durable queue; a run queue gets a task."""
    if transaction_id is not None and (count > 1 or payload in (None, STANDARD_INPUT)):
        raise InvalidRequest("--id is for one message: give its payload as an argument, and no --count.")
    payloads = (value for value in _read_payloads(payload) for _ in range(count))
    with broker_options.connect() as broker:
        pushes = _Pushes(broker, queue, kind or _find_kind(broker, queue), task_options.to_fields())
        fields = pushes.to_fields(partition, transaction_id)
        results = _push_batches(pushes, payloads, fields, shows_progress=not broker_options.as_json)
    failed = [result for result in results if result["status"] == "failed"]
    broker_options.print({"queue": queue, "results": results}, _describe(queue, pushes.noun, results))
    if failed:
        raise typer.Exit(ExitCode.NEGATIVE)


class _Pushes:
    """Requests that push to one queue."""

    def __init__(self, broker: BrokerClient, queue: str, kind: QueueKind, task_fields: JsonObject) -> None:
        self._broker = broker
        self._queue = queue
        self._kind = kind
        self._task_fields = task_fields
        self.noun = "message" if kind == QueueKind.DURABLE else "task"

    def to_fields(self, partition: str | None, transaction_id: str | None) -> JsonObject:
        """Return the fields of each message or task. Raises InvalidRequest for fields of the other kind."""
        if self._kind == QueueKind.RUN:
            if partition is not None:
                raise InvalidRequest(
                    f"{self._queue!r} is a run queue: it has no partitions. Leave --partition out."
                )
            return {**self._task_fields, **({"idempotencyKey": transaction_id} if transaction_id else {})}
        if self._task_fields:
            raise InvalidRequest(
                f"{self._queue!r} is a durable queue: --delay and --priority are for tasks of run queues. "
                "Add --kind run to create a run queue."
            )
        fields: JsonObject = {"queue": self._queue}
        fields |= {"partition": partition} if partition else {}
        return fields | ({"transactionId": transaction_id} if transaction_id else {})

    def push(self, payloads: list[Any], fields: JsonObject) -> list[JsonObject]:
        items = [{**fields, "payload": payload} for payload in payloads]
        if self._kind == QueueKind.RUN:
            from penstock.cli.broker_client import queue_path

            body = self._broker.post(f"{queue_path(self._queue, 'run-queues')}/tasks", dict, {"tasks": items})
            return cast("list[JsonObject]", body["tasks"])
        return self._broker.post_list("/api/v1/push", {"items": items})


def _find_kind(broker: BrokerClient, queue: str) -> QueueKind:
    """Return the kind of the queue; a new queue is durable, and so is one that cannot be looked up."""
    try:
        return find_queue(broker, queue, QueueKind.RUN).kind
    except InvalidRequest:
        raise
    except UnknownQueue:
        return QueueKind.DURABLE
    except PenstockError:  # without Redis, or without the right to read: the push decides
        return QueueKind.DURABLE


def _push_batches(
    pushes: _Pushes, payloads: Iterator[Any], fields: JsonObject, *, shows_progress: bool
) -> list[JsonObject]:
    """Push all payloads. If a request fails, say how many messages were pushed before it."""
    results: list[JsonObject] = []
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("Pushing"), TextColumn("{task.completed:,}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not shows_progress) as progress:
        task = progress.add_task("push", total=None)
        try:
            while batch := list(islice(payloads, BATCH)):
                results += pushes.push(batch, fields)
                progress.update(task, completed=len(results))
        except PenstockError:
            if results:
                show_error(f"{len(results):,} {pushes.noun}s were pushed before this error:")
            raise
    return results


def _read_payloads(payload: str | None) -> Iterator[Any]:
    if payload is not None and payload != STANDARD_INPUT:
        yield parse_payload(payload)
        return
    if payload is None and sys.stdin.isatty():
        raise InvalidRequest(
            "There is no payload. Give it as an argument, or JSON lines on the standard input."
        )
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise InvalidRequest(f"Line {number} of the standard input is not JSON: {error}.") from None


def parse_payload(text: str) -> Any:
    """Return the JSON of an argument; text that does not look like JSON is a string."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise InvalidRequest(
                f"The payload is not JSON: {error}. Check the quotes of the shell."
            ) from None
        return text


def _describe(queue: str, noun: str, results: list[JsonObject]) -> Text:
    """Describe what happened to the messages, with the ids of the first ones."""
    counts = {
        status: sum(r["status"] == status for r in results) for status in ("queued", "duplicate", "failed")
    }
    deferred = sum("operationId" in result for result in results)
    text = Text(f"{counts['queued']:,} {noun}{'' if counts['queued'] == 1 else 's'} pushed to {queue}")
    text.append(f", {deferred:,} of them deferred: `penstock ops ls` shows them" if deferred else "")
    text.append(f", {counts['duplicate']:,} duplicate" if counts["duplicate"] else "")
    text.append(f", {counts['failed']:,} failed" if counts["failed"] else "", style="red")
    text.append(".")
    for result in results[:MAX_SHOWN] if len(results) <= MAX_SHOWN else ():
        message_id = str(result.get("transaction_id") or result.get("id") or "–")
        problem = result.get("error") or ("" if result["status"] == "queued" else result["status"])
        text.append(f"\n  {message_id}")
        text.append(f"  {problem}" if problem else "", style="yellow")
    return text
