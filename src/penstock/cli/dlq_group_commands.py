"""`penstock dlq groups | resolve | ignore | open | assign`: error groups, their states and owners."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

import typer

from penstock.cli.dlq_options import GroupOption, MaxRows, QueueOption, check_time
from penstock.cli.dlq_tables import describe_ignored_until, error_group_list
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.cli.queue_completion import complete_error_group
from penstock.cli.queue_kind import require_queue
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest

MAX_COUNT = 1_000_000_000

ErrorGroupArgument = Annotated[
    str,
    typer.Argument(help="The error group, as `dlq groups` shows it.", autocompletion=complete_error_group),
]


class GroupState(StrEnum):
    """The states of an error group."""

    NEW = "new"
    BACK_AGAIN = "back-again"
    OPEN = "open"
    IGNORED = "ignored"
    RESOLVED = "resolved"


@with_option_groups
@watchable
def groups(
    *,
    queue: QueueOption = None,
    group: GroupOption = None,
    state: Annotated[
        list[GroupState] | None, typer.Option(help="Only groups in this state. Can be repeated.")
    ] = None,
    hours: Annotated[int, typer.Option(min=1, max=168, help="Hours that the trend covers.")] = 24,
    limit: MaxRows = 20,
    broker_options: BrokerOptions,
) -> None:
    """Group dead letters by error, the most frequent error first, with states and an hourly trend."""
    from penstock.cli.broker_client import ErrorGroupPageDocument

    states = [each.value.replace("-", "_") for each in state or ()]
    with broker_options.connect() as broker:
        page = broker.get(
            "/api/v1/dlq/groups",
            ErrorGroupPageDocument,
            queue=queue,
            consumerGroup=group,
            state=states or None,
            hours=hours,
            limit=limit,
        )
        if queue and not page["groups"]:
            require_queue(broker, queue)
    broker_options.print(page["groups"], error_group_list(page))


@with_option_groups
def resolve(
    error_group: ErrorGroupArgument, *, queue: QueueOption = None, broker_options: BrokerOptions
) -> None:
    """Declare an error group resolved. It is back again at its next dead letter."""
    _change(error_group, queue, {"state": "resolved"}, "Resolved in {queues}.", broker_options)


@with_option_groups
def ignore(
    error_group: ErrorGroupArgument,
    *,
    queue: QueueOption = None,
    until: Annotated[
        str | None, typer.Option(help="Until this time (ISO 8601, UTC).", callback=check_time)
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, max=MAX_COUNT, help="Until so many more dead letters.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, max=MAX_COUNT, help="Until more than so many in one hour.")
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Ignore an error group until a time, a count or a rate, whichever comes first; without any, for good."""
    conditions = {"time": until, "count": count, "ratePerHour": rate}
    conditions = {name: value for name, value in conditions.items() if value is not None}
    body: dict[str, object] = {"state": "ignored"} | ({"ignoredUntil": conditions} if conditions else {})
    text = f"Ignored in {{queues}} {describe_ignored_until(conditions)}."
    _change(error_group, queue, body, text, broker_options)


@with_option_groups
def open_group(
    error_group: ErrorGroupArgument, *, queue: QueueOption = None, broker_options: BrokerOptions
) -> None:
    """Mark an error group as open: an operator works on it, and it is neither ignored nor resolved."""
    _change(error_group, queue, {"state": "open"}, "Open in {queues}.", broker_options)


@with_option_groups
def assign(
    error_group: ErrorGroupArgument,
    owner: Annotated[str | None, typer.Argument(help="A person or a team.")] = None,
    *,
    note: Annotated[str | None, typer.Option(help="A note; an empty one removes it.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the owner.")] = False,
    queue: QueueOption = None,
    broker_options: BrokerOptions,
) -> None:
    """Set or remove the owner of an error group, and its note."""
    if clear and owner is not None:
        raise InvalidRequest("Give an owner or --clear, not both.")
    body: dict[str, object] = {}
    if clear or owner is not None:
        body["owner"] = owner
    if note is not None:
        body["note"] = note or None
    if not body:
        raise InvalidRequest("Nothing changes. Give an owner, --note or --clear.")
    _change(error_group, queue, body, "Changed in {queues}.", broker_options)


def _change(
    error_group: str, queue: str | None, body: dict[str, object], text: str, broker_options: BrokerOptions
) -> None:
    """Change an error group and print the text with the names of its queues."""
    from penstock.cli.broker_client import ChangedErrorGroupDocument

    parameters = f"?{urlencode({'queue': queue})}" if queue else ""
    path = f"/api/v1/dlq/error-groups/{_check_error_group(error_group)}{parameters}"
    with broker_options.connect() as broker:
        changed = broker.patch(path, ChangedErrorGroupDocument, body)
    broker_options.print(changed, text.format(queues=", ".join(changed["queues"])))


def _check_error_group(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not an error group. `penstock dlq groups` shows the error groups."
        ) from None


def add_group_commands(dlq: typer.Typer) -> None:
    """Add the commands of error groups to `penstock dlq`."""
    for name, command in (
        ("groups", groups),
        ("resolve", resolve),
        ("ignore", ignore),
        ("open", open_group),
        ("assign", assign),
    ):
        dlq.command(name)(command)
