"""Routes of alert channels: secrets go in and never come out."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.durable.alerts.notice_outbox import NoticeOutbox
from penstock.durable.pool import Database
from penstock.ids import new_id
from tests.integration.api.calls import assert_problem, get
from tests.unit.alerts.delivery.channels import (
    CHANNEL_FIELDS,
    OTHER_SIGNING_SECRET,
    channel_fields,
    contains_secret,
)

CHANNELS = "/api/v1/alert-channels"


async def create(client: httpx.AsyncClient, kind: str = "webhook", **fields: object) -> dict[str, Any]:
    response = await client.post(CHANNELS, json=channel_fields(kind, **fields))
    assert response.status_code == 201, response.text
    channel: dict[str, Any] = response.json()
    return channel


@pytest.mark.parametrize("kind", CHANNEL_FIELDS)
async def test_no_response_has_the_secrets_of_a_channel(client: httpx.AsyncClient, kind: str) -> None:
    created = await client.post(CHANNELS, json=channel_fields(kind))
    assert created.status_code == 201, created.text
    assert created.headers["location"] == f"{CHANNELS}/ops"
    assert created.json()["kind"] == kind
    assert created.json()["secretFields"]
    responses = [
        created,
        await client.get(CHANNELS),
        await client.get(f"{CHANNELS}/ops"),
        await client.put(f"{CHANNELS}/ops", json={**created.json()["settings"], "enabled": False}),
        await client.post(CHANNELS, json=channel_fields(kind)),
        await client.post(f"{CHANNELS}/ops/test"),
        await client.get("/api/v1/alert-notices"),
    ]
    assert [response.status_code for response in responses] == [201, 200, 200, 200, 409, 202, 200]
    assert not any(contains_secret(response.text) for response in responses)
    assert (await get(client, "/alert-channels/ops"))["enabled"] is False


async def test_secrets_are_encrypted_in_the_database(client: httpx.AsyncClient, database: Database) -> None:
    await create(client)
    rows = await database.fetch("SELECT settings::text AS settings, secrets FROM alert_channels")
    assert not contains_secret(rows[0]["settings"])
    assert not contains_secret(rows[0]["secrets"].decode("latin-1"))


async def test_missing_secrets_are_kept_and_new_ones_replace_them(client: httpx.AsyncClient) -> None:
    created = await create(client)
    response = await client.put(f"{CHANNELS}/ops", json={"signingSecrets": [OTHER_SIGNING_SECRET]})
    assert response.status_code == 200, response.text
    assert sorted(response.json()["secretFields"]) == sorted(created["secretFields"])
    response = await client.put(f"{CHANNELS}/ops", json={"signingSecrets": []})
    assert response.json()["secretFields"] == ["url"]
    assert response.json()["updatedAt"] > created["updatedAt"]


async def test_a_new_destination_does_not_get_the_stored_password(client: httpx.AsyncClient) -> None:
    settings = (await create(client, "email"))["settings"]
    response = await client.put(f"{CHANNELS}/ops", json={**settings, "host": "elsewhere.example"})
    assert "Send password again" in assert_problem(response, 422, "invalid_request")
    assert (await get(client, "/alert-channels/ops"))["settings"] == settings
    body = {**settings, "host": "elsewhere.example", "password": "new"}
    assert (await client.put(f"{CHANNELS}/ops", json=body)).status_code == 200


async def test_a_channel_that_is_not_valid_changes_nothing(client: httpx.AsyncClient) -> None:
    response = await client.post(CHANNELS, json=channel_fields("webhook", url="ftp://path-token"))
    assert "-token" not in assert_problem(response, 422, "invalid_request")
    response = await client.post(CHANNELS, json={"name": "ops", "kind": "pigeon"})
    assert_problem(response, 422, "invalid_request")
    assert_problem(await client.post(CHANNELS, content=b"[]"), 422, "invalid_request")
    assert_problem(await client.post(CHANNELS, content=b"{"), 400, "malformed_body")
    assert await get(client, "/alert-channels") == {"channels": []}
    await create(client)
    response = await client.put(f"{CHANNELS}/ops", json={"name": "other"})
    assert "cannot be renamed" in assert_problem(response, 422, "invalid_request")


async def test_without_a_key_a_channel_with_secrets_is_refused(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"encryption_keys": ""}))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        refused = await client.post(CHANNELS, json=channel_fields("webhook"))
        assert "Set PENSTOCK_ENCRYPTION_KEYS" in assert_problem(refused, 409, "channel_key_missing")
        assert await get(client, "/alert-channels") == {"channels": []}
        without_secrets = channel_fields("alertmanager", username=None, password=None)
        assert (await client.post(CHANNELS, json=without_secrets)).status_code == 201


async def test_an_unknown_channel_or_notice_is_a_404(client: httpx.AsyncClient) -> None:
    for response in (
        await client.get(f"{CHANNELS}/missing"),
        await client.put(f"{CHANNELS}/missing", json={}),
        await client.delete(f"{CHANNELS}/missing"),
        await client.post(f"{CHANNELS}/missing/test"),
    ):
        assert "'missing' does not exist" in assert_problem(response, 404, "unknown_alert_channel")
    for response in (
        await client.get(f"/api/v1/alert-notices/{uuid4()}"),
        await client.post(f"/api/v1/alert-notices/{uuid4()}/retry"),
    ):
        assert_problem(response, 404, "unknown_alert_notice")


async def test_a_channel_that_a_rule_uses_is_not_deleted(
    client: httpx.AsyncClient, database: Database
) -> None:
    await create(client)
    await database.fetch(
        "INSERT INTO alert_rules (id, environment_id, name, rule, enabled) "
        "SELECT $1, environment_id, 'backlog', '{\"channels\": [\"ops\"]}', true FROM alert_channels",
        uuid4(),
    )
    detail = assert_problem(await client.delete(f"{CHANNELS}/ops"), 409, "alert_channel_in_use")
    assert "'backlog'" in detail
    await database.fetch("DELETE FROM alert_rules")
    assert (await client.delete(f"{CHANNELS}/ops")).status_code == 200
    assert await get(client, "/alert-channels") == {"channels": []}


async def test_a_failed_notice_is_listed_and_sent_again(
    client: httpx.AsyncClient, database: Database
) -> None:
    await create(client)
    notice_id = (await client.post(f"{CHANNELS}/ops/test")).json()["id"]
    response = await client.post(f"/api/v1/alert-notices/{notice_id}/retry")
    assert "is pending" in assert_problem(response, 409, "wrong_state")
    outbox, owner = NoticeOutbox(database), new_id()
    await outbox.lease(owner, 10, 60_000, ())
    await outbox.record_failure(UUID(notice_id), owner, "broken", None)
    [notice] = (await get(client, "/alert-notices", state="failed", channel="ops"))["notices"]
    assert (notice["state"], notice["attempts"], notice["lastError"]) == ("failed", 1, "broken")
    assert notice["nextAttemptAt"] is None
    retried = await client.post(f"/api/v1/alert-notices/{notice_id}/retry")
    assert (retried.status_code, retried.json()["state"]) == (202, "pending")
    assert (await get(client, "/alert-notices", state="failed"))["notices"] == []
