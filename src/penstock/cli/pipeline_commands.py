"""`penstock pipeline …`: run, inspect, drain and reset the Spark job; replay rejected events; its archive."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.cli.json_output import print_json
from penstock.cli.listing import print_output
from penstock.cli.options import AsJson, BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.problem_output import show_warning
from penstock.cli.watch import watchable
from penstock.config import Settings, as_environment, load_settings

pipeline = typer.Typer(help="Manage the Spark job that writes metrics to ClickHouse.", no_args_is_help=True)


def _load_settings(*needed_urls: str) -> Settings:
    from penstock.embedded.supervision.platform import resolve_server_urls

    return resolve_server_urls(load_settings(), *needed_urls)


def _load_settings_for_spark() -> Settings:
    """Load the settings of a command that starts Spark; find Java in the same way as `penstock up`."""
    from penstock.cli.server_checks import check_servers
    from penstock.embedded.servers.java import find_java

    settings = _load_settings("redis_url", "clickhouse_url")
    check_servers(settings, "redis_url", "clickhouse_url")
    if "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java(settings.home).home)
    return settings


@contextmanager
def _progress_bar(as_json: bool, unit: str) -> Iterator[Progress]:
    """Show a progress bar on stderr, unless the output is JSON."""
    console = Console(stderr=True, highlight=False, quiet=as_json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield progress


@pipeline.command()
def run() -> None:
    """Run only the pipeline, with the servers that the settings name."""
    from penstock.embedded.supervision.service_components import PIPELINE_MODULE

    settings = _load_settings_for_spark()
    # The pipeline replaces this process, so that it does not keep the modules of the command line in memory.
    command = [sys.executable, "-m", PIPELINE_MODULE]
    os.execve(sys.executable, command, {**os.environ, **as_environment(settings)})


@pipeline.command()
@with_option_groups
@watchable
def status(as_json: AsJson = False) -> None:
    """Show the progress of the pipeline. Exit code 0 when all its queries run, 1 otherwise."""
    from penstock.cli.platform_info import read_pipeline_progress
    from penstock.cli.tables import progress_details
    from penstock.streams.progress import find_problem

    progress = read_pipeline_progress(_load_settings("redis_url").redis_url)
    problem = find_problem(progress)
    if as_json:
        print_json(progress)
    elif progress is not None:
        print_output(progress_details(progress))
    if problem and not as_json:
        print(f"{problem} The table shows the last report." if progress else problem)
    raise typer.Exit(1 if problem else 0)


@pipeline.command()
@with_option_groups
@watchable
def losses(*, broker_options: BrokerOptions) -> None:
    """List the events of the last 31 days that are not counted, by metric and reason."""
    from penstock.cli.tables import loss_list

    with broker_options.connect() as broker:
        rows = broker.get("/api/v1/pipeline/losses", dict)["losses"]
    broker_options.print(rows, loss_list(rows))


@pipeline.command()
def drain(as_json: AsJson = False) -> None:
    """Count all entries that are in the streams now, then stop.

    If a pipeline already runs, wait until it has counted them. Exit code 0 when all entries are counted.
    """
    from penstock.pipeline import control

    settings = _load_settings_for_spark()
    with _progress_bar(as_json, "entries") as bar:
        task = bar.add_task("Reading the streams", total=None)

        def show_progress(total: int, remaining: int, by: str) -> None:
            description = "Draining" if by == "drain" else "Waiting for the running pipeline"
            bar.update(task, description=description, total=total, completed=total - remaining)

        result = control.drain(settings, show_progress)
    if as_json:
        print(json.dumps(asdict(result) | {"seconds": round(result.seconds, 1)}))
    elif not result.complete:
        print(f"Stopped after {result.entries:,} entries; {result.left:,} entries remain.")
    elif result.by == "nobody":
        print("Nothing to do: all entries in the streams are already counted.")
    else:
        by = "by the running pipeline" if result.by == "running" else "and the pipeline has stopped"
        print(f"Drained: {result.entries:,} entries counted in {result.seconds:.0f} s, {by}.")
    raise typer.Exit(0 if result.complete else 1)


@pipeline.command()
def reset(
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read all entries again that the streams still hold.")
    ] = False,
    yes: SkipConfirmation = False,
    as_json: AsJson = False,
) -> None:
    """Move the checkpoint aside. The next start continues at the position of the consumer group.

    A batch that was in flight when the pipeline was killed may count twice. With --from-beginning, every
    entry that is still in the streams may count twice.
    """
    from penstock.embedded.supervision.state import read_state
    from penstock.pipeline import control
    from penstock.pipeline.checkpoint import checkpoint_path

    # Without --from-beginning the streams do not change, so an embedded Redis need not run.
    settings = load_settings()
    if from_beginning or read_state(settings.home):
        settings = _load_settings("redis_url")
    if not yes:
        if from_beginning:
            show_warning("The pipeline will read all entries in the streams again. They may count twice.")
        typer.confirm(f"Move the checkpoint in {checkpoint_path(settings)} aside?", abort=True, err=True)
    moved_to = control.reset(settings, from_beginning)
    if as_json:
        print_json({"movedTo": str(moved_to) if moved_to else None, "fromBeginning": from_beginning})
        return
    print(f"The checkpoint is now in {moved_to}." if moved_to else "There was no checkpoint.")
    start = "the oldest entry in the streams" if from_beginning else "the position of its consumer group"
    print(f"The next start of the pipeline continues at {start}.")


MetricOption = Annotated[str | None, typer.Option(help="Name of one metric. Default: all metrics.")]


@pipeline.command()
def rebuild(
    first: Annotated[
        datetime, typer.Option("--from", formats=["%Y-%m-%d"], metavar="DAY", help="First day (UTC).")
    ],
    last: Annotated[
        datetime, typer.Option("--to", formats=["%Y-%m-%d"], metavar="DAY", help="Last day (UTC).")
    ],
    metric: MetricOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the days and their events; change nothing.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Rebuild even if the archive has fewer events than the tables.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Recompute whole days of the tables from the archive and replace them.

    The pipeline can run meanwhile; the rebuild pauses it for a moment at the end of each day.
    """
    from penstock.cli.tables import rebuild_list
    from penstock.pipeline.archive import commands
    from penstock.pipeline.archive.rebuild import DayPlan

    settings = _load_settings_for_spark()
    with _progress_bar(as_json, "events") as bar:
        task = bar.add_task("Reading the archive", total=None)

        def show_plan(plans: list[DayPlan]) -> None:
            bar.update(task, description="Starting Spark", total=sum(plan.archived for plan in plans))

        def show_progress(day: str, events: int) -> None:
            bar.update(task, description=f"Rebuilding {day}", advance=events)

        plans = commands.rebuild(
            settings,
            first.date(),
            last.date(),
            metric=metric,
            dry_run=dry_run,
            partial=partial,
            on_plan=show_plan,
            on_progress=show_progress,
        )
    if as_json:
        print(json.dumps([asdict(plan) for plan in plans], indent=2))
    elif not plans:
        print(f"The archive has no events from {first:%Y-%m-%d} to {last:%Y-%m-%d}.")
    else:
        print_output(rebuild_list(plans, dry_run))


@pipeline.command()
def replay(
    metric: MetricOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the events that could be replayed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add rejected events that can be read now to their streams again, each one once.

    Use it after a fix of what made them unreadable. They keep their time. Exit code 0 when none is left.
    """
    from penstock.pipeline import control

    results = control.replay(_load_settings("redis_url", "clickhouse_url"), metric, dry_run=dry_run)
    if as_json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    for result in () if as_json else results:
        verb = "can be replayed" if dry_run else "replayed"
        print(f"{result.metric}: {result.replayed:,} {verb}, {result.still_rejected:,} cannot be read.")
    raise typer.Exit(1 if any(result.still_rejected for result in results) else 0)


@pipeline.command()
def compact(
    before: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="Only days before this one. Default: today."),
    ] = None,
    metric: MetricOption = None,
    as_json: AsJson = False,
) -> None:
    """Merge the many small archive files of past days."""
    from penstock.pipeline.archive import commands

    settings = _load_settings("redis_url")
    with Console(stderr=True, highlight=False, quiet=as_json).status("Reading the archive") as spinner:
        compacted = commands.compact(
            settings,
            before.date() if before else None,
            metric,
            lambda day: spinner.update(f"Compacting {day}"),
        )
    if as_json:
        print(json.dumps([asdict(day) for day in compacted], indent=2))
    elif not compacted:
        print("Nothing to do: every past day is compact or has a batch in flight.")
    for day in () if as_json else compacted:
        print(
            f"{day.metric} {day.day}: {day.files_before:,} files merged into {day.files_after:,}, "
            f"{day.bytes_before:,} bytes into {day.bytes_after:,}; {day.events:,} events."
        )
