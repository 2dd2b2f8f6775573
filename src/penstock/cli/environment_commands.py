"""`penstock env`: create, list, show, limit and delete environments."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Details, Listing
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.quota_options import parse_quota_options
from penstock.cli.quota_tables import quota_listing
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest, UnknownEnvironment

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, DeletionDocument, EnvironmentDocument

environments = typer.Typer(help="Create, list, limit and delete environments.", no_args_is_help=True)

ENVIRONMENTS_PATH = "/api/v1/environments"
QUOTAS_PATH = "/api/v1/quotas"
MAX_ENVIRONMENTS = 1_000
POLL_INTERVAL_S = 0.5

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="organization/project/environment, as in acme/shop/production."),
]


@environments.command("create")
@with_option_groups
def create_environment(name: Name, broker_options: BrokerOptions) -> None:
    """Create an environment. Then create its tokens with --environment."""
    from penstock.cli.broker_client import EnvironmentDocument

    fields = dict(zip(("organization", "project", "environment"), _split(name), strict=True))
    with broker_options.connect() as broker:
        created = broker.post(ENVIRONMENTS_PATH, EnvironmentDocument, fields)
    command = f"  penstock tokens create NAME --scopes produce,consume --environment {created['name']}"
    text = Text(f"Environment {created['name']} exists now. Create a token for it with")
    broker_options.print(created, Group(text, Text(command, no_wrap=True, overflow="ignore")))


@environments.command("ls")
@with_option_groups
@watchable
def list_environments(
    *,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, max=MAX_ENVIRONMENTS, help="Number of environments.")
    ] = MAX_ENVIRONMENTS,
    broker_options: BrokerOptions,
) -> None:
    """List environments: all for platform administrators, your own otherwise."""
    from penstock.cli.broker_client import EnvironmentPageDocument

    with broker_options.connect() as broker:
        page = broker.get(ENVIRONMENTS_PATH, EnvironmentPageDocument, limit=limit)
    broker_options.print(page["environments"], _environment_listing(page["environments"]))


@environments.command("show")
@with_option_groups
@watchable
def show_environment(name: Name, broker_options: BrokerOptions) -> None:
    """Show an environment with its quotas, or how far its deletion has come."""
    from penstock.cli.broker_client import EnvironmentDocument

    with broker_options.connect() as broker:
        document = broker.get(_environment_path(name), EnvironmentDocument)
    broker_options.print(document, _environment_details(document))


@environments.command("quotas")
@with_option_groups
def show_quotas(
    *,
    name: Name,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=LIMIT",
            help="Change a quota, such as requestsPerSecond=100, or remove it: queues=none; can be repeated.",
        ),
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Show the quotas of an environment and what is used of them, or change quotas."""
    from penstock.cli.broker_client import EnvironmentDocument, QuotasDocument

    path = _environment_path(name)
    limits = parse_quota_options("--set", changes or [])
    with replace(broker_options, environment=name).connect() as broker:
        if limits:
            current = broker.get(path, EnvironmentDocument)["quotas"]
            broker.put(path, EnvironmentDocument, {"quotas": {**current, **limits}})
        document = broker.get(QUOTAS_PATH, QuotasDocument)
    broker_options.print(document, quota_listing(document))


@environments.command("rm")
@with_option_groups
def delete_environment(
    *,
    name: Name,
    yes: SkipConfirmation = False,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until all is deleted, and show the progress."),
    ] = True,
    broker_options: BrokerOptions,
) -> None:
    """Delete an environment with all its queues, tasks, dead letters, alerts, tokens and metrics."""
    from penstock.cli.broker_client import EnvironmentDocument

    path = _environment_path(name)
    with broker_options.connect() as broker:
        document = broker.get(path, EnvironmentDocument)
        if not (yes or broker_options.as_json or document["deletion"]):
            question = f"Delete {name} with its {document['queues']} durable queues and all else in it?"
            typer.confirm(question, abort=True, err=True)
        document = broker.delete(path, EnvironmentDocument)
        if wait:
            document["deletion"] = _wait_for_deletion(broker, document)
    ending = "is deleted." if wait else "is being deleted. `penstock env show` shows the progress."
    broker_options.print(document, Text(f"Environment {name} {ending}"))


def _wait_for_deletion(broker: BrokerClient, document: EnvironmentDocument) -> DeletionDocument | None:
    """Show the progress on stderr until the environment is gone; return the last progress."""
    from penstock.cli.broker_client import EnvironmentDocument

    console = Console(stderr=True, highlight=False)
    deletion = document["deletion"]
    with console.status(_progress_text(deletion)) as status:
        while True:
            try:
                deletion = broker.get(_environment_path(document["name"]), EnvironmentDocument)["deletion"]
            except UnknownEnvironment:
                return deletion
            status.update(_progress_text(deletion))
            time.sleep(POLL_INTERVAL_S)


def _progress_text(deletion: DeletionDocument | None) -> str:
    if not deletion or "step" not in deletion:  # no broker works on it yet
        return "The deletion starts."
    counts = f"{deletion['queues']} queues, {deletion['tasks']} tasks, {deletion['rows']} rows deleted"
    return f"{counts}; {deletion['note'] or 'now: ' + deletion['step']}"


def _split(name: str) -> list[str]:
    names = name.split("/")
    if len(names) != 3 or not all(names):
        raise InvalidRequest(f"{name!r} is no environment. Write organization/project/environment.")
    return names


def _environment_path(name: str) -> str:
    return "/".join([ENVIRONMENTS_PATH, *(quote(part, safe="") for part in _split(name))])


def _environment_listing(documents: list[EnvironmentDocument]) -> RenderableType:
    listing = Listing("Environment", "Queues", "Created", "State", "Quotas", folding=("Quotas",))
    for document in documents:
        is_being_deleted = document["deletion"] is not None
        listing.add_row(
            escape(document["name"]),
            str(document["queues"]),
            document["createdAt"][:10],
            "[yellow]being deleted[/yellow]" if is_being_deleted else "[green]in use[/green]",
            Text(_quotas_text(document)),
        )
    return listing


def _environment_details(document: EnvironmentDocument) -> Details:
    deletion = document["deletion"]
    values = [
        ("created", f"{document['createdAt'][:19].replace('T', ' ')} UTC"),
        ("durable queues", str(document["queues"])),
        ("quotas", _quotas_text(document)),
    ]
    if deletion is not None:
        values.append(("being deleted", _progress_text(deletion)))
    return Details(Text(document["name"]), [(label, Text(value), True) for label, value in values])


def _quotas_text(document: EnvironmentDocument) -> str:
    return ", ".join(f"{name} {limit:g}" for name, limit in document["quotas"].items()) or "–"
