"""`penstock pipeline …`: running, watching, draining and resetting the Spark job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.config import Settings, load_settings

pipeline = typer.Typer(help="The Spark job that carries metrics into ClickHouse.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def _settings(*needed: str) -> Settings:
    from penstock.embedded.supervision.platform import resolve_server_urls

    return resolve_server_urls(load_settings(), *needed)


def _settings_with_java() -> Settings:
    """Settings for a command that starts Spark here; Java is found as `penstock up` finds it."""
    import os

    from penstock.embedded.servers.java import find_java

    settings = _settings("redis_url", "clickhouse_url")
    if "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java(settings.home).home)
    return settings


@contextmanager
def _bar(as_json: bool, unit: str) -> Iterator[Progress]:
    """A progress bar on stderr, shown only to people."""
    console = Console(stderr=True, highlight=False, quiet=as_json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield progress


@pipeline.command()
def run() -> None:
    """Run the pipeline alone, against the servers the settings name."""
    from penstock.pipeline import job

    job.run(_settings_with_java())


@pipeline.command()
def status(as_json: AsJson = False) -> None:
    """Show how far the pipeline has come; exit code 0 when it runs, else 1."""
    from penstock.cli.platform_info import pipeline_progress
    from penstock.cli.tables import progress_table
    from penstock.streams.progress import is_alive

    progress = pipeline_progress(_settings("redis_url").redis_url)
    if as_json:
        print(json.dumps(progress, indent=2))
    elif progress is None:
        print("The pipeline has never run.")
    else:
        Console(highlight=False).print(progress_table(progress))
        if not is_alive(progress):
            print("\nThe pipeline does not run. This is the last that it said.")
    raise typer.Exit(0 if is_alive(progress) else 1)


@pipeline.command()
def drain(as_json: AsJson = False) -> None:
    """Count everything that is in the streams now, then stop.

    If a pipeline runs already, this waits until that one has got there. Exit code 0 when it is all counted.
    """
    from penstock.pipeline import control

    settings = _settings_with_java()
    with _bar(as_json, "entries") as bar:
        task = bar.add_task("Looking at the streams", total=None)

        def tell(total: int, left: int, by: str) -> None:
            words = "Draining" if by == "drain" else "Waiting for the running pipeline"
            bar.update(task, description=words, total=total, completed=total - left)

        drained = control.drain(settings, tell)
    if as_json:
        print(json.dumps(asdict(drained) | {"seconds": round(drained.seconds, 1)}))
    elif not drained.complete:
        print(f"Stopped after {drained.entries:,} entries; {drained.left:,} are left.")
    elif drained.by == "nobody":
        print("Nothing to do: everything in the streams was counted already.")
    else:
        who = "by the running pipeline" if drained.by == "running" else "and the pipeline has stopped"
        print(f"Drained: {drained.entries:,} entries counted in {drained.seconds:.0f} s, {who}.")
    raise typer.Exit(0 if drained.complete else 1)


@pipeline.command()
def reset(
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read again what the streams still hold.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give up the checkpoint: it is moved aside, and the next start goes on where the consumer group stands.

    A batch that was under way when the pipeline was killed may count twice. With --from-beginning, so may
    every entry that is still in the streams.
    """
    from penstock.pipeline import control
    from penstock.pipeline.checkpoint import checkpoint_of

    settings = _settings("redis_url")
    if not yes:
        if from_beginning:
            print("Entries that are still in the streams will be read again, and may count twice.")
        typer.confirm(f"Give up the checkpoint in {checkpoint_of(settings)}?", abort=True)
    aside = control.reset(settings, from_beginning)
    print(f"The checkpoint is now in {aside}." if aside else "There was no checkpoint.")
    start = "at the oldest entry that the streams hold" if from_beginning else "where its group stands"
    print(f"The next start of the pipeline goes on {start}.")


Metric = Annotated[str | None, typer.Option(help="One metric; all of them otherwise.")]


@pipeline.command()
def rebuild(
    first: Annotated[
        datetime, typer.Option("--from", formats=["%Y-%m-%d"], metavar="DAY", help="First day (UTC).")
    ],
    last: Annotated[
        datetime, typer.Option("--to", formats=["%Y-%m-%d"], metavar="DAY", help="Last day (UTC).")
    ],
    metric: Metric = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Even where the archive has fewer events than the tables.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute whole days of the tables anew from the archive, and swap them in.

    The pipeline may go on meanwhile; it is held back for a moment at the end of each day.
    """
    from penstock.cli.tables import rebuild_table
    from penstock.pipeline.archive import commands
    from penstock.pipeline.archive.rebuild import DayPlan

    settings = _settings_with_java()
    with _bar(as_json, "events") as bar:
        task = bar.add_task("Looking at the archive", total=None)

        def begin(plans: list[DayPlan]) -> None:
            bar.update(task, description="Starting Spark", total=sum(plan.archived for plan in plans))

        def tell(day: str, events: int) -> None:
            bar.update(task, description=f"Rebuilding {day}", advance=events)

        plans = commands.rebuild(
            settings,
            first.date(),
            last.date(),
            metric=metric,
            dry_run=dry_run,
            partial=partial,
            begin=begin,
            tell=tell,
        )
    if as_json:
        print(json.dumps([asdict(plan) for plan in plans], indent=2))
    elif not plans:
        print(f"The archive has nothing of the days from {first:%Y-%m-%d} to {last:%Y-%m-%d}.")
    else:
        Console(highlight=False).print(rebuild_table(plans, dry_run))


@pipeline.command()
def compact(
    before: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="Only days before this one; today otherwise."),
    ] = None,
    metric: Metric = None,
    as_json: AsJson = False,
) -> None:
    """Put the many small files of the archive's past days together."""
    from penstock.pipeline.archive import commands

    settings = _settings("redis_url")
    with Console(stderr=True, highlight=False, quiet=as_json).status("Looking at the archive") as shown:
        done = commands.compact(
            settings, before.date() if before else None, metric, lambda day: shown.update(f"Looking at {day}")
        )
    if as_json:
        print(json.dumps([asdict(day) for day in done], indent=2))
    elif not done:
        print("Nothing to do: every day that is over is compact, or has a batch under way.")
    for day in () if as_json else done:
        print(
            f"{day.metric} {day.day}: {day.files_before:,} files are now {day.files_after:,}, "
            f"{day.bytes_before:,} bytes {day.bytes_after:,}; {day.events:,} events."
        )
