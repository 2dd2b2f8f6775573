"""`penstock bench`: measure push, pop and ack of a running broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.cli.bench.bench_load import OPERATIONS, BenchLoad, BenchPlan
from penstock.cli.durations import parse_duration_s
from penstock.cli.exit_codes import ExitCode
from penstock.cli.listing import Listing
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.terminal_plot import Plot
from penstock.errors import InvalidRequest, UnknownQueue

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient

PERCENTILES = (50, 95, 99, 100)
PLOT_POINTS = 60
PLOT_HEIGHT = 6
MAX_DURATION_S = 600.0
QUEUE_PREFIX = "penstock-bench-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How much load the benchmark makes."""

    messages: Annotated[int, typer.Option("--messages", "-n", min=1, max=1_000_000, help="Messages.")] = 5_000
    batch: Annotated[int, typer.Option(min=1, max=1_000, help="Messages per request.")] = 50
    payload_bytes: Annotated[
        int, typer.Option("--bytes", min=1, max=1_000_000, help="Bytes of a payload.")
    ] = 200
    partitions: Annotated[int, typer.Option(min=1, max=1_000, help="Partitions of the queue.")] = 4
    producers: Annotated[int, typer.Option(min=1, max=32, help="Threads that push.")] = 2
    consumers: Annotated[int, typer.Option(min=1, max=32, help="Threads that pop and ack.")] = 2
    max_time: Annotated[str, typer.Option("--for", metavar="TIME", help="Stop after this time.")] = "30s"

    def to_plan(self) -> BenchPlan:
        max_s = parse_duration_s("--for", self.max_time)
        if max_s > MAX_DURATION_S:
            raise InvalidRequest("--for is longer than 10 minutes. Use at most 10m.")
        return BenchPlan(
            f"{QUEUE_PREFIX}{uuid4().hex[:8]}",
            self.messages,
            self.batch,
            self.payload_bytes,
            self.partitions,
            self.producers,
            self.consumers,
            max_s,
        )


@with_option_groups
def bench(*, load_options: LoadOptions, broker_options: BrokerOptions) -> None:
    """Push, pop and ack messages in a queue of its own, and measure throughput and latency.

    The queue is deleted at the end. The times include this command's own work, so a faster client measures
    more; they compare brokers, settings and machines. Exit code 1 if the time was over first.
    """
    load = BenchLoad(load_options.to_plan(), broker_options.connect)
    try:
        with _progress_bar(hidden=broker_options.as_json) as progress:
            task = progress.add_task("bench", total=load.plan.messages)
            load.run(lambda acked: progress.update(task, completed=acked))
    finally:
        with broker_options.connect() as broker:
            _delete_queue(broker, load.plan.queue)
    broker_options.print(_to_json(load), _describe(load))
    if load.acked < load.plan.messages:
        raise typer.Exit(ExitCode.NEGATIVE)


def _delete_queue(broker: BrokerClient, queue: str) -> None:
    try:
        broker.delete(f"/api/v1/resources/queues/{queue}", dict)
    except UnknownQueue:
        return  # nothing was pushed


def _progress_bar(*, hidden: bool) -> Progress:
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("Messages"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=hidden)


def _to_json(load: BenchLoad) -> dict[str, object]:
    operations = {
        name: {
            "requests": len(times.seconds),
            "messages": times.messages,
            "messagesPerSecond": round(times.messages / load.duration_s, 1),
            **{f"p{percent}Ms": _rounded(times.percentile_ms(percent)) for percent in PERCENTILES[:-1]},
            "maxMs": _rounded(times.percentile_ms(100)),
        }
        for name, times in load.times.items()
    }
    return {
        "plan": asdict(load.plan),
        "seconds": round(load.duration_s, 3),
        "operations": operations,
        "complete": load.acked >= load.plan.messages,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _describe(load: BenchLoad) -> RenderableType:
    listing = Listing("Request", "Requests", "Messages", "Messages/s", "p50", "p95", "p99", "Maximum")
    for name in OPERATIONS:
        times = load.times[name]
        durations = (times.percentile_ms(percent) for percent in PERCENTILES)
        listing.add_row(
            name,
            f"{len(times.seconds):,}",
            f"{times.messages:,}",
            f"{times.messages / load.duration_s:,.0f}",
            *("–" if duration is None else f"{duration:,.1f} ms" for duration in durations),
        )
    plan = load.plan
    heading = (
        f"{load.acked:,} of {plan.messages:,} messages of {plan.payload_bytes:,} bytes in "
        f"{load.duration_s:.1f} s, {plan.batch} per request, {plan.producers} producers, "
        f"{plan.consumers} consumers, {plan.partitions} partitions.\n"
    )
    parts: list[RenderableType] = [Text(heading), listing]
    if load.acked < plan.messages:
        parts.append(Text("\nThe time was over before all messages were acked. Use --for.", style="yellow"))
    if len(load.finished_at) > 1:
        parts += [Text("\nAcked messages per second", style="dim"), _throughput_plot(load)]
    return Group(*parts)


def _throughput_plot(load: BenchLoad) -> Plot:
    width_s = load.duration_s / PLOT_POINTS
    counts = Counter(min(PLOT_POINTS - 1, int(at / width_s)) for at in load.finished_at)
    values = [counts[point] / width_s for point in range(PLOT_POINTS)]
    return Plot(
        values, None, lambda value: f"{value:,.0f}", "0 s", f"{load.duration_s:.1f} s", height=PLOT_HEIGHT
    )
