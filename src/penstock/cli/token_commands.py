"""`penstock tokens`: create, list, show, rotate and revoke tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import quote
from uuid import UUID

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.durations import parse_duration_s
from penstock.cli.listing import Details, Listing
from penstock.cli.options import TOKEN_VARIABLE, BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.quota_options import parse_quota_options
from penstock.cli.watch import watchable
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, IssuedTokenDocument, TokenDocument

tokens = typer.Typer(help="Create, list, rotate and revoke access tokens.", no_args_is_help=True)

TOKENS_PATH = "/api/v1/tokens"
MAX_TOKENS = 1_000
ADMIN_NAME = "admin"
_STATE_COLOURS = {"active": "green", "expired": "yellow", "revoked": "red"}

NameOrId = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the token.")]


@tokens.command("create")
@with_option_groups
def create_token(
    *,
    name: Annotated[
        str | None, typer.Argument(help="Name of the token: what uses it. With --admin, default: admin.")
    ] = None,
    scopes: Annotated[
        str | None,
        typer.Option(
            help="What it allows, with commas: read, read:payload, produce, consume, operate, configure, "
            "admin."
        ),
    ] = None,
    queues: Annotated[
        str | None, typer.Option(help="Only these queues; names or patterns such as orders-*, with commas.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Only these consumer groups; names or patterns, with commas.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="It expires after this time, such as 12h or 90d. Default: never.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LIMIT", help="A quota such as requestsPerSecond=100; can be repeated."),
    ] = None,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="A platform administrator: every scope in every environment. Needs no token, but the "
            "settings or the home of the broker: it is stored directly in PostgreSQL.",
        ),
    ] = False,
    broker_options: BrokerOptions,
) -> None:
    """Create a token. Its secret is shown once."""
    from penstock.cli.broker_client import IssuedTokenDocument

    expires_in_s = parse_duration_s("--expires", expires) if expires else None
    if admin:
        if scopes or queues or groups or quota:
            raise InvalidRequest(
                "--admin allows everything. Leave out --scopes, --queues, --groups and --quota."
            )
        issued = _create_admin_token(name or ADMIN_NAME, expires_in_s)
    elif name is None or scopes is None:
        raise InvalidRequest(
            "A token needs a name and --scopes, such as `penstock tokens create ci --scopes read,produce`."
        )
    else:
        fields = {
            "name": name,
            "scopes": _split(scopes),
            "queues": _split(queues) if queues is not None else None,
            "groups": _split(groups) if groups is not None else None,
            "expiresInS": expires_in_s,
            "quotas": parse_quota_options("--quota", quota) if quota else None,
        }
        body = {field: value for field, value in fields.items() if value is not None}
        with broker_options.connect() as broker:
            issued = broker.post(TOKENS_PATH, IssuedTokenDocument, body)
    broker_options.print(issued, _describe_issued(issued))


@tokens.command("ls")
@with_option_groups
@watchable
def list_tokens(
    *,
    include_revoked: Annotated[bool, typer.Option("--all", help="Also revoked tokens.")] = False,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, max=MAX_TOKENS, help="Number of tokens.")
    ] = MAX_TOKENS,
    broker_options: BrokerOptions,
) -> None:
    """List the tokens of the environment. Secrets are never shown."""
    from penstock.cli.broker_client import TokenPageDocument

    with broker_options.connect() as broker:
        revoked = "true" if include_revoked else "false"
        page = broker.get(TOKENS_PATH, TokenPageDocument, revoked=revoked, limit=limit)
    broker_options.print(page["tokens"], _token_listing(page["tokens"]))


@tokens.command("show")
@with_option_groups
@watchable
def show_token(name: NameOrId, broker_options: BrokerOptions) -> None:
    """Show what a token allows, its secrets by their first characters, and its last use."""
    with broker_options.connect() as broker:
        document = _find_token(broker, name)
    broker_options.print(document, _token_details(document))


@tokens.command("rotate")
@with_option_groups
def rotate_token(
    *,
    name: NameOrId,
    overlap: Annotated[
        str, typer.Option(help="How long the previous secret still works, such as 0s, 1h or 7d.")
    ] = "24h",
    broker_options: BrokerOptions,
) -> None:
    """Give a token a new secret. The previous one works until the end of the overlap."""
    from penstock.cli.broker_client import IssuedTokenDocument

    body = {"overlapS": parse_duration_s("--overlap", overlap, may_be_zero=True)}
    with broker_options.connect() as broker:
        path = _token_path(_find_token(broker, name))
        issued = broker.post(f"{path}/rotate", IssuedTokenDocument, body)
    broker_options.print(issued, _describe_issued(issued))


@tokens.command("revoke")
@with_option_groups
def revoke_token(*, name: NameOrId, yes: SkipConfirmation = False, broker_options: BrokerOptions) -> None:
    """End a token for good. Brokers refuse it within two seconds."""
    from penstock.cli.broker_client import TokenDocument

    with broker_options.connect() as broker:
        document = _find_token(broker, name)
        if not (yes or broker_options.as_json):
            last_used = f"last used {_time_text(document['lastUsedAt'])}"
            typer.confirm(f"Revoke the token {document['name']} ({last_used})?", abort=True, err=True)
        revoked = broker.delete(_token_path(document), TokenDocument)
    broker_options.print(revoked, Text(f"Token {revoked['name']} is revoked."))


def _create_admin_token(name: str, expires_in_s: float | None) -> IssuedTokenDocument:
    from penstock.access.admin_token import create_admin_token
    from penstock.config import load_settings
    from penstock.embedded.supervision.platform import resolve_server_urls

    settings = resolve_server_urls(load_settings(), "postgres_url")
    document = asyncio.run(create_admin_token(settings.postgres_url, name, expires_in_s))
    return cast("IssuedTokenDocument", document)


def _find_token(broker: BrokerClient, name: str) -> TokenDocument:
    """Return the token with this name or id. Raises InvalidRequest if there is none."""
    from penstock.cli.broker_client import TokenDocument, TokenPageDocument

    try:
        return broker.get(f"{TOKENS_PATH}/{UUID(name)}", TokenDocument)
    except ValueError:
        page = broker.get(TOKENS_PATH, TokenPageDocument, name=name)
    if not page["tokens"]:
        raise InvalidRequest(f"There is no token {name!r}. `penstock tokens ls` lists the tokens.")
    return page["tokens"][0]


def _token_path(document: TokenDocument) -> str:
    return f"{TOKENS_PATH}/{quote(document['id'], safe='')}"


def _split(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _describe_issued(issued: IssuedTokenDocument) -> RenderableType:
    lines = [
        Text(f"Token {issued['name']} for {_allowed_text(issued)}, in {issued['environment']}."),
        Text("Its secret is shown only now:\n"),
        Text(f"  {issued['secret']}\n", style="bold", no_wrap=True, overflow="ignore"),
        Text(f"Keep it in a secret store. Clients and `penstock` read it from {TOKEN_VARIABLE}."),
    ]
    if len(issued["secrets"]) > 1:
        end = _time_text(issued["secrets"][1]["expiresAt"])
        lines.append(Text(f"The previous secret {issued['secrets'][1]['prefix']}… works until {end}."))
    return Group(*lines)


def _allowed_text(document: TokenDocument) -> str:
    if document["platformAdmin"]:
        return "a platform administrator"
    limits = [
        f"{noun} {', '.join(patterns)}"
        for noun, patterns in (("queues", document["queues"]), ("groups", document["groups"]))
        if patterns
    ]
    return "; only ".join([", ".join(document["scopes"]), *limits])


def _token_listing(documents: list[TokenDocument]) -> RenderableType:
    if not documents:
        return "There are no tokens. Create one with `penstock tokens create`."
    listing = Listing("Token", "Secret", "State", "Allows", "Expires", "Last used", folding=("Allows",))
    for document in documents:
        colour = _STATE_COLOURS[document["state"]]
        listing.add_row(
            escape(document["name"]),
            " ".join(f"{secret['prefix']}…" for secret in document["secrets"]),
            f"[{colour}]{document['state']}[/{colour}]",
            Text(_allowed_text(document)),
            _time_text(document["expiresAt"])[:10],
            _time_text(document["lastUsedAt"])[:10],
        )
    return listing


def _token_details(document: TokenDocument) -> Details:
    secrets = ", ".join(
        f"{secret['prefix']}…" + (f" until {_time_text(secret['expiresAt'])}" if secret["expiresAt"] else "")
        for secret in document["secrets"]
    )
    values = [
        ("id", document["id"]),
        ("state", document["state"]),
        ("environment", document["environment"]),
        ("allows", _allowed_text(document)),
        ("quotas", ", ".join(f"{name} {limit}" for name, limit in document["quotas"].items()) or "none"),
        ("secrets", secrets or "–"),
        ("created", f"{_time_text(document['createdAt'])} by {document['createdBy']}"),
        ("expires", _time_text(document["expiresAt"])),
        ("last used", _time_text(document["lastUsedAt"])),
    ]
    if document["revokedAt"]:
        values.append(("revoked", _time_text(document["revokedAt"])))
    return Details(
        Text(document["name"]), [(label, Text(value), label == "allows") for label, value in values]
    )


def _time_text(moment: str | None) -> str:
    return f"{moment[:19].replace('T', ' ')} UTC" if moment else "never"
