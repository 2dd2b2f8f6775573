"""Options that several commands share, and what they lead to: JSON output and a connection to the broker."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from penstock.cli.listing import print_output
from penstock.config import load_settings

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
CreateDatabase = Annotated[
    bool,
    typer.Option("--create-database", help="Create the database of PENSTOCK_POSTGRES_URL if it is missing."),
]
BrokerUrl = Annotated[
    str | None, typer.Option("--url", help="URL of the broker. Default: the platform that runs on the home.")
]
BrokerToken = Annotated[str | None, typer.Option("--token", help="Access token.")]
SkipConfirmation = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The broker that a command calls, and the format of its output."""

    as_json: AsJson = False
    url: BrokerUrl = None
    token: BrokerToken = None

    def connect(self) -> BrokerClient:
        return connect_to_broker(self.url, self.token)

    def print(self, document: object, text: RenderableType) -> None:
        """Print the document as JSON with `--json`, else the text."""
        if self.as_json:
            print_json(document)
        else:
            print_output(text)


def connect_to_broker(url: str | None, token: str | None = None) -> BrokerClient:
    from penstock.cli.broker_client import BrokerClient

    return BrokerClient.from_settings(load_settings(), url, token)


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


def print_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))
