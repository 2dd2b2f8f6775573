"""Options that several commands share, and what they lead to: JSON output and a connection to the broker."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from penstock.cli.json_output import print_json
from penstock.cli.listing import print_output
from penstock.config import load_settings
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient

TOKEN_VARIABLE, ENVIRONMENT_VARIABLE = "PENSTOCK_TOKEN", "PENSTOCK_ENVIRONMENT"

BROKER_PANEL = "Broker"
OUTPUT_PANEL = "Output"
"""Headings in the help of the options that many commands share."""

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel=OUTPUT_PANEL)
]
CreateDatabase = Annotated[
    bool,
    typer.Option("--create-database", help="Create the database of PENSTOCK_POSTGRES_URL if it is missing."),
]
BrokerUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="URL of the broker. Default: the platform that runs on the home.",
        rich_help_panel=BROKER_PANEL,
    ),
]
BrokerToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        rich_help_panel=BROKER_PANEL,
        help="Secret of a token; @FILE reads it from a file, - from the standard input. Other users of this "
        "machine see the options of a command, so prefer the variable.",
    ),
]
BrokerEnvironment = Annotated[
    str | None,
    typer.Option(
        "--environment",
        envvar=ENVIRONMENT_VARIABLE,
        rich_help_panel=BROKER_PANEL,
        help="Environment, as in acme/shop/production. Default: the one of the token.",
    ),
]
SkipConfirmation = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The broker that a command calls, and the format of its output."""

    as_json: AsJson = False
    url: BrokerUrl = None
    token: BrokerToken = None
    environment: BrokerEnvironment = None

    def connect(self) -> BrokerClient:
        from penstock.cli.broker_client import BrokerClient

        token = read_token(self.token) if self.token else None
        return BrokerClient.from_settings(load_settings(), self.url, token, self.environment)

    def print(self, document: object, text: RenderableType) -> None:
        """Print the document as JSON with `--json`, else the text."""
        if self.as_json:
            print_json(document)
        else:
            print_output(text)


def read_token(text: str) -> str:
    """Return the secret that `--token` names: itself, the content of @FILE, or - for the standard input.

    Raises InvalidRequest if the file cannot be read, or if no HTTP header can carry the secret.
    """
    try:
        secret = sys.stdin.read() if text == "-" else text
        secret = Path(text[1:]).read_text() if text.startswith("@") else secret
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidRequest(f"The file {text[1:]} of --token cannot be read: {reason}.") from None
    secret = secret.strip()
    if not (secret and secret.isascii() and secret.isprintable()) or " " in secret:
        raise InvalidRequest(
            f"The token is empty or has characters that no token has. Check --token and {TOKEN_VARIABLE}."
        )
    return secret


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by one option per field.

    Typer makes one option of each parameter. Commands with the same options share a dataclass this way.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    option_groups: dict[str, type] = {}
    for parameter in signature.parameters.values():
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            option_groups[parameter.name] = parameter.annotation
            parameters += inspect.signature(parameter.annotation, eval_str=True).parameters.values()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**options: object) -> None:
        for name, option_group in option_groups.items():
            values = {field.name: options.pop(field.name) for field in fields(option_group)}
            options[name] = option_group(**values)
        command(**options)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
