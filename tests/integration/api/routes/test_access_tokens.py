"""Tokens over HTTP: created, listed, rotated and revoked, with secrets in two responses only."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.api.calls import assert_problem, get


async def create(client: httpx.AsyncClient, name: str = "ci", **fields: Any) -> dict[str, Any]:
    response = await client.post("/api/v1/tokens", json={"name": name, "scopes": ["read"], **fields})
    assert response.status_code == 201, response.text
    assert response.headers["cache-control"] == "no-store"
    issued: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/api/v1/tokens/{issued['id']}"
    return issued


def bearer(issued: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {issued['secret']}"}


async def test_a_created_token_is_shown_without_its_secret(client: httpx.AsyncClient) -> None:
    issued = await create(client, scopes=["read", "consume"], queues=["orders-*"], groups=["billing"])
    secret = issued.pop("secret")
    assert secret.startswith("pk_")
    assert issued["environment"] == "default/default/default"
    assert issued["secrets"][0]["prefix"] == secret[:10]
    assert await get(client, f"/tokens/{issued['id']}") == issued
    assert (await get(client, "/tokens"))["tokens"] == [{**issued, "changeable": True}]
    assert (await get(client, "/tokens", name="other"))["tokens"] == []


async def test_only_rotation_shows_a_secret_again(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    issued = await create(client)
    rotated = (await client.post(f"/api/v1/tokens/{issued['id']}/rotate", json={"overlapS": 60})).json()
    assert rotated["secret"] != issued["secret"]
    shown = [
        (await client.get("/api/v1/tokens", params={"revoked": True})).text,
        (await client.get(f"/api/v1/tokens/{issued['id']}")).text,
        (await client.delete(f"/api/v1/tokens/{issued['id']}")).text,
        caplog.text,
    ]
    for secret in (issued["secret"], rotated["secret"]):
        assert not any(secret in text for text in shown)


async def test_a_rotated_token_has_both_secrets_until_the_overlap_ends(client: httpx.AsyncClient) -> None:
    issued = await create(client)
    rotated = (await client.post(f"/api/v1/tokens/{issued['id']}/rotate", json={"overlapS": 600})).json()
    for token in (issued, rotated):
        assert (await client.get("/api/v1/resources/queues", headers=bearer(token))).status_code == 200
    newest = (await client.post(f"/api/v1/tokens/{issued['id']}/rotate", json={"overlapS": 0})).json()
    for token in (issued, rotated):
        response = await client.get("/api/v1/resources/queues", headers=bearer(token))
        assert_problem(response, 401, "unauthorized")
    assert (await client.get("/api/v1/resources/queues", headers=bearer(newest))).status_code == 200


async def test_a_revoked_token_is_refused_and_listed_on_request_only(client: httpx.AsyncClient) -> None:
    issued = await create(client)
    for _ in range(2):
        revoked = (await client.delete(f"/api/v1/tokens/{issued['id']}")).json()
        assert revoked["state"] == "revoked"
    response = await client.get("/api/v1/resources/queues", headers=bearer(issued))
    assert_problem(response, 401, "unauthorized")
    assert (await get(client, "/tokens"))["tokens"] == []
    assert (await get(client, "/tokens", revoked=True))["tokens"] == [{**revoked, "changeable": True}]
    assert_problem(await client.post(f"/api/v1/tokens/{issued['id']}/rotate"), 409, "wrong_state")


async def test_a_token_cannot_create_rotate_or_revoke_one_with_more_rights(client: httpx.AsyncClient) -> None:
    strong = await create(client, "strong", scopes=["produce"])
    weak = await create(client, "weak", scopes=["read", "admin"])
    for response in (
        await client.post("/api/v1/tokens", json={"name": "x", "scopes": ["produce"]}, headers=bearer(weak)),
        await client.post(f"/api/v1/tokens/{strong['id']}/rotate", headers=bearer(weak)),
        await client.delete(f"/api/v1/tokens/{strong['id']}", headers=bearer(weak)),
    ):
        assert "scope produce" in assert_problem(response, 403, "forbidden")
    body = {"name": "x", "scopes": ["read"], "platformAdmin": True}
    assert_problem(await client.post("/api/v1/tokens", json=body, headers=bearer(weak)), 403, "forbidden")
    listed = (await client.get("/api/v1/tokens", headers=bearer(weak))).json()["tokens"]
    assert {token["name"]: token["changeable"] for token in listed} == {"strong": False, "weak": True}
    created = await client.post(
        "/api/v1/tokens", json={"name": "reader", "scopes": ["read"]}, headers=bearer(weak)
    )
    assert created.json()["createdBy"] == "token:weak"


async def test_a_token_without_the_scope_admin_manages_no_tokens(client: httpx.AsyncClient) -> None:
    reader = await create(client, scopes=["read", "configure", "operate"])
    for response in (
        await client.get("/api/v1/tokens", headers=bearer(reader)),
        await client.post("/api/v1/tokens", json={"name": "x", "scopes": ["read"]}, headers=bearer(reader)),
        await client.delete(f"/api/v1/tokens/{reader['id']}", headers=bearer(reader)),
    ):
        assert "admin" in assert_problem(response, 403, "forbidden")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"scopes": []}, "no scope"),
        ({"scopes": ["write"]}, "Unknown scope 'write'"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"queues": []}, "queues"),
        ({"groups": [""]}, "groups"),
        ({"expiresInS": 0}, "expiresInS"),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, "in the past"),
        ({"expiresAt": "9999-12-31T23:59:59-01:00"}, "expiresAt"),
        ({"scope": ["read"]}, "scope"),
    ],
)
async def test_a_bad_token_is_refused(client: httpx.AsyncClient, fields: dict[str, Any], text: str) -> None:
    body = {"name": "ci", "scopes": ["read"], **fields}
    response = await client.post("/api/v1/tokens", json=body)
    assert text in assert_problem(response, 422, "invalid_request")
    assert (await get(client, "/tokens"))["tokens"] == []


async def test_names_are_unique_and_unknown_ids_are_not_found(client: httpx.AsyncClient) -> None:
    issued = await create(client)
    response = await client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read"]})
    assert_problem(response, 409, "token_exists")
    response = await client.post(f"/api/v1/tokens/{issued['id']}/rotate", json={"overlapS": -1})
    assert "overlapS must be" in assert_problem(response, 422, "invalid_request")
    path = f"/api/v1/tokens/{uuid4()}"
    for response in (await client.get(path), await client.delete(path), await client.post(f"{path}/rotate")):
        assert_problem(response, 404, "unknown_token")


async def test_a_token_has_the_quotas_that_it_was_created_with(client: httpx.AsyncClient) -> None:
    issued = await create(client, quotas={"requestsPerSecond": 50, "queues": None})
    assert issued["quotas"] == {"requestsPerSecond": 50}
    assert (await get(client, f"/tokens/{issued['id']}"))["quotas"] == {"requestsPerSecond": 50}


async def test_a_token_with_an_unknown_quota_is_not_created(client: httpx.AsyncClient) -> None:
    body = {"name": "ci", "scopes": ["read"], "quotas": {"requests": 5}}
    response = await client.post("/api/v1/tokens", json=body)
    assert "requestsPerSecond" in assert_problem(response, 422, "invalid_request")
    assert (await get(client, "/tokens"))["tokens"] == []
