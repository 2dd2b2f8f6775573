"""Each kind of change has an audit entry with the state before and after it, and without secrets."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from penstock.durable.pool import Database
from tests.integration.api.calls import get, pop, push
from tests.integration.api.routes.test_alert_incidents import incident_id
from tests.integration.api.routes.test_alert_rules import BACKLOG
from tests.integration.api.routes.test_dead_letter_routes import (
    create_job,
    dead_letter_messages,
    wait_until_ended,
)
from tests.integration.api.routes.test_dead_task_routes import create_dead_tasks
from tests.unit.alerts.delivery.channels import (
    CHANNEL_FIELDS,
    OTHER_SIGNING_SECRET,
    channel_fields,
    contains_secret,
)
from tests.waiting import wait_until_async

__all__ = ["incident_id"]

CANARY = "canary-4711"
Entry = dict[str, Any]


async def call(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Entry:
    """Call a route and return its audit entry."""
    response = await client.request(method, f"/api/v1{path}", json=body)
    assert response.status_code < 300, response.text
    request_id = response.headers["x-request-id"]
    [entry] = (await get(client, "/audit", requestId=request_id))["entries"]
    assert (entry["status"], entry["subject"], entry["denied"]) == (response.status_code, "local", False)
    assert CANARY not in str(entry)
    result: Entry = entry
    return result


def changes(entry: Entry, *fields: str) -> tuple[list[object], list[object]]:
    """The values of some fields before and after."""
    return [entry["before"][field] for field in fields], [entry["after"][field] for field in fields]


async def test_queues(client: httpx.AsyncClient) -> None:
    entry = await call(client, "POST", "/configure", {"queue": "orders", "options": {"retryLimit": 5}})
    assert (entry["action"], entry["object"], entry["before"]) == (
        *("POST /api/v1/configure", {"queue": "orders"}),
        None,
    )
    assert entry["after"]["options"]["retryLimit"] == 5
    entry = await call(client, "POST", "/configure", {"queue": "orders", "options": {"retryLimit": 7}})
    assert entry["before"]["options"] | {"retryLimit": 7} == entry["after"]["options"]
    assert entry["before"]["options"]["retryLimit"] == 5
    assert changes(await call(client, "POST", "/resources/queues/orders/pause"), "paused") == (
        [False],
        [True],
    )
    assert changes(await call(client, "POST", "/resources/queues/orders/resume"), "paused") == (
        [True],
        [False],
    )
    await push(client, CANARY, queue="orders")
    entry = await call(client, "DELETE", "/resources/queues/orders")
    assert (entry["before"]["messages"]["total"], entry["after"]) == (1, None)
    assert entry["before"]["options"]["retryLimit"] == 7
    entry = await call(client, "DELETE", "/resources/queues/orders")
    assert (entry["before"], entry["after"]) == (None, None)


async def test_purges_and_annotations(client: httpx.AsyncClient) -> None:
    await push(client, CANARY, queue="orders")
    entry = await call(client, "POST", "/resources/queues/orders/purge")
    assert (entry["object"], entry["after"]["purged"]) == ({"queue": "orders"}, 1)
    await client.post("/api/v1/run-queues/mail/tasks", json={"payload": CANARY})
    entry = await call(client, "POST", "/run-queues/mail/purge")
    assert (entry["object"], entry["after"]) == ({"queue": "mail"}, {"purged": 1})
    entry = await call(client, "POST", "/annotations", {"text": "v1", "kind": "deploy"})
    assert (entry["before"], entry["after"]["kind"], entry["after"]["text"]) == (None, "deploy", "v1")
    deleted = await call(client, "DELETE", f"/annotations/{entry['after']['id']}")
    assert (deleted["before"], deleted["after"]) == (entry["after"], None)


async def test_consumer_groups(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2, 3, queue="orders")
    assert await pop(client, "orders", consumerGroup="billing", autoAck="true", subscriptionMode="all")
    path = "/consumer-groups/billing"
    entry = await call(client, "POST", f"{path}/queues/orders/seek", {"toEnd": True})
    assert entry["object"] == {"group": "billing", "queue": "orders", "target": "new"}
    assert [state["pending"] for state in (entry["before"][0], entry["after"][0])] == [2, 0]
    entry = await call(
        client, "POST", f"{path}/queues/orders/partitions/Default/seek", {"timestamp": "2020-01-01T00:00:00Z"}
    )
    assert [state["pending"] for state in (entry["before"][0], entry["after"][0])] == [0, 3]
    assert (entry["object"]["partition"], entry["object"]["target"][:10]) == ("Default", "2020-01-01")
    entry = await call(
        client, "POST", f"{path}/subscription", {"subscriptionTimestamp": "2021-01-01T00:00:00Z"}
    )
    assert (entry["before"][0]["subscription"], entry["after"][0]["subscription"][:10]) == (
        "all",
        "2021-01-01",
    )
    entry = await call(client, "DELETE", f"{path}?deleteMetadata=false")
    assert (entry["object"], entry["after"]) == (
        {"group": "billing", "deleteMetadata": "false"},
        entry["before"],
    )
    entry = await call(client, "DELETE", f"{path}/queues/orders")
    assert ([state["queue"] for state in entry["before"]], entry["after"]) == (["orders"], None)


async def test_single_messages(client: httpx.AsyncClient) -> None:
    [pushed] = await push(client, {"card": CANARY}, queue="orders")
    await pop(client, "orders", consumerGroup="billing")
    path = f"/messages/{pushed['partition_id']}/{pushed['transaction_id']}"
    entry = await call(client, "POST", f"{path}/dlq", {"error": "not wanted"})
    assert (entry["before"]["status"], entry["after"]["outcome"]) == ("processing", "dead")
    assert (entry["before"]["queue"], entry["after"]["error"]) == ("orders", "not wanted")
    entry = await call(client, "POST", f"{path}/retry", {})
    assert (entry["before"]["status"], entry["after"]["retryOf"]) == ("dead_letter", pushed["transaction_id"])
    entry = await call(client, "DELETE", path)
    assert (entry["before"]["transactionId"], entry["after"]) == (pushed["transaction_id"], None)


async def test_dead_letters(client: httpx.AsyncClient) -> None:
    letters = await dead_letter_messages(client, CANARY, CANARY, CANARY, queue="orders")
    path = f"/dlq/letters/{letters[0]['letterId']}"
    entry = await call(client, "POST", f"{path}/requeue")
    assert (entry["before"]["errorMessage"], entry["after"]["partition"]) == ("boom", "Default")
    entry = await call(client, "DELETE", f"/dlq/letters/{letters[1]['letterId']}")
    assert (entry["before"]["queue"], entry["after"]) == ("orders", None)
    entry = await call(client, "POST", "/dlq/purge", {"queue": "orders", "dryRun": True})
    assert (entry["object"], entry["after"]) == ({"dryRun": True}, None)
    entry = await call(client, "POST", "/dlq/purge", {"queue": "orders", "error": "boom"})
    assert (entry["after"]["kind"], entry["after"]["filter"]["error"]) == ("purge", "boom")
    assert entry["after"]["total"] == 1
    await wait_until_ended(client, entry["after"])
    job = await create_job(client, "requeue", queue="orders", all=False)
    entry = await call(client, "POST", f"/jobs/{job['id']}/cancel")
    assert (entry["object"], entry["before"]["id"]) == ({"job_id": job["id"]}, job["id"])
    assert entry["after"]["state"] in ("cancelled", "done")


async def test_error_groups(client: httpx.AsyncClient) -> None:
    await dead_letter_messages(client, 1, queue="orders")
    [group] = (await get(client, "/dlq/groups", queue="orders"))["groups"]
    entry = await call(client, "POST", f"/dlq/error-groups/{group['errorGroup']}/resolve")
    assert (entry["before"]["state"], entry["after"]["state"]) == ("new", "resolved")
    assert entry["after"]["queues"] == ["orders"]


async def test_dead_letters_in_the_terms_of_a_webhook_broker(client: httpx.AsyncClient) -> None:
    [letter, _] = await dead_letter_messages(client, CANARY, CANARY, queue="orders", group="billing")
    for path, action in (
        (f"job/{letter['letterId']}", "DELETE /channel/{channelId}/consumer/{consumerId}/job/{jobId}"),
        ("dlq", "DELETE /channel/{channelId}/consumer/{consumerId}/dlq"),
    ):
        response = await client.delete(f"/channel/orders/consumer/billing/{path}")
        [entry] = (await get(client, "/audit", requestId=response.headers["x-request-id"]))["entries"]
        assert (entry["action"], entry["object"]["consumerId"]) == (action, "billing")
        assert (entry["before"] or entry["after"])["queue" if entry["before"] else "kind"] in (
            "orders",
            "purge",
        )
        assert CANARY not in str(entry)


async def test_run_queues(client: httpx.AsyncClient) -> None:
    queue = f"run-{uuid4()}"
    path = f"/run-queues/{queue}"
    entry = await call(client, "PUT", f"{path}/limits", {"concurrency": 3})
    assert (entry["before"], entry["after"]) == (None, {"concurrency": 3, "paused": False})
    entry = await call(client, "PUT", f"{path}/limits", {"concurrency": None})
    assert changes(entry, "concurrency") == ([3], [None])
    assert changes(await call(client, "POST", f"{path}/pause"), "paused") == ([False], [True])
    assert changes(await call(client, "POST", f"{path}/resume"), "paused") == ([True], [False])
    entry = await call(client, "PUT", "/environments/default/run-limits", {"concurrency": 9, "burst": 2})
    assert changes(entry, "concurrency", "burst") == ([None, 1], [9, 2])
    ids = await create_dead_tasks(client, queue, CANARY, CANARY, CANARY)
    entry = await call(client, "POST", f"{path}/dead-letters/redrive", {"ids": ids[:1]})
    assert (entry["object"], entry["after"]) == ({"queue": queue}, {"redriven": 1, "ids": ids[:1]})
    entry = await call(client, "DELETE", f"{path}/dead-letters", {"ids": ids[1:2]})
    assert entry["after"] == {"deleted": 1, "ids": ids[1:2]}
    entry = await call(client, "DELETE", f"{path}/dead-letters", {"all": True})
    assert (entry["object"], entry["after"]) == ({"queue": queue, "all": True}, {"deleted": 1})
    other = f"run-{uuid4()}"
    await call(client, "PUT", f"/run-queues/{other}/limits", {"concurrency": 1})
    entry = await call(client, "DELETE", f"/run-queues/{other}")
    assert (entry["before"], entry["after"]) == ({"concurrency": 1, "paused": False}, None)


async def test_alert_rules_and_silences(client: httpx.AsyncClient) -> None:
    entry = await call(client, "POST", "/alert-rules", BACKLOG)
    assert (entry["object"], entry["before"]) == ({"name": BACKLOG["name"]}, None)
    path = f"/alert-rules/{entry['after']['id']}"
    entry = await call(client, "PUT", path, {**BACKLOG, "threshold": 5})
    assert changes(entry, "threshold") == ([BACKLOG["threshold"]], [5])
    entry = await call(client, "DELETE", path)
    assert (entry["before"]["name"], entry["after"]) == (BACKLOG["name"], None)
    entry = await call(client, "POST", "/alert-silences", {"queue": "orders"})
    path = f"/alert-silences/{entry['after']['id']}"
    assert entry["object"] == {"silence_id": entry["after"]["id"]}
    entry = await call(client, "PUT", path, {"queue": "mails"})
    assert changes(entry, "queue") == (["orders"], ["mails"])
    entry = await call(client, "DELETE", path)
    assert (entry["before"]["queue"], entry["after"]) == ("mails", None)


@pytest.mark.parametrize("kind", CHANNEL_FIELDS)
async def test_alert_channels_without_their_secrets(
    client: httpx.AsyncClient, database: Database, kind: str
) -> None:
    entry = await call(client, "POST", "/alert-channels", channel_fields(kind))
    assert (entry["object"], entry["after"]["kind"]) == ({"channel": "ops"}, kind)
    assert entry["after"]["secretFields"]
    entry = await call(client, "PUT", "/alert-channels/ops", channel_fields(kind, enabled=False))
    assert changes(entry, "enabled") == ([True], [False])
    assert "enabled" in entry["object"]["fields"]
    entry = await call(client, "POST", "/alert-channels/ops/test")
    assert entry["after"]["channel"] == "ops"
    entry = await call(client, "POST", "/alert-rules/defaults", {"channels": ["ops"]})
    assert (entry["before"], len(entry["after"]["rules"]) > 3) == ({"rules": []}, True)
    refused = await client.delete("/api/v1/alert-channels/ops")
    assert refused.status_code == 409
    for rule in (await get(client, "/alert-rules"))["rules"]:
        await call(client, "DELETE", f"/alert-rules/{rule['id']}")
    await client.post("/api/v1/alert-channels", json=channel_fields(kind, url=OTHER_SIGNING_SECRET))
    entry = await call(client, "DELETE", "/alert-channels/ops")
    assert (entry["before"]["name"], entry["after"]) == ("ops", None)
    rows = await database.fetch("SELECT a::text AS entry FROM audit_entries a")
    assert len(rows) > 10
    assert not any(contains_secret(row["entry"]) for row in rows)


async def test_incidents(client: httpx.AsyncClient, incident_id: UUID) -> None:
    entry = await call(client, "POST", f"/incidents/{incident_id}/acknowledge", {"by": "ada"})
    assert changes(entry, "state", "acknowledgedBy") == (["open", None], ["acknowledged", "ada"])
    entry = await call(
        client, "POST", f"/incidents/{incident_id}/notes", {"text": "restarted", "author": "ada"}
    )
    assert entry["after"]["text"] == "restarted"


async def test_tokens_without_their_secrets(client: httpx.AsyncClient, database: Database) -> None:
    created = await client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read"]})
    token = created.json()
    [entry] = (await get(client, "/audit"))["entries"]
    assert (entry["object"], entry["before"], entry["after"]["scopes"]) == ({"name": "ci"}, None, ["read"])
    rotated = await client.post(f"/api/v1/tokens/{token['id']}/rotate", json={"overlapS": 60})
    entry = (await get(client, "/audit"))["entries"][0]
    assert [len(entry[state]["secrets"]) for state in ("before", "after")] == [1, 2]
    entry = await call(client, "DELETE", f"/tokens/{token['id']}")
    assert changes(entry, "state") == (["active"], ["revoked"])
    rows = await database.fetch("SELECT a::text AS entry FROM audit_entries a")
    secrets = [token["secret"], rotated.json()["secret"]]
    assert not any(secret[10:] in row["entry"] for secret in secrets for row in rows)


async def test_environments_and_quotas(client: httpx.AsyncClient) -> None:
    names = {"organization": "acme", "project": "shop", "environment": "production"}
    entry = await call(client, "POST", "/environments", {**names, "quotas": {"queues": 5}})
    assert (entry["object"], entry["after"]["quotas"]) == (names, {"queues": 5})
    path = "/environments/acme/shop/production"
    entry = await call(client, "PUT", path, {"quotas": {"queues": 7}})
    assert (entry["object"], changes(entry, "quotas")) == (names, ([{"queues": 5}], [{"queues": 7}]))
    entry = await call(client, "DELETE", path)
    assert (entry["before"]["deletion"], entry["after"]["deletion"] is not None) == (None, True)


async def test_a_call_that_is_interrupted_is_in_the_brokers_log(
    client: httpx.AsyncClient, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await call(client, "POST", "/configure", {"queue": "orders", "options": {}})
    async with database.connection() as connection, connection.transaction():
        await connection.execute("LOCK TABLE queues")
        deletion = asyncio.create_task(client.delete("/api/v1/resources/queues/orders"))

        async def waits() -> bool:
            waiting = (
                "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'queues'::regclass)"
            )
            return bool(await connection.fetchval(waiting))

        await wait_until_async(waits, 10, "the deletion waits for the table")
        deletion.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deletion
    [message] = [record.getMessage() for record in caplog.records if "The entry:" in record.getMessage()]
    assert "DELETE /api/v1/resources/queues/{queue}" in message
    assert '"status":499' in message
