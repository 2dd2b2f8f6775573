"""The command `penstock`: each subcommand parses, calls and prints; its imports happen when it runs."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from penstock import __version__
from penstock.cli.dlq_commands import dlq
from penstock.cli.pipeline_commands import AsJson, pipeline
from penstock.cli.queue_commands import queues
from penstock.cli.report_commands import report
from penstock.config import load_settings
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="Durable ordered queues that measure themselves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(dlq, name="dlq")
app.add_typer(pipeline, name="pipeline")
app.add_typer(queues, name="queues")
app.add_typer(report, name="report")


def main() -> None:
    """Run the command line. An error of ours is one red line and its exit code, 2 mostly."""
    try:
        app()
    except PenstockError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]{escape(error.detail)}[/red]")
        sys.exit(error.exit_code)


@app.command()
def up(demo: Annotated[bool, typer.Option("--demo", help="Run a gentle load too.")] = False) -> None:
    """Start the whole platform here; Ctrl-C stops it."""
    from penstock.cli.up import run_platform

    run_platform(load_settings(), demo)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show every part of the running platform; exit code 0 when all are up, else 1."""
    from penstock.broker.journal.location import read_depth
    from penstock.cli.tables import format_journal, platform_json, platform_table
    from penstock.embedded.supervision.state import read_state

    settings = load_settings()
    state = read_state(settings.home)
    depth = read_depth(settings)
    if as_json:
        print(json.dumps(platform_json(state, settings.home, depth), indent=2))
    elif state is None:
        print(f"Penstock does not run on {settings.home}. Start it with `penstock up`.")
    else:
        Console(highlight=False).print(platform_table(state), format_journal(depth))
    raise typer.Exit(0 if state is not None and state.all_up else 1)


@app.command()
def logs(
    part: Annotated[str, typer.Argument(help="The part, as `penstock status` names it, or `supervisor`.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines are written.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many lines from the end.")] = 50,
) -> None:
    """Show the log of one part."""
    from penstock.cli.platform_info import log_of
    from penstock.embedded.supervision import logs as files

    log = log_of(load_settings().home, part)
    for line in files.read_last_lines(log, lines):
        print(line)
    try:
        for line in files.follow(log) if follow else ():
            print(line, flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command()
def config(as_json: AsJson = False) -> None:
    """Show the settings in force and where each one comes from; passwords are hidden."""
    from penstock.cli.platform_info import settings_with_sources
    from penstock.cli.tables import settings_table

    rows = settings_with_sources(load_settings())
    if as_json:
        print(json.dumps({row.name: {"value": row.value, "from": row.source} for row in rows}, indent=2))
    else:
        Console(highlight=False).print(settings_table(rows))


@app.command()
def migrate() -> None:
    """Bring the schemas of PostgreSQL and ClickHouse up to date."""
    from penstock.broker import store_migrations
    from penstock.embedded.supervision.platform import resolve_server_urls

    settings = resolve_server_urls(load_settings(), "postgres_url", "clickhouse_url")
    applied = asyncio.run(store_migrations.migrate(settings))
    print("\n".join(applied) if applied else "Nothing to do: the schemas are up to date.")


@app.command()
def serve(
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Broker processes behind the port.")
    ] = None,
) -> None:
    """Run the broker alone, against the servers the settings name."""
    from penstock.api import server
    from penstock.embedded.supervision.platform import resolve_server_urls

    settings = resolve_server_urls(load_settings(), "postgres_url", "redis_url", "clickhouse_url")
    server.serve(settings.model_copy(update={"workers": workers}) if workers else settings)


@app.command()
def version() -> None:
    """Show the version."""
    print(__version__)


if __name__ == "__main__":
    main()
