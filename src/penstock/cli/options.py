"""Options that several commands share, and what they lead to: JSON output and a connection to the broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.config import load_settings

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
BrokerUrl = Annotated[
    str | None, typer.Option("--url", help="URL of the broker. Default: host and port of the settings.")
]
BrokerToken = Annotated[
    str | None, typer.Option("--token", help="Access token. Default: the first one of PENSTOCK_DLQ_TOKENS.")
]
SkipConfirmation = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def connect_to_broker(url: str | None, token: str | None = None) -> BrokerClient:
    from penstock.cli.broker_client import BrokerClient

    return BrokerClient.from_settings(load_settings(), url, token)


def print_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))
