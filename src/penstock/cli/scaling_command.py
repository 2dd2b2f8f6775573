"""`penstock queues scaling`: how many workers a queue needs; `penstock scaler`: the same for KEDA."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from penstock.cli.listing import details, with_hint
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.queue_arguments import GroupOfConsumer, QueueName, to_group_label
from penstock.cli.tables import format_duration
from penstock.cli.watch import watchable
from penstock.config import load_settings
from penstock.errors import ConfigError

WaitTarget = Annotated[
    float, typer.Option("--wait-target", min=0.001, max=86_400, help="Longest wait of work, in seconds.")
]
MinWorkers = Annotated[int, typer.Option("--min", min=0, help="Fewest workers.")]
MaxWorkers = Annotated[int | None, typer.Option("--max", min=1, help="Most workers. Default: no limit.")]
WorkerRate = Annotated[
    float | None,
    typer.Option("--rate", min=0.000_001, help="What one worker finishes per second. Default: as measured."),
]

_BASES = {
    "idle": "nothing waits and nothing runs",
    "rate": "the work and the rate of a worker",
    "busy_workers": "the busy workers: nothing has finished yet",
    "unknown": "nothing: work waits, and how long it takes is unknown",
}


@with_option_groups
@watchable
def scaling(
    *,
    queue: QueueName,
    group: GroupOfConsumer = None,
    wait_target: WaitTarget = 30.0,
    min_workers: MinWorkers = 0,
    max_workers: MaxWorkers = None,
    worker_rate: WorkerRate = None,
    broker_options: BrokerOptions,
) -> None:
    """Show how many workers a queue needs so that work waits no longer than a target."""
    from penstock.cli.broker_client import queue_path

    with broker_options.connect() as broker:
        document = broker.get(
            f"{queue_path(queue, 'queues')}/scaling",
            dict,
            group=group,
            waitTarget=f"{wait_target:g}",
            minWorkers=min_workers,
            maxWorkers=max_workers,
            workerRate=None if worker_rate is None else f"{worker_rate:g}",
        )
    broker_options.print(document, scaling_details(document))


def run_scaler_command(
    url: Annotated[
        str | None, typer.Option("--url", help="Address of the broker. Default: as for other commands.")
    ] = None,
) -> None:
    """Serve KEDA's external scaler over gRPC. Ctrl-C stops it."""
    from penstock.cli.broker_address import find_broker
    from penstock.log_format import configure_logging

    try:
        from penstock.scaler.scaler_server import run_scaler
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`penstock scaler` needs the package {error.name}. "
            "Install it: pip install 'penstock-mq[scaler]'."
        ) from None
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format, "scaler")
    address = find_broker(settings, url)
    asyncio.run(run_scaler(settings, address.url, address.create_tls_context()))


def scaling_details(document: dict[str, Any]) -> RenderableType:
    """Build the values of an answer of the route."""
    rate, wanted = document["rate"], document["wantedWorkers"]
    limit = f", limited by {document['limitedBy'].replace('_', ' ')}" if document["limitedBy"] else ""
    values = [
        ("workers", "unknown: keep those that run" if wanted is None else f"{wanted:,}{limit}"),
        ("computed from", _BASES[document["basis"]]),
        *([("group", to_group_label(document["group"]))] if document["group"] else []),
        ("backlog", f"{document['backlog']:,}{' (paused)' if document['paused'] else ''}"),
        ("running", f"{document['running']:,} by {document['busyWorkers']:,} workers"),
        ("wait now", _duration(document["expectedWaitSeconds"])),
        ("rate", _rate_text(rate)),
        ("metrics lag", _duration(rate["metricsLagSeconds"])),
    ]
    shown = details(document["queue"], values)
    return with_hint(shown, rate["problem"]) if rate["problem"] else shown


def _duration(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_duration(seconds)


def _rate_text(rate: dict[str, Any]) -> str:
    if rate["perWorker"] is None:
        return "unknown"
    text = f"{rate['perWorker']:g} per second and worker"
    if rate["source"] == "parameter":
        return f"{text}, as set with --rate"
    return (
        f"{text}, {rate['source']}: {rate['finished']:,} finished in {format_duration(rate['windowSeconds'])}"
    )
