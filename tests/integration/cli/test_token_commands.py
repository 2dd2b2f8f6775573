"""`penstock tokens` against a broker on a real socket."""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.durable.access.audit_store import AuditCursor, AuditFilter, AuditStore
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from penstock.model import DEFAULT_SCOPE
from tests.integration.client.broker_server import run_broker

NARROW = {"COLUMNS": "80"}


@pytest_asyncio.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, metrics_enabled=False, authentication="required") as address:
        yield address


async def run_command(*command: str, token: str = "", answer: str = "", **environment: str) -> Result:
    variables = {**NARROW, "PENSTOCK_TOKEN": token, **environment}
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, input=answer, env=variables))


async def run(*arguments: str, **options: str) -> Result:
    return await run_command("tokens", *arguments, **options)


async def run_json(*arguments: str, **options: str) -> Any:
    result = await run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest_asyncio.fixture
async def admin(url: str, database_url: str) -> str:
    """The secret of an administrator, created directly in PostgreSQL while the broker runs."""
    issued = await run_json("create", "--admin", PENSTOCK_POSTGRES_URL=database_url)
    assert (issued["name"], issued["platformAdmin"]) == ("admin", True)
    secret: str = issued["secret"]
    return secret


async def test_the_first_token_is_created_without_one(url: str, database_url: str, admin: str) -> None:
    [token] = await run_json("ls", "--url", url, token=admin)
    assert (token["name"], token["createdBy"]) == ("admin", "local")
    again = await run("create", "--admin", PENSTOCK_POSTGRES_URL=database_url)
    assert isinstance(again.exception, PenstockError)
    assert "'admin' exists" in again.exception.detail


async def test_the_audit_has_the_first_token_without_its_secret(admin: str, database: Database) -> None:
    [entry] = await AuditStore(database).list_entries(
        AuditFilter(environment=DEFAULT_SCOPE), AuditCursor(), limit=10
    )
    assert (entry.action, entry.subject) == ("penstock tokens create --admin", f"local:{getpass.getuser()}")
    assert entry.after is not None
    assert json.loads(entry.after)["name"] == "admin"
    assert admin not in str(entry)


async def test_a_token_is_created_shown_rotated_and_revoked(url: str, admin: str) -> None:
    options = ("--scopes", "read, produce", "--queues", "orders-*", "--expires", "90d", "--url", url)
    created = await run("create", "ci", *options, token=admin)
    assert created.exit_code == 0, created.output
    [secret] = [line.strip() for line in created.stdout.splitlines() if line.strip().startswith("pk_")]
    assert "PENSTOCK_TOKEN" in created.stdout
    shown = await run("show", "ci", "--url", url, token=admin)
    assert "read, produce; only queues orders-*" in shown.stdout
    assert secret not in shown.stdout
    assert secret[:10] in shown.stdout
    listed = await run("ls", "--url", url, token=admin)
    assert all(len(line) <= 80 for line in listed.stdout.splitlines())
    assert "ci" in listed.stdout
    assert secret not in listed.stdout
    rotated = await run_json("rotate", "ci", "--overlap", "1h", "--url", url, token=admin)
    assert [entry["prefix"] for entry in rotated["secrets"]] == [rotated["secret"][:10], secret[:10]]
    refused = await run("revoke", "ci", "--url", url, token=admin, answer="n\n")
    assert refused.exit_code == 1
    revoked = await run("revoke", "ci", "--url", url, token=admin, answer="y\n")
    assert "Token ci is revoked." in revoked.stdout
    assert [token["name"] for token in await run_json("ls", "--url", url, token=admin)] == ["admin"]
    assert len(await run_json("ls", "--all", "--url", url, token=admin)) == 2


async def test_an_administrator_creates_tokens_in_another_environment(url: str, admin: str) -> None:
    created = await run_command("environments", "create", "acme/shop/production", "--url", url, token=admin)
    assert created.exit_code == 0, created.output
    options = ("--scopes", "read,produce", "--environment", "acme/shop/production", "--url", url)
    issued = await run_json("create", "ci", *options, token=admin)
    assert issued["environment"] == "acme/shop/production"
    assert [token["name"] for token in await run_json("ls", "--url", url, token=admin)] == ["admin"]
    in_shop = {"token": admin, "PENSTOCK_ENVIRONMENT": "acme/shop/production"}
    assert [token["name"] for token in await run_json("ls", "--url", url, **in_shop)] == ["ci"]
    alerts = ("alerts", "ls", "--url", url)
    assert (await run_command(*alerts, token=issued["secret"])).exit_code == 0
    elsewhere = await run_command(*alerts, "--environment", "default/default/default", token=issued["secret"])
    assert isinstance(elsewhere.exception, PenstockError)
    assert "'default/default/default' does not exist" in elsewhere.exception.detail


async def test_every_command_sends_the_token(url: str, admin: str) -> None:
    for command in (("queues", "rm", "nothing", "--yes"), ("dlq", "ls"), ("alerts", "ls")):
        for token, is_refused in ((admin, False), ("", True)):
            result = await run_command(*command, "--url", url, "--json", token=token)
            is_unauthorized = "PENSTOCK_TOKEN" in str(result.exception)
            assert is_unauthorized is is_refused, result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "ci"), "needs a name and --scopes"),
        (("create", "ci", "--scopes", "write"), "Unknown scope 'write'"),
        (("create", "ci", "--scopes", "read", "--expires", "soon"), "--expires 'soon' is not a time"),
        (("create", "--admin", "--scopes", "read"), "Leave out --scopes"),
        (("show", "nothing"), "There is no token 'nothing'"),
        (("rotate", "admin", "--overlap", "9999d"), "--overlap must be between 0 and 31 days"),
    ],
)
async def test_wrong_arguments_are_refused(
    url: str, admin: str, arguments: tuple[str, ...], text: str
) -> None:
    result = await run(*arguments, "--url", url, token=admin)
    assert isinstance(result.exception, PenstockError), result.output
    assert text in result.exception.detail


async def test_a_missing_token_says_how_to_get_one(url: str) -> None:
    result = await run("ls", "--url", url)
    assert isinstance(result.exception, PenstockError)
    assert "penstock tokens create --admin" in result.exception.detail
