"""`penstock alerts channels`, `send-test`, `deliveries` and `retry`: channels and delivery of notices."""

from __future__ import annotations

import base64
import os
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape

from penstock.cli.listing import Listing
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.watch import watchable

if TYPE_CHECKING:
    from penstock.cli.alert_documents import AlertChannelDocument, AlertNoticeDocument
    from penstock.cli.broker_client import BrokerClient

channels = typer.Typer(help="List, add and remove the channels that notices go to.", no_args_is_help=True)

TEST_TIMEOUT_S = 30.0
TEST_POLL_INTERVAL_S = 0.2
SIGNING_SECRET_BYTES = 32

_STATE_COLOURS = {"sent": "green", "pending": "yellow", "failed": "red"}


class Kind(StrEnum):
    """Kinds of channels."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"
    PAGERDUTY = "pagerduty"
    TEAMS = "teams"
    ALERTMANAGER = "alertmanager"


class Security(StrEnum):
    """How the connection to an SMTP server is encrypted."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class DeliveryState(StrEnum):
    """States of a notice."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


Name = Annotated[str, typer.Argument(help="Name of the channel, as rules use it.")]


@channels.command("ls")
@with_option_groups
@watchable
def list_channels(broker_options: BrokerOptions) -> None:
    """List the channels. Secrets are never shown."""
    from penstock.cli.alert_documents import AlertChannelPageDocument

    with broker_options.connect() as broker:
        page = broker.get("/api/v1/alert-channels", AlertChannelPageDocument)
    broker_options.print(page["channels"], _channel_listing(page["channels"]))


@channels.command("add", hidden=True)  # the name until 0.1
@channels.command("create")
@with_option_groups
def add_channel(
    *,
    name: Name,
    kind: Annotated[Kind, typer.Option(help="What receives the notices.")],
    target_url: Annotated[
        str | None,
        typer.Option(
            "--to-url", help="URL of the receiver: webhook, slack, teams, alertmanager; pagerduty: EU region."
        ),
    ] = None,
    signing_secret: Annotated[
        list[str] | None,
        typer.Option(
            "--signing-secret", help="webhook: secret that signs notices. Default: a new one, shown once."
        ),
    ] = None,
    routing_key: Annotated[
        str | None, typer.Option(envvar="PAGERDUTY_ROUTING_KEY", help="pagerduty: integration key.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="email: SMTP server.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="email: port of the server.")] = None,
    security: Annotated[Security | None, typer.Option(help="email: default starttls.")] = None,
    sender: Annotated[str | None, typer.Option("--from", help="email: address of the sender.")] = None,
    recipient: Annotated[
        list[str] | None, typer.Option("--to", help="email: address of a recipient; repeat it for more.")
    ] = None,
    username: Annotated[str | None, typer.Option(help="email, alertmanager: name of the login.")] = None,
    password: Annotated[
        str | None,
        typer.Option(
            envvar="ALERT_CHANNEL_PASSWORD",
            help="email, alertmanager: password of the login; a prompt reads it if only --username is set.",
        ),
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Add a channel. Try it with `penstock alerts send-test`."""
    from penstock.cli.alert_documents import AlertChannelDocument

    if username and not password:
        password = typer.prompt("Password", hide_input=True, err=True)
    new_secret = None
    if kind is Kind.WEBHOOK and not signing_secret:
        new_secret = "whsec_" + base64.b64encode(os.urandom(SIGNING_SECRET_BYTES)).decode()
        signing_secret = [new_secret]
    fields = {
        "name": name,
        "kind": kind.value,
        "url": target_url,
        "signingSecrets": signing_secret,
        "routingKey": routing_key,
        "host": host,
        "port": port,
        "security": security.value if security else None,
        "from": sender,
        "to": recipient,
        "username": username,
        "password": password,
    }
    body = {field: value for field, value in fields.items() if value}
    with broker_options.connect() as broker:
        channel = broker.post("/api/v1/alert-channels", AlertChannelDocument, body)
    text = f"Channel {escape(channel['name'])} sends to {escape(channel['target'])}."
    if new_secret:
        text += f"\nIts signing secret, which is shown only now: {new_secret}"
    broker_options.print({**channel, "signingSecret": new_secret} if new_secret else channel, text)


@channels.command("rm")
@with_option_groups
def remove_channel(name: Name, broker_options: BrokerOptions, yes: SkipConfirmation = False) -> None:
    """Remove a channel with its notices. No rule may use it."""
    from penstock.cli.alert_documents import AlertChannelDocument

    with broker_options.connect() as broker:
        if not (yes or broker_options.as_json):
            typer.confirm(f"Remove channel {name} and its notices?", abort=True)
        document = broker.delete(f"/api/v1/alert-channels/{name}", AlertChannelDocument)
    broker_options.print(document, f"Channel {escape(name)} is removed.")


@with_option_groups
def send_test(name: Name, broker_options: BrokerOptions) -> None:
    """Send a test notice to a channel and wait for the result. Exit code 0 when it was sent, otherwise 1."""
    from penstock.cli.alert_documents import AlertNoticeDocument

    with broker_options.connect() as broker:
        notice = broker.post(f"/api/v1/alert-channels/{name}/test", AlertNoticeDocument)
        notice = _wait_for_attempt(broker, notice)
    broker_options.print(notice, _describe_test(name, notice))
    raise typer.Exit(0 if notice["state"] == DeliveryState.SENT else 1)


@with_option_groups
@watchable
def deliveries(
    *,
    state: Annotated[DeliveryState | None, typer.Option(help="Only notices in this state.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only notices to this channel.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="Number of notices.")] = 20,
    broker_options: BrokerOptions,
) -> None:
    """List notices with the state of their delivery, the latest first."""
    from penstock.cli.alert_documents import AlertNoticePageDocument

    with broker_options.connect() as broker:
        page = broker.get(
            "/api/v1/alert-notices",
            AlertNoticePageDocument,
            state=state.value if state else None,
            channel=channel,
            limit=limit,
        )
    broker_options.print(page["notices"], _notice_listing(page["notices"]))


@with_option_groups
def retry(
    notice_id: Annotated[str, typer.Argument(help="Id of a failed notice, as `alerts deliveries` shows it.")],
    broker_options: BrokerOptions,
) -> None:
    """Send a failed notice again."""
    from penstock.cli.alert_documents import AlertNoticeDocument

    with broker_options.connect() as broker:
        notice = broker.post(f"/api/v1/alert-notices/{notice_id}/retry", AlertNoticeDocument)
    broker_options.print(notice, f"Notice {notice['id']} to {escape(notice['channel'])} is sent again.")


def _wait_for_attempt(broker: BrokerClient, notice: AlertNoticeDocument) -> AlertNoticeDocument:
    """Return the notice after its attempt, or as it is when the wait is over."""
    from penstock.cli.alert_documents import AlertNoticeDocument

    deadline_s = time.monotonic() + TEST_TIMEOUT_S
    while notice["state"] == DeliveryState.PENDING and time.monotonic() < deadline_s:
        time.sleep(TEST_POLL_INTERVAL_S)
        notice = broker.get(f"/api/v1/alert-notices/{notice['id']}", AlertNoticeDocument)
    return notice


def _describe_test(name: str, notice: AlertNoticeDocument) -> str:
    match notice["state"]:
        case DeliveryState.SENT:
            remark = f" {notice['lastError']}" if notice["lastError"] else ""
            return f"[green]Sent[/green] a test notice to {escape(name)}.{escape(remark)}"
        case DeliveryState.FAILED:
            return f"[red]Failed:[/red] {escape(notice['lastError'] or '')}"
    return (
        f"[yellow]Pending[/yellow] after {TEST_TIMEOUT_S:g} s: no sender has tried it. Check with "
        "`penstock status` that the component `alerts` runs."
    )


def _channel_listing(documents: list[AlertChannelDocument]) -> RenderableType:
    if not documents:
        return "There are no channels. Add one with `penstock alerts channels create`."
    listing = Listing("Channel", "Kind", "Sends to", "Enabled", folding=("Sends to",))
    for channel in documents:
        enabled = "yes" if channel["enabled"] else "[yellow]no[/yellow]"
        listing.add_row(escape(channel["name"]), channel["kind"], escape(channel["target"]), enabled)
    return listing


def _notice_listing(documents: list[AlertNoticeDocument]) -> RenderableType:
    if not documents:
        return "There are no notices."
    listing = Listing(
        *("Id", "Written", "Rule", "Transition", "Channel", "State", "Attempts", "Last error"),
        folding=("Last error",),
    )
    for notice in documents:
        colour = _STATE_COLOURS[notice["state"]]
        listing.add_row(
            notice["id"],
            notice["createdAt"][:19].replace("T", " "),
            escape(notice["rule"]),
            notice["transition"],
            escape(notice["channel"]),
            f"[{colour}]{notice['state']}[/{colour}]",
            str(notice["attempts"]),
            escape(notice["lastError"] or ""),
        )
    return listing
