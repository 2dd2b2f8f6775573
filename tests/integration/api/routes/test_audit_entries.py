"""Search and export of the audit log: for administrators, each in their own environment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from penstock.access.token_service import NewToken
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.broker_tokens import (
    ALL_SCOPES,
    OTHER_ENVIRONMENT,
    GuardedBroker,
    create_other_environment,
    run_guarded_broker,
)
from tests.integration.api.calls import assert_problem, get

AUDIT = "/api/v1/audit"


async def set_limit(client: httpx.AsyncClient, queue: str, concurrency: int = 1) -> str:
    """Set a limit and return the id of the request."""
    response = await client.put(f"/api/v1/run-queues/{queue}/limits", json={"concurrency": concurrency})
    assert response.status_code == 200, response.text
    return response.headers["x-request-id"]


async def test_pages_follow_the_cursor(client: httpx.AsyncClient) -> None:
    request_ids = [await set_limit(client, "orders", number) for number in range(1, 6)]
    listed: list[str] = []
    cursor: dict[str, str] = {}
    for expected in (2, 2, 1):
        page = await get(client, "/audit", limit=2, **cursor)
        assert len(page["entries"]) == expected
        listed += [entry["requestId"] for entry in page["entries"]]
        cursor = {"cursor": page["nextCursor"]}
    assert (listed, page["nextCursor"]) == (request_ids[::-1], None)
    assert await get(client, f"/audit/{page['entries'][0]['id']}") == page["entries"][0]


async def test_filters(client: httpx.AsyncClient) -> None:
    first, second = await set_limit(client, "orders"), await set_limit(client, "mails")
    assert (await client.delete("/api/v1/run-queues/missing")).status_code == 404
    entries = (await get(client, "/audit"))["entries"]
    middle = entries[1]["at"]
    after = (datetime.fromisoformat(middle) + timedelta(milliseconds=1)).isoformat()
    for parameters, request_ids in (
        ({"subject": "local", "status": 200}, [second, first]),
        ({"subject": "token:other"}, []),
        ({"action": "put /api/v1/run-queues"}, [second, first]),
        ({"object": "mails"}, [second]),
        ({"denied": "true"}, []),
        ({"requestId": first}, [first]),
        ({"to": entries[-1]["at"]}, []),
        ({"from": entries[-1]["at"], "to": after, "status": 200}, [second, first]),
        ({"from": datetime.now(UTC).isoformat()}, []),
        ({"environment": "*", "object": "orders"}, [first]),
        ({"environment": "default/default/default", "object": "orders"}, [first]),
        ({"environment": "no/such/environment"}, []),
    ):
        page = await get(client, "/audit", **parameters)
        assert [entry["requestId"] for entry in page["entries"]] == request_ids, parameters


@pytest.mark.parametrize(
    "parameters",
    [
        *({"cursor": cursor} for cursor in ("", "1", "a-b", "9999999999999999999-1", "999999999999999999-1")),
        *({"limit": limit} for limit in ("0", "501", "many")),
        *({"status": "1000"}, {"denied": "perhaps"}, {"from": "yesterday"}, {"subjects": "local"}),
        *({"object": "a\0b"}, {"requestId": "x" * 256}),
    ],
)
async def test_invalid_parameters_are_refused(client: httpx.AsyncClient, parameters: dict[str, str]) -> None:
    assert_problem(await client.get(AUDIT, params=parameters), 422, "invalid_request")


async def test_an_unknown_entry_is_a_404(client: httpx.AsyncClient) -> None:
    assert_problem(await client.get(f"{AUDIT}/4711"), 404, "unknown_audit_entry")
    for entry_id in ("0", "x", str(2**63)):
        assert_problem(await client.get(f"{AUDIT}/{entry_id}"), 422, "invalid_request")


async def test_the_export_has_all_entries_as_json_lines(
    client: httpx.AsyncClient, database: Database
) -> None:
    await database.fetch(
        """INSERT INTO audit_entries (environment_id, environment, subject, address, action, status, denied,
                                      before, request_id)
           SELECT environment_id_v1('default', 'default', 'default'), '', 'local', '', 'a',
                  200, i % 2 = 0, '{"text": "line\\nbreak"}', i FROM generate_series(1, 1001) i"""
    )
    response = await client.get(f"{AUDIT}/export")
    assert response.headers["content-type"] == "application/x-ndjson"
    entries = [json.loads(line) for line in response.text.splitlines()]
    assert [entry["requestId"] for entry in entries] == [str(number) for number in range(1001, 0, -1)]
    assert entries[0] == (await get(client, "/audit", limit=1))["entries"][0]
    assert entries[0]["before"] == {"text": "line\nbreak"}
    denied = await client.get(f"{AUDIT}/export", params={"denied": "true"})
    assert len(denied.text.splitlines()) == 500
    empty = await client.get(f"{AUDIT}/export", params={"subject": "token:other"})
    assert (empty.status_code, empty.text) == (200, "")


@pytest_asyncio.fixture
async def broker(settings: Settings, database: Database) -> AsyncIterator[GuardedBroker]:
    await create_other_environment(database)
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


async def read(client: httpx.AsyncClient, **parameters: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await get(client, "/audit", **parameters))["entries"]
    exported = await client.get(f"{AUDIT}/export", params=parameters)
    assert [json.loads(line) for line in exported.text.splitlines()] == entries
    return entries


async def test_an_administrator_sees_the_entries_of_their_environment_alone(broker: GuardedBroker) -> None:
    platform = NewToken(name="platform", scopes=ALL_SCOPES, is_platform_admin=True)
    async with (
        broker.client(await broker.secret(ALL_SCOPES)) as own,
        broker.client(await broker.secret(ALL_SCOPES, OTHER_ENVIRONMENT)) as other,
        broker.client(await broker.create(platform)) as platform_admin,
        broker.client() as anonymous,
    ):
        await set_limit(own, "orders")
        await set_limit(other, "mails")
        await anonymous.delete("/api/v1/run-queues/orders")
        [own_entry] = await read(own)
        [other_entry] = await read(other)
        assert [own_entry["environment"], other_entry["environment"]] == [
            "/".join(DEFAULT_SCOPE),
            "/".join(OTHER_ENVIRONMENT),
        ]
        assert await read(own, environment="/".join(DEFAULT_SCOPE)) == [own_entry]
        for environment in ("*", "/".join(OTHER_ENVIRONMENT), "no/such/environment"):
            for path in ("", "/export", f"/{other_entry['id']}"):
                response = await own.get(f"{AUDIT}{path}", params={"environment": environment})
                assert_problem(response, 404, "unknown_environment")
        response = await own.get(f"{AUDIT}/{other_entry['id']}")
        assert_problem(response, 404, "unknown_audit_entry")
        assert await read(own, requestId=other_entry["requestId"]) == []
        assert await read(platform_admin) == [own_entry]
        assert await read(platform_admin, environment="/".join(OTHER_ENVIRONMENT)) == [other_entry]
        anonymous_entry, *known_entries = await read(platform_admin, environment="*")
        assert (known_entries, anonymous_entry["environment"]) == ([other_entry, own_entry], None)
        one = await get(platform_admin, f"/audit/{other_entry['id']}", environment="*")
        assert one == other_entry


async def test_readers_need_the_scope_admin(broker: GuardedBroker) -> None:
    secret = await broker.secret([scope for scope in ALL_SCOPES if scope != "admin"])
    limited = await broker.create(NewToken(name="limited", scopes=["admin"], queues=["orders"]))
    for token in (secret, limited):
        async with broker.client(token) as client:
            for path in ("", "/export", "/1"):
                assert_problem(await client.get(f"{AUDIT}{path}"), 403, "forbidden")
