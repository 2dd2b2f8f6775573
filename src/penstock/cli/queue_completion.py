"""Complete names in a shell: ask the running broker for its queues, consumer groups and error groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.config import load_settings
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient

COMPLETION_TIMEOUT_S = 1.0
MAX_NAMES = 200


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues of both kinds that begin with the text; none without a broker."""
    from penstock.cli.broker_client import QueuePageDocument

    names: set[str] = set()
    for path in ("/api/v1/resources/queues", "/api/v1/run-queues"):
        try:
            with _connect(context) as broker:
                page = broker.get(path, QueuePageDocument, search=incomplete or None, limit=MAX_NAMES)
        except PenstockError:
            continue  # a shell shows no error in the middle of a command; run queues need Redis
        names.update(queue["name"] for queue in page["queues"])
    return sorted(name for name in names if name.startswith(incomplete))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of consumer groups that begin with the text; none without a broker."""
    try:
        with _connect(context) as broker:
            groups = broker.get_list("/api/v1/consumer-groups", limit=MAX_NAMES)
    except PenstockError:
        return []
    return sorted({str(group["name"]) for group in groups if str(group["name"]).startswith(incomplete)})


def complete_error_group(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the error groups of dead letters whose id begins with the text, each with its error."""
    from penstock.cli.broker_client import ErrorGroupPageDocument

    queue = context.params.get("queue")
    try:
        with _connect(context) as broker:
            page = broker.get("/api/v1/dlq/groups", ErrorGroupPageDocument, queue=queue, limit=MAX_NAMES)
    except PenstockError:
        return []
    groups = [(str(group["errorGroup"]), str(group["error"])) for group in page["groups"]]
    return [(name, error) for name, error in groups if name.startswith(incomplete)]


def _connect(context: typer.Context) -> BrokerClient:
    """Connect to the broker that the options before the word name."""
    from penstock.cli.broker_address import find_broker
    from penstock.cli.broker_client import BrokerClient
    from penstock.cli.options import read_token

    url, token = context.params.get("url"), context.params.get("token")
    return BrokerClient(
        find_broker(load_settings(), url),
        read_token(token) if token and token != "-" else None,
        context.params.get("environment"),
        COMPLETION_TIMEOUT_S,
    )
