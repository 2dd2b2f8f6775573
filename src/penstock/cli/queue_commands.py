"""`penstock queues …`: list, create, configure, pause, resume and delete queues; limit run queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.json_output import print_json
from penstock.cli.listing import Listing, print_output, with_hint
from penstock.cli.option_values import parse_queue_options
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.queue_arguments import QueueName
from penstock.cli.queue_completion import complete_queue
from penstock.cli.queue_details import queue_details
from penstock.cli.queue_kind import KindOption, QueueKind, find_queue
from penstock.cli.tables import format_duration
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest, UnknownQueue, WrongState
from penstock.runqueue.limits import MAX_CONCURRENCY

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, DurableQueueDocument, QueueDocument, RunQueueDocument

queues = typer.Typer(
    help="List, create, configure, pause, resume and delete queues; limit run queues.", no_args_is_help=True
)

Search = Annotated[str | None, typer.Option("--search", "-s", help="Only queues with this text in the name.")]
MaxQueues = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1_000, help="Maximum number of queues of each kind.")
]
RunQueueName = Annotated[str, typer.Argument(help="Name of the run queue.", autocompletion=complete_queue)]
QueueOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="Option of a durable queue, such as leaseTime=60 or retryLimit=5; can be repeated.",
    ),
]
CONFIGURE_PATH = "/api/v1/configure"
PURGE_TIMEOUT_S = 300.0
Concurrency = Annotated[
    str, typer.Argument(help="Maximum number of tasks that run at once, or `none` for no limit.")
]


@queues.command("ls")
@with_option_groups
@watchable
def list_queues(*, search: Search = None, limit: MaxQueues = 100, broker_options: BrokerOptions) -> None:
    """List durable queues and run queues by name, with their waiting and running messages."""
    from penstock.cli.broker_client import DurableQueuePageDocument, RunQueuePageDocument

    with broker_options.connect() as broker:
        durable = broker.get("/api/v1/resources/queues", DurableQueuePageDocument, search=search, limit=limit)
        run = broker.get("/api/v1/run-queues", RunQueuePageDocument, search=search, limit=limit)
    total = durable["total"] + run["total"]
    if broker_options.as_json:
        rows = [_durable_queue_json(queue) for queue in durable["queues"]]
        rows += [{"kind": "run", **queue} for queue in run["queues"]]
        print_json({"queues": sorted(rows, key=lambda row: str(row["name"])), "total": total})
    else:
        print_output(queue_list(durable["queues"], run["queues"], total, search))


@queues.command("show")
@with_option_groups
@watchable
def show(*, queue: QueueName, kind: KindOption = None, broker_options: BrokerOptions) -> None:
    """Show one queue: its messages, options, consumer groups and limits."""
    with broker_options.connect() as broker:
        existing = find_queue(broker, queue, kind)
    broker_options.print({"kind": existing.kind, **existing.state}, queue_details(existing))


@queues.command("create")
@with_option_groups
def create(
    *,
    queue: QueueName,
    kind: Annotated[QueueKind, typer.Option(help="Kind of the queue.")] = QueueKind.DURABLE,
    options: QueueOptions = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=MAX_CONCURRENCY, help="Limit of a run queue. Default: none.")
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Create a queue. A push creates a durable queue, and a task a run queue, without this."""
    from penstock.cli.broker_client import queue_path

    values = parse_queue_options(options or [])
    if kind == QueueKind.RUN and values:
        raise InvalidRequest("--set is for durable queues. A run queue has --concurrency.")
    if kind == QueueKind.DURABLE and concurrency is not None:
        raise InvalidRequest("--concurrency is for run queues. Add --kind run.")
    with broker_options.connect() as broker:
        _refuse_existing(broker, queue)
        if kind == QueueKind.DURABLE:
            result = broker.post(CONFIGURE_PATH, dict, {"queue": queue, "options": values})
        else:
            body = {"concurrency": concurrency}
            result = broker.put(f"{queue_path(queue, 'run-queues')}/limits", dict, body)
    broker_options.print({"kind": kind, **result}, Text(f"The {kind} queue {queue} exists now."))


@queues.command("configure")
@with_option_groups
def configure(*, queue: QueueName, options: QueueOptions = None, broker_options: BrokerOptions) -> None:
    """Change options of a durable queue, such as its lease time or retry limit; others keep their value."""
    values = parse_queue_options(options or [])
    if not values:
        raise InvalidRequest("There is no change. Give one with --set, as in --set leaseTime=60.")
    with broker_options.connect() as broker:
        find_queue(broker, queue, QueueKind.DURABLE)
        result = broker.post(CONFIGURE_PATH, dict, {"queue": queue, "options": values})
    changes = ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    broker_options.print(result, Text(f"{queue} is configured: {changes}."))


@queues.command()
@with_option_groups
def pause(*, queue: QueueName, kind: KindOption = None, broker_options: BrokerOptions) -> None:
    """Pause a queue: consumers get no more of its messages or tasks; leased ones can be acked."""
    _change_pause(queue, kind, broker_options, "pause", f"{queue} is paused")


@queues.command()
@with_option_groups
def resume(*, queue: QueueName, kind: KindOption = None, broker_options: BrokerOptions) -> None:
    """Resume a paused queue."""
    _change_pause(queue, kind, broker_options, "resume", f"{queue} is active again")


@queues.command("purge")
@with_option_groups
def purge(
    *,
    queue: QueueName,
    yes: SkipConfirmation = False,
    kind: KindOption = None,
    broker_options: BrokerOptions,
) -> None:
    """Drop all messages of a durable queue for all its groups, or the waiting tasks of a run queue."""
    with broker_options.connect() as broker:
        existing = find_queue(broker, queue, kind)
        if not yes:
            question = f"Drop the {existing.state['depth']:,} that wait in {queue}? They are lost."
            typer.confirm(question, abort=True, err=True)
        result = broker.post(f"{existing.path}/purge", dict, timeout_s=PURGE_TIMEOUT_S)
    broker_options.print({"kind": existing.kind, **result}, Text(f"{result['purged']:,} dropped of {queue}."))


@queues.command("rm")
@with_option_groups
def delete(
    *,
    queue: QueueName,
    kind: KindOption = None,
    yes: SkipConfirmation = False,
    broker_options: BrokerOptions,
) -> None:
    """Delete a durable queue with all its messages, or a run queue that has no tasks."""
    with broker_options.connect() as broker:
        existing = find_queue(broker, queue, kind)
        if not yes:
            counts = f"{existing.state['depth']:,} waiting, {existing.state['running']:,} running"
            typer.confirm(f"Delete the {existing.kind} queue {queue} ({counts})?", abort=True, err=True)
        result = broker.delete(existing.path, dict)
    broker_options.print({"kind": existing.kind, **result}, Text(f"{queue} is deleted."))


@queues.command()
@with_option_groups
def limit(*, queue: RunQueueName, concurrency: Concurrency, broker_options: BrokerOptions) -> None:
    """Limit how many tasks of a run queue run at once."""
    from penstock.cli.broker_client import RunQueueDocument

    is_number = concurrency.isascii() and concurrency.isdigit()
    if concurrency != "none" and not (is_number and 1 <= int(concurrency[:20]) <= MAX_CONCURRENCY):
        raise InvalidRequest(
            f"The limit {concurrency!r} is not valid. Give a number from 1 to {MAX_CONCURRENCY:,}, or `none` "
            "for no limit. `penstock queues pause` starts no more tasks."
        )
    body = {"concurrency": None if concurrency == "none" else int(concurrency)}
    with broker_options.connect() as broker:
        path = find_queue(broker, queue, QueueKind.RUN).path
        state = broker.put(f"{path}/limits", RunQueueDocument, body)
    new_limit = "no limit" if state["concurrency"] is None else f"a limit of {state['concurrency']:,}"
    broker_options.print(state, _describe_result(f"{queue} has {new_limit}", state))


def _refuse_existing(broker: BrokerClient, queue: str) -> None:
    try:
        existing = find_queue(broker, queue, None)
    except UnknownQueue:
        return
    raise WrongState(
        f"The {existing.kind} queue {queue} exists already. `penstock queues configure` changes a durable "
        "queue, `penstock queues limit` a run queue."
    )


def _change_pause(
    queue: str, kind: QueueKind | None, broker_options: BrokerOptions, verb: str, result: str
) -> None:
    from penstock.cli.broker_client import QueueDocument

    with broker_options.connect() as broker:
        state = broker.post(f"{find_queue(broker, queue, kind).path}/{verb}", QueueDocument)
    broker_options.print(state, _describe_result(result, state))


def _describe_result(result: str, state: QueueDocument) -> Text:
    return Text(f"{result}: {state['depth']:,} waiting, {state['running']:,} running.")


def _durable_queue_json(queue: DurableQueueDocument) -> dict[str, object]:
    return {
        "kind": "durable",
        "name": queue["name"],
        "depth": queue["depth"],
        "running": queue["running"],
        "partitions": queue["partitions"],
        "paused": queue["paused"],
    }


def queue_list(
    durable: list[DurableQueueDocument], run: list[RunQueueDocument], total: int, search: str | None
) -> RenderableType:
    if not durable and not run:
        if search:
            return Text(f"No queue has {search!r} in its name. `penstock queues ls` lists all queues.")
        return Text("There are no queues. The first push or task creates one.")
    rows = [(queue["name"], _durable_queue_row(queue)) for queue in durable]
    rows += [(queue["name"], _run_queue_row(queue)) for queue in run]
    listing = Listing("Queue", "Kind", "Waiting", "Running", "Limit", "Oldest", "Notes", folding=("Notes",))
    for _, row in sorted(rows):
        listing.add_row(*row)
    if total <= len(rows):
        return listing
    return with_hint(listing, f"{len(rows):,} of {total:,} queues. Use --search or --limit to see others.")


def _durable_queue_row(queue: DurableQueueDocument) -> tuple[str, ...]:
    notes = [f"{queue['partitions']:,} partition{'' if queue['partitions'] == 1 else 's'}"]
    notes += ["[yellow]paused[/yellow]"] if queue["paused"] else []
    return (
        *(escape(queue["name"]), "durable", f"{queue['depth']:,}", f"{queue['running']:,}", "–", "–"),
        ", ".join(notes),
    )


def _run_queue_row(queue: RunQueueDocument) -> tuple[str, ...]:
    limit = "none" if queue["concurrency"] is None else f"{queue['concurrency']:,}"
    oldest = format_duration(queue["oldestAgeMs"] / 1000) if queue["depth"] else "–"
    notes = [f"{queue['delayed']:,} delayed"] if queue["delayed"] else []
    notes += [f"[red]{queue['dead']:,} dead[/red]"] if queue["dead"] else []
    notes += ["[yellow]paused[/yellow]"] if queue["paused"] else []
    return (
        *(escape(queue["name"]), "run", f"{queue['depth']:,}", f"{queue['running']:,}", limit, oldest),
        ", ".join(notes),
    )
