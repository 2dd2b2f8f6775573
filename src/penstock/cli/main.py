"""The command `penstock`. Subcommands import the packages they need when they run, so `--help` is fast."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.ack_command import ack
from penstock.cli.alert_commands import alerts
from penstock.cli.annotation_commands import chart_annotations
from penstock.cli.audit_commands import audit
from penstock.cli.backup_commands import backup, restore
from penstock.cli.bench.bench_command import bench
from penstock.cli.command_examples import add_examples
from penstock.cli.dlq_commands import dlq
from penstock.cli.doctor.doctor_command import doctor
from penstock.cli.environment_commands import environments
from penstock.cli.exit_codes import exit_code_of
from penstock.cli.group_commands import groups
from penstock.cli.json_output import print_json
from penstock.cli.listing import print_output
from penstock.cli.message_commands import messages
from penstock.cli.message_search_command import search
from penstock.cli.operation_commands import operations
from penstock.cli.options import AsJson, CreateDatabase, with_option_groups
from penstock.cli.pipeline_commands import pipeline
from penstock.cli.pop_command import pop
from penstock.cli.problem_output import show_error
from penstock.cli.push_command import push
from penstock.cli.queue_commands import queues
from penstock.cli.report_commands import report
from penstock.cli.scaling_command import run_scaler_command, scaling
from penstock.cli.token_commands import tokens
from penstock.cli.top.top_command import top
from penstock.cli.watch import watchable
from penstock.config import SECRET_URLS, as_environment, load_settings
from penstock.errors import InvalidRequest, PenstockError
from penstock.validation_text import describe_refusal


class PlainErrors(TyperGroup):
    """The commands; errors of their options have no texts of pydantic."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = _describe_option_error(error.__cause__.errors()[0])
            raise


def _describe_option_error(error: Mapping[str, Any]) -> str:
    if error["type"] != "value_error":
        return describe_refusal("The value", error)
    text = str(error["ctx"]["error"])  # of Typer, which names the format of a day only in letters with %
    return f"{error['input']!r} is not a day such as 2026-01-31." if "%Y-%m-%d" in text else text


app = typer.Typer(
    name="penstock",
    cls=PlainErrors,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
START_HERE = "Start here"
"""The heading, in the help, of the commands that a newcomer needs."""

MORE_COMMANDS = "More commands"

app.add_typer(alerts, name="alerts", rich_help_panel=MORE_COMMANDS)
app.add_typer(chart_annotations, name="annotations", rich_help_panel=MORE_COMMANDS)
app.add_typer(audit, name="audit", rich_help_panel=MORE_COMMANDS)
app.add_typer(dlq, name="dlq", rich_help_panel=MORE_COMMANDS)
app.add_typer(environments, name="env", rich_help_panel=MORE_COMMANDS)
app.add_typer(environments, name="environments", hidden=True)
app.add_typer(groups, name="groups", rich_help_panel=MORE_COMMANDS)
messages.command("search")(search)
app.add_typer(messages, name="messages", rich_help_panel=MORE_COMMANDS)
app.add_typer(operations, name="ops", rich_help_panel=MORE_COMMANDS)
app.add_typer(pipeline, name="pipeline", rich_help_panel=MORE_COMMANDS)
queues.command("scaling")(scaling)
app.add_typer(queues, name="queues", rich_help_panel=START_HERE)
app.add_typer(report, name="report", rich_help_panel=MORE_COMMANDS)
app.add_typer(tokens, name="tokens", rich_help_panel=MORE_COMMANDS)


def main() -> None:
    """Run the command line. A PenstockError shows one line and sets the exit code."""
    try:
        app()
    except PenstockError as error:
        show_error(error.detail)
        sys.exit(exit_code_of(error))


def print_version(is_asked: bool) -> None:
    """Print the version and exit, if the option is set."""
    if is_asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def read_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    """Durable ordered queues that measure themselves."""


@app.command(rich_help_panel=START_HERE)
def up(
    demo: Annotated[bool, typer.Option("--demo", help="Also run a light demo load.")] = False,
    create_database: CreateDatabase = False,
) -> None:
    """Start the whole platform on this machine; Ctrl-C stops it."""
    from penstock.cli.up import run_platform

    run_platform(load_settings(), demo, create_database)


@app.command(rich_help_panel=START_HERE)
@with_option_groups
@watchable
def status(as_json: AsJson = False) -> None:
    """Show the components of the running platform. Exit code 0 when all are up, otherwise 1."""
    from penstock.broker.journal.push_journal import read_depth
    from penstock.cli.broker_address import address_of_platform
    from penstock.cli.platform_info import read_health, read_quota_warnings
    from penstock.cli.quota_tables import format_quota_warnings
    from penstock.cli.tables import format_health, format_journal, platform_json, platform_list
    from penstock.embedded.supervision.state import read_state

    settings = load_settings()
    state = read_state(settings.home)
    depth = read_depth(settings)
    address = address_of_platform(state) if state else None
    health = read_health(address) if address else None
    warnings = read_quota_warnings(address) if address and health else []
    if as_json:
        document = {"health": health, "quotaWarnings": warnings}
        print_json(platform_json(state, settings.home, depth) | document)
    elif state is None:
        print(f"Penstock does not run on {settings.home}. Start it with `penstock up`.")
    else:
        lines = (*format_health(health), *format_quota_warnings(warnings), format_journal(depth))
        print_output(platform_list(state), *lines)
    raise typer.Exit(0 if state is not None and state.all_up else 1)


app.command(rich_help_panel=START_HERE)(doctor)
app.command(rich_help_panel=START_HERE)(top)
app.command(rich_help_panel=MORE_COMMANDS)(backup)
app.command(rich_help_panel=MORE_COMMANDS)(bench)
app.command(rich_help_panel=MORE_COMMANDS)(restore)
app.command("scaler", rich_help_panel=MORE_COMMANDS)(run_scaler_command)
app.command(rich_help_panel=START_HERE)(push)
app.command(rich_help_panel=START_HERE)(pop)
app.command(rich_help_panel=START_HERE)(ack)


@app.command(rich_help_panel=MORE_COMMANDS)
def logs(
    component: Annotated[
        str, typer.Argument(help="A component that `penstock status` lists, or `supervisor`.")
    ],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines as they arrive.")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="Number of lines from the end of the log.")
    ] = 50,
) -> None:
    """Show the log of one component."""
    from penstock.cli.platform_info import find_log
    from penstock.embedded.supervision import logs as log_files

    log = find_log(load_settings().home, component)
    for line in log_files.read_last_lines(log, lines):
        print(line)
    try:
        for line in log_files.follow(log) if follow else ():
            print(line, flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command(rich_help_panel=MORE_COMMANDS)
def config(
    search: Annotated[
        str | None, typer.Argument(help="Only settings with this text in the name, group or meaning.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings in force and the source of each value; passwords are masked.

    If a platform runs on the home, its settings are shown.
    """
    from penstock.cli.platform_info import list_settings_with_sources
    from penstock.cli.settings_list import settings_json, settings_list
    from penstock.embedded.supervision.state import read_state

    settings = load_settings()
    state = read_state(settings.home)
    rows = list_settings_with_sources(settings, running=state.settings if state else None)
    matches = [row for row in rows if search is None or row.matches(search)]
    if not matches:
        raise InvalidRequest(f"No setting has {search!r} in it. `penstock config` lists all settings.")
    if as_json:
        print_json(settings_json(matches))
    else:
        print_output(settings_list(matches))


@app.command(rich_help_panel=MORE_COMMANDS)
def migrate(create_database: CreateDatabase = False, as_json: AsJson = False) -> None:
    """Migrate the schemas of PostgreSQL and ClickHouse to this version."""
    from penstock.broker import store_migrations
    from penstock.cli.server_checks import check_servers_to_migrate
    from penstock.embedded.supervision.platform import resolve_server_urls

    settings = resolve_server_urls(load_settings(), "postgres_url", "clickhouse_url")
    check_servers_to_migrate(settings, "postgres_url", "clickhouse_url", create_database=create_database)
    applied = asyncio.run(store_migrations.migrate(settings))
    if as_json:
        print_json({"applied": applied})
    else:
        print("\n".join(applied) if applied else "Nothing to do: the schemas are up to date.")


@app.command(rich_help_panel=MORE_COMMANDS)
def serve(
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Number of broker processes behind the port.")
    ] = None,
) -> None:
    """Run only the broker, with the servers that the settings name."""
    from penstock.access.people.provider_settings import check_provider_settings
    from penstock.broker.journal.push_journal import can_journal
    from penstock.cli.server_checks import check_servers
    from penstock.embedded.servers.ports import BROKER_MODULE, require_port
    from penstock.embedded.supervision.platform import resolve_server_urls
    from penstock.listen_address import check_listen_address

    settings = load_settings()
    check_listen_address(settings)
    check_provider_settings(settings)
    require_port(settings.port, settings.host, "serve")
    settings = resolve_server_urls(settings, *SECRET_URLS)
    # Queues work without Redis and ClickHouse. Without PostgreSQL, a broker that has run before takes pushes.
    may_be_unreachable = {"redis_url", "clickhouse_url", *(["postgres_url"] if can_journal(settings) else [])}
    check_servers(settings, *SECRET_URLS, may_be_unreachable=may_be_unreachable)
    if workers:
        settings = settings.model_copy(update={"workers": workers})
    # The broker replaces this process, so that it does not keep the modules of the command line in memory.
    command = [sys.executable, "-m", BROKER_MODULE]
    os.execve(sys.executable, command, {**os.environ, **as_environment(settings)})


@app.command(rich_help_panel=MORE_COMMANDS)
def version(as_json: AsJson = False) -> None:
    """Show the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        print_version(True)


add_examples(app)

if __name__ == "__main__":
    main()
