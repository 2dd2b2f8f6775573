"""`penstock audit` against a broker on a real socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from penstock.durable.pool import Database
from penstock.errors import PenstockError
from tests.integration.cli.test_token_commands import admin, run_command, url

__all__ = ["admin", "url"]

ODD_NAME = "orders\u2028eu"
"""Some programs take this character for the end of a line; JSON does not."""


async def run(*arguments: str, **options: str) -> Result:
    return await run_command("audit", *arguments, **options)


async def run_json(*arguments: str, **options: str) -> Any:
    result = await run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def make_changes(url: str, secret: str) -> None:
    """Send two denied calls, configure a queue twice and create a silence."""
    async with httpx.AsyncClient(base_url=url) as client:
        for _ in range(2):
            response = await client.delete("/api/v1/resources/queues/orders")
            assert response.status_code == 401
        headers = {"Authorization": f"Bearer {secret}"}
        for retry_limit in (3, 5):
            body = {"queue": "orders", "options": {"retryLimit": retry_limit}}
            response = await client.post("/api/v1/configure", json=body, headers=headers)
            assert response.status_code == 200, response.text
        created = await client.post("/api/v1/alert-silences", json={"comment": ODD_NAME}, headers=headers)
        assert created.status_code == 201, created.text


async def test_entries_are_listed_within_80_columns(url: str, admin: str) -> None:
    await make_changes(url, admin)
    listed = await run("ls", "--url", url, token=admin)
    assert listed.exit_code == 0, listed.output
    assert "POST /configure queue=orders" in listed.stdout
    assert max(map(len, listed.stdout.splitlines())) <= 80
    assert "unknown" not in listed.stdout
    entries = await run_json("ls", "--url", url, token=admin)
    assert [entry["status"] for entry in entries] == [201, 200, 200, 201]
    denied = await run("ls", "--denied", "--all-environments", "--url", url, token=admin)
    assert denied.stdout.count("401") == 2
    assert denied.stdout.count("127.0.0.1") == 2
    assert max(map(len, denied.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--since", "1d"), 4),
        (("--subject", "admin"), 3),
        (("--subject", "token:admin", "--action", "configure"), 2),
        (("--object", "orders"), 2),
        (("--denied",), 0),
        (("--request-id", "none"), 0),
        (("--limit", "1"), 1),
    ],
)
async def test_options_select_entries(url: str, admin: str, options: tuple[str, ...], count: int) -> None:
    await make_changes(url, admin)
    assert len(await run_json("ls", *options, "--url", url, token=admin)) == count
    if not count:
        assert (await run("ls", *options, "--url", url, token=admin)).stdout == "There are no such entries.\n"
    if "--limit" in options:
        assert (
            "There are more than 1 entries" in (await run("ls", *options, "--url", url, token=admin)).stdout
        )


async def test_an_entry_shows_what_changed(url: str, admin: str) -> None:
    await make_changes(url, admin)
    changed = (await run_json("ls", "--action", "configure", "--url", url, token=admin))[0]
    shown = await run("show", changed["id"], "--url", url, token=admin)
    assert shown.exit_code == 0, shown.output
    assert "~ options.retryLimit: 3 → 5\n" in shown.stdout
    assert "leaseTime" not in shown.stdout
    for text in ("token:admin", "127.0.0.1", "default/default/default", "queue orders", changed["requestId"]):
        assert text in shown.stdout
    assert await run_json("show", changed["id"], "--url", url, token=admin) == changed
    missing = await run("show", "4711", "--url", url, token=admin)
    assert isinstance(missing.exception, PenstockError)
    assert "There is no audit entry 4711" in missing.exception.detail
    assert "`penstock audit ls` lists the entries." in missing.exception.detail


async def test_entries_are_exported_as_json_lines(url: str, admin: str, tmp_path: Path) -> None:
    await make_changes(url, admin)
    entries = await run_json("ls", "--url", url, token=admin)
    printed = await run("export", "--url", url, token=admin)
    assert [json.loads(line) for line in printed.stdout.strip().split("\n")] == entries
    file = tmp_path / "audit.jsonl"
    written = await run("export", str(file), "--url", url, token=admin)
    assert written.stdout.replace("\n", "") == f"Wrote 4 entries to {file}."
    assert file.read_bytes().decode() == printed.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    again = await run("export", str(file), "--url", url, token=admin)
    assert isinstance(again.exception, PenstockError)
    assert "exists. Choose another name" in again.exception.detail
    assert file.read_bytes().decode() == printed.stdout


async def test_a_failed_export_leaves_no_file(url: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    refused = await run("export", str(file), "--url", url)
    assert isinstance(refused.exception, PenstockError)
    assert "The request has no token" in refused.exception.detail
    assert not file.exists()
    missing = await run("export", str(tmp_path / "none" / "audit.jsonl"), "--url", url)
    assert isinstance(missing.exception, PenstockError)
    assert "cannot be written" in missing.exception.detail


async def test_an_export_that_ends_early_is_an_error(
    url: str, admin: str, database: Database, tmp_path: Path
) -> None:
    await database.fetch(
        """INSERT INTO audit_entries (environment_id, environment, subject, address, action, object, status,
                                      denied, request_id)
           SELECT 1, '', 'local', '', 'a', jsonb_build_object('text', repeat('x', 10000)), 200, false, i
           FROM generate_series(1, 2000) i"""
    )
    await database.fetch(
        """CREATE OR REPLACE FUNCTION audit_entry_matches_v1(
               p_entry audit_entries, p_environment_name text, p_subject text, p_action text, p_object text,
               p_status int, p_denied boolean
           ) RETURNS boolean LANGUAGE sql AS 'SELECT $1.id > 1000 OR 1 / ($1.id - $1.id) = 1'"""
    )
    file = tmp_path / "audit.jsonl"
    failed = await run("export", str(file), "--url", url, token=admin)
    assert isinstance(failed.exception, PenstockError)
    assert "stopped before the end" in failed.exception.detail
    assert not file.exists()


@pytest.mark.parametrize("since", ["soon", "0s", "99999999999d"])
async def test_a_wrong_time_is_refused(url: str, admin: str, since: str) -> None:
    result = await run("ls", "--since", since, "--url", url, token=admin)
    assert isinstance(result.exception, PenstockError)
    assert "--since" in result.exception.detail
