"""Every call that changes something, and every denied one, leaves one entry in the audit log."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from penstock.access.token_service import NewToken
from penstock.api.http.audit_middleware import AUDITED_ACCESS
from penstock.caller import ACCESS_SCOPE_NAMES
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.broker_tokens import (
    ALL_SCOPES,
    OTHER_ENVIRONMENT,
    GuardedBroker,
    bearer,
    create_other_environment,
    run_guarded_broker,
)
from tests.integration.api.test_declared_access import GUARDED, Operation

CANARY = "canary-4711"
REQUEST_ID_HEADER = "X-Request-Id"
AUDITED_SCOPES = {name for flag, name in ACCESS_SCOPE_NAMES.items() if flag in AUDITED_ACCESS}
AUDITED = [
    operation
    for operation in GUARDED
    if operation.method != "GET" and AUDITED_SCOPES.intersection(operation.scopes)
]
NOT_AUDITED = [operation for operation in GUARDED if operation not in AUDITED]
Entry = dict[str, Any]


@pytest_asyncio.fixture
async def broker(settings: Settings, database: Database) -> AsyncIterator[GuardedBroker]:
    await create_other_environment(database)
    proxies = settings.model_copy(update={"trusted_proxies": "127.0.0.0/8"})
    async with run_guarded_broker(proxies) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def client(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with broker.client() as http_client:
        yield http_client


async def audit_entries(broker: GuardedBroker, **parameters: str) -> list[Entry]:
    """All entries of all environments, the latest first."""
    secret = await broker.create(
        NewToken(name=f"auditor {id(parameters)}", scopes=["admin"], is_platform_admin=True)
    )
    async with broker.client(secret) as client:
        response = await client.get("/api/v1/audit", params={"environment": "*", "limit": 500, **parameters})
    assert response.status_code == 200, response.text
    entries: list[Entry] = response.json()["entries"]
    return entries


def name_of(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


def test_the_walk_covers_the_routes_that_change_something() -> None:
    assert len(AUDITED) > 40
    assert {"POST /api/v1/configure", "DELETE /api/v1/tokens/{token_id}"} <= set(map(name_of, AUDITED))
    assert {"POST /api/v1/push", "GET /api/v1/audit"} <= set(map(name_of, NOT_AUDITED))


async def test_each_call_that_changes_something_leaves_one_entry(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    secret = await broker.create(NewToken(name="root", scopes=ALL_SCOPES, is_platform_admin=True))
    statuses = {}
    for operation in AUDITED:
        response = await operation.send(client, secret)
        statuses[name_of(operation)] = response.status_code
        assert response.headers[REQUEST_ID_HEADER]
        if response.status_code >= 400:
            assert response.json()["requestId"] == response.headers[REQUEST_ID_HEADER]
    entries = await audit_entries(broker)
    assert len(entries) == len(AUDITED)
    assert {entry["action"]: entry["status"] for entry in entries} == statuses
    assert {(entry["subject"], entry["denied"]) for entry in entries} == {("token:root", False)}


async def test_data_operations_and_reads_leave_no_entry(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    secret = await broker.secret(ALL_SCOPES)
    for operation in NOT_AUDITED:
        await operation.send(client, secret)
        await operation.send(client, None)
    assert await audit_entries(broker) == []


async def test_a_call_without_the_scope_is_recorded_as_denied(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    secret = await broker.secret(["read"], OTHER_ENVIRONMENT)
    for operation in AUDITED:
        response = await operation.send(client, secret)
        assert response.status_code == 403, operation
    entries = await audit_entries(broker, denied="true")
    assert sorted(entry["action"] for entry in entries) == sorted(map(name_of, AUDITED))
    assert {(entry["subject"], entry["environment"], entry["status"]) for entry in entries} == {
        ("token:token 0", "acme/shop/staging", 403)
    }


async def test_a_call_for_a_foreign_environment_is_recorded_for_the_callers_own(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    secret = await broker.secret(ALL_SCOPES, OTHER_ENVIRONMENT)
    headers = bearer(secret) | {"X-Penstock-Environment": "/".join(DEFAULT_SCOPE)}
    response = await client.post("/api/v1/resources/queues/orders/pause", headers=headers)
    assert response.status_code == 404
    [entry] = await audit_entries(broker, denied="true")
    assert (entry["environment"], entry["subject"], entry["status"]) == (
        *("acme/shop/staging", "token:token 0"),
        404,
    )
    assert entry["object"] == {"queue": "orders", "selectedEnvironment": "default/default/default"}


async def test_a_change_of_a_foreign_environment_is_denied(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    headers = bearer(await broker.secret(ALL_SCOPES))
    response = await client.delete("/api/v1/environments/acme/shop/staging", headers=headers)
    assert response.status_code == 404
    [entry] = await audit_entries(broker, denied="true")
    assert (entry["subject"], entry["object"]["organization"]) == ("token:token 0", "acme")


async def test_an_unknown_caller_is_recorded_without_environment_and_secret(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    unknown = f"pk_{CANARY}{'x' * 32}"
    for headers in ({}, bearer(unknown), {"X-Forwarded-For": "203.0.113.9"}):
        response = await client.delete(f"/api/v1/run-queues/{unknown}?token={CANARY}", headers=headers)
        assert response.status_code in (401, 422)
    entries = await audit_entries(broker)
    assert [entry["address"] for entry in entries] == ["203.0.113.9", "127.0.0.1", "127.0.0.1"]
    assert {(entry["environment"], entry["subject"], entry["tokenId"]) for entry in entries} == {(None,) * 3}
    assert CANARY not in str(entries)


async def test_calls_that_a_browser_sends_for_another_site_are_recorded(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    secret = await broker.secret(ALL_SCOPES)
    headers = bearer(secret) | {"Origin": "http://evil.example"}
    response = await client.post("/api/v1/resources/queues/orders/pause", headers=headers)
    assert response.status_code == 403
    [entry] = await audit_entries(broker)
    assert (entry["action"], entry["object"]) == (
        "POST /api/v1/resources/queues/{queue}/pause",
        {"queue": "orders"},
    )
    assert (entry["subject"], entry["denied"], entry["status"]) == (None, True, 403)


async def test_a_flood_of_unknown_callers_leaves_few_entries(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    for number in range(300):
        address = {"X-Forwarded-For": f"203.0.113.{number % 3}"}
        response = await client.delete("/api/v1/run-queues/orders", headers=address)
        assert response.status_code == 401
    assert len(await audit_entries(broker)) == 30
    assert broker.services.audit_log.unrecorded == 270


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        ("0b6f9a2c-1111", True),
        ("trace/1:2+3=_.x", True),
        ("", False),
        ("two words", False),
        ("x" * 129, False),
        ('"><script>', False),
    ],
)
async def test_the_id_of_a_request_is_the_clients_if_it_is_sane(
    broker: GuardedBroker, client: httpx.AsyncClient, sent: str, is_kept: bool
) -> None:
    headers = bearer(await broker.secret(ALL_SCOPES)) | {REQUEST_ID_HEADER: sent}
    response = await client.delete("/api/v1/run-queues/orders", headers=headers)
    returned = response.headers[REQUEST_ID_HEADER]
    assert (returned == sent) is is_kept
    assert response.json()["requestId"] == returned
    assert re.fullmatch(r"[\w./:+=-]{1,128}", returned)
    [entry] = await audit_entries(broker, requestId=returned)
    assert entry["requestId"] == returned


async def test_the_object_has_the_parameters_of_the_route_alone(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    headers = bearer(await broker.secret(ALL_SCOPES))
    url = f"/api/v1/consumer-groups/billing/queues/orders?deleteMetadata=false&other={CANARY}"
    assert (await client.delete(url, headers=headers)).status_code == 404
    [entry] = await audit_entries(broker)
    assert entry["object"] == {"group": "billing", "queue": "orders", "deleteMetadata": "false"}
    assert entry["tokenId"]


async def test_a_call_that_fails_unexpectedly_is_recorded(
    broker: GuardedBroker, client: httpx.AsyncClient, database: Database
) -> None:
    headers = bearer(await broker.secret(ALL_SCOPES))
    await client.post("/api/v1/configure", json={"queue": "orders"}, headers=headers)
    await database.fetch(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN 1 / 0; END'"
    )
    await database.fetch("CREATE TRIGGER fail BEFORE DELETE ON queues EXECUTE FUNCTION fail()")
    response = await client.delete("/api/v1/resources/queues/orders", headers=headers)
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    entry = (await audit_entries(broker))[0]
    assert (entry["status"], entry["requestId"]) == (500, response.json()["requestId"])


async def test_calls_are_answered_while_the_audit_log_cannot_be_written(
    broker: GuardedBroker, client: httpx.AsyncClient, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.fetch("ALTER FUNCTION record_audit_entry_v1 RENAME TO not_there")
    headers = bearer(await broker.secret(ALL_SCOPES)) | {REQUEST_ID_HEADER: "r-lost"}
    response = await client.put("/api/v1/run-queues/orders/limits", json={"concurrency": 3}, headers=headers)
    assert response.status_code == 200
    [message] = [record.getMessage() for record in caplog.records if "r-lost" in record.getMessage()]
    assert "token:token 0" in message
    assert "PUT /api/v1/run-queues/{queue}/limits" in message
    assert broker.services.audit_log.failed == 1


async def test_logins_and_logouts_are_recorded(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    secret = await broker.create(NewToken(name="ops", scopes=["operate"]), OTHER_ENVIRONMENT)
    for token, status in ((f"pk_{CANARY}{'x' * 32}", 401), (secret, 201)):
        response = await client.post("/api/v1/session", json={"token": token})
        assert response.status_code == status
    csrf_token = response.json()["csrfToken"]
    pause = await client.post("/api/v1/resources/queues/orders/pause")
    assert (pause.status_code, pause.json()["code"]) == (403, "invalid_csrf_token")
    assert (await client.get("/api/v1/session")).json()["subject"] == "token:ops"
    logout = await client.delete("/api/v1/session", headers={"X-CSRF-Token": csrf_token})
    assert logout.status_code == 204
    entries = await audit_entries(broker)
    assert [(entry["action"], entry["subject"], entry["status"], entry["denied"]) for entry in entries] == [
        ("DELETE /api/v1/session", "token:ops", 204, False),
        ("POST /api/v1/resources/queues/{queue}/pause", "token:ops", 403, True),
        ("POST /api/v1/session", "token:ops", 201, False),
        ("POST /api/v1/session", None, 401, True),
    ]
    assert entries[2]["environment"] == "acme/shop/staging"
    assert not {CANARY, secret, csrf_token} & set(re.findall(r"[\w-]+", str(entries)))
