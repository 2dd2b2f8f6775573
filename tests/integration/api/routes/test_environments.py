"""Environments over HTTP: who sees and changes them, and what their deletion leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.access.environment_deletion import (
    DeletionIntervals,
    EnvironmentContents,
    EnvironmentDeletion,
)
from penstock.access.token_service import NewToken
from penstock.api.environment_contents import environment_contents
from penstock.api.warehouse_access import WarehouseAccess
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.model import Scope
from penstock.runqueue.keys import environment_name
from penstock.warehouse.schema_migrations import migrate
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, bearer, run_guarded_broker
from tests.integration.api.calls import assert_problem
from tests.integration.warehouse.conftest import database_url
from tests.waiting import wait_until_async

PATH = "/api/v1/environments"
STAGING, OTHER = Scope("acme", "shop", "staging"), Scope("acme", "shop", "production")


@pytest.fixture(scope="module")
def warehouse_url(clickhouse_url: str) -> str:
    url = database_url(clickhouse_url)
    migrate(url)
    return url


@pytest_asyncio.fixture
async def broker(settings: Settings, warehouse_url: str) -> AsyncIterator[GuardedBroker]:
    settings = settings.model_copy(update={"clickhouse_url": warehouse_url})
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def admin(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a platform administrator."""
    secret = await broker.create(NewToken(name="root", scopes=ALL_SCOPES, is_platform_admin=True))
    async with broker.client() as client:
        client.headers.update(bearer(secret))
        yield client


async def create(admin: httpx.AsyncClient, scope: Scope) -> dict[str, Any]:
    response = await admin.post(PATH, json=scope._asdict())
    assert response.status_code == 201, response.text
    body: dict[str, Any] = response.json()
    return body


async def client_of(broker: GuardedBroker, scope: Scope) -> httpx.AsyncClient:
    client = broker.client()
    client.headers.update(bearer(await broker.secret(ALL_SCOPES, scope)))
    return client


async def test_platform_administrators_create_list_and_limit_environments(admin: httpx.AsyncClient) -> None:
    created = await create(admin, STAGING)
    assert (created["name"], created["quotas"], created["deletion"]) == ("acme/shop/staging", {}, None)
    assert_problem(await admin.post(PATH, json=STAGING._asdict()), 409, "wrong_state")
    assert_problem(
        await admin.post(PATH, json=STAGING._asdict() | {"project": "a b"}), 422, "invalid_request"
    )
    listed = (await admin.get(PATH)).json()
    assert [row["name"] for row in listed["environments"]] == ["acme/shop/staging", "default/default/default"]
    limited = await admin.put(f"{PATH}/{'/'.join(STAGING)}", json={"quotas": {"queues": 3}})
    assert limited.json()["quotas"] == {"queues": 3}
    assert_problem(await admin.delete(f"{PATH}/default/default/default"), 409, "wrong_state")
    assert_problem(await admin.delete(f"{PATH}/no/such/one"), 404, "unknown_environment")


async def test_other_callers_see_their_own_environment_alone(
    broker: GuardedBroker, admin: httpx.AsyncClient
) -> None:
    await create(admin, STAGING)
    await create(admin, OTHER)
    async with await client_of(broker, STAGING) as client:
        listed = (await client.get(PATH)).json()
        assert [row["name"] for row in listed["environments"]] == ["acme/shop/staging"]
        assert (await client.get(f"{PATH}/acme/shop/staging")).json()["name"] == "acme/shop/staging"
        for method in ("GET", "PUT", "DELETE"):
            response = await client.request(method, f"{PATH}/acme/shop/production", json={"quotas": {}})
            assert_problem(response, 404, "unknown_environment")
        for method in ("PUT", "DELETE"):
            response = await client.request(method, f"{PATH}/acme/shop/staging", json={"quotas": {}})
            assert_problem(response, 403, "forbidden")
        response = await client.post(PATH, json=Scope("acme", "shop", "third")._asdict())
        assert_problem(response, 403, "forbidden")


async def fill(client: httpx.AsyncClient) -> None:
    """Create objects of every kind."""
    items = [{"queue": "orders", "payload": n, "transactionId": f"t{n}"} for n in range(5)]
    await client.post("/api/v1/push", json={"items": items})
    popped = (await client.get("/api/v1/pop/queue/orders?batch=2&consumerGroup=g")).json()
    for message, status in zip(popped["messages"], ("dlq", "completed"), strict=True):
        body = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        acked = await client.post("/api/v1/ack", json=body | {"status": status, "error": "broken"})
        assert acked.status_code == 200, acked.text
    await client.post("/api/v1/run-queues/mail/tasks", json={"tasks": [{"payload": n} for n in range(3)]})
    await client.post("/api/v1/run-queues/mail/dequeue", json={})
    trace = {"transactionId": "t4", "partitionId": message["partitionId"], "traceNames": ["n"], "data": {}}
    rule = {"name": "backlog", "type": "BACKLOG", "threshold": 5}
    channel = {"name": "ops", "kind": "webhook", "url": "https://example.com/hook"}
    for path, body in {
        "/api/v1/traces": trace,
        "/api/v1/alert-silences": {},
        "/api/v1/alert-channels": channel,
        "/api/v1/alert-rules": rule,
    }.items():
        response = await client.post(path, json=body)
        assert response.is_success, response.text


async def rows_of(database: Database, scope: Scope) -> dict[str, int]:
    """The number of rows of each table that has the environment's id or its names."""
    columns = await database.fetch(
        "SELECT table_name, array_agg(column_name::text) AS names FROM information_schema.columns "
        "WHERE table_schema = 'penstock' AND table_name NOT LIKE 'audit%' GROUP BY table_name"
    )
    [row] = await database.fetch("SELECT environment_id_v1($1, $2, $3) AS id", *scope)
    counts = {}
    for table, names in columns:
        if "environment_id" in names:
            query, args = f"SELECT count(*) AS n FROM {table} WHERE environment_id = $1", [row["id"]]
        elif {"organization", "project"} <= set(names):
            name = "environment" if "environment" in names else "name"
            query = f"SELECT count(*) AS n FROM {table} WHERE (organization, project, {name}) = ($1, $2, $3)"
            args = list(scope)
        else:
            continue
        [count] = await database.fetch(query, *args)
        counts[table] = count["n"]
    return counts


class InterruptedDeletion(Exception):
    """Stands for the end of the process."""


def interrupted_contents(contents: EnvironmentContents, step: str) -> EnvironmentContents:
    """Contents whose deletion ends before a step."""

    async def interrupt(*_: object) -> Any:
        raise InterruptedDeletion

    return replace(contents, **{step: interrupt})


def deletion_with(settings: Settings, contents: EnvironmentContents) -> EnvironmentDeletion:
    """A deletion that waits for nothing, as any broker runs it."""
    intervals = DeletionIntervals(requests_s=0, events_s=0, pipeline_s=0)
    return EnvironmentDeletion(settings.postgres_url, contents, lambda: True, intervals)


async def is_interrupted(deletion: EnvironmentDeletion) -> bool:
    """Run a round. It does nothing while the broker's own deletion runs one."""
    try:
        await deletion.run_round()
    except InterruptedDeletion:
        return True
    return False


@pytest.mark.parametrize(
    "interrupted_step", [None, "delete_some_tasks", "read_counted_until_s", "delete_metrics"]
)
async def test_a_deleted_environment_leaves_nothing_but_the_others(
    broker: GuardedBroker,
    admin: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    interrupted_step: str | None,
) -> None:
    services = broker.services
    for scope in (STAGING, OTHER):
        await create(admin, scope)
        async with await client_of(broker, scope) as client:
            await fill(client)
    kept = await rows_of(database, OTHER)
    assert kept["queues"] == 1
    staging = await client_of(broker, STAGING)
    response = await admin.delete(f"{PATH}/acme/shop/staging")
    assert response.status_code == 202
    assert response.json()["deletion"]["requestedAt"] is not None
    assert (await staging.get("/api/v1/status")).status_code == 404, "refused at once"
    contents = environment_contents(services.broker, services.run_queues, services.warehouse, services.redis)
    if interrupted_step is not None:
        deletion = deletion_with(settings, interrupted_contents(contents, interrupted_step))
        await wait_until_async(lambda: is_interrupted(deletion), 30, "the deletion is interrupted")
        progress = (await admin.get(f"{PATH}/acme/shop/staging")).json()["deletion"]
        assert progress["queues"] == 1

    async def is_gone() -> bool:
        await deletion_with(settings, contents).run_round()
        return (await admin.get(f"{PATH}/acme/shop/staging")).status_code == 404

    await wait_until_async(is_gone, 30, "the environment is deleted")
    assert set((await rows_of(database, STAGING)).values()) == {0}
    assert await rows_of(database, OTHER) == kept
    async with Redis.from_url(settings.redis_url) as redis:
        assert [key async for key in redis.scan_iter(f"*{environment_name(STAGING)}*")] == []
    assert (await staging.get("/api/v1/status")).status_code == 401, "its tokens are gone"
    await staging.aclose()
    async with await client_of(broker, OTHER) as client:
        assert len((await client.get("/api/v1/resources/queues")).json()["queues"]) == 1
        assert (await client.get("/api/v1/run-queues/mail")).json()["running"] == 1
    audit = await admin.get("/api/v1/audit", params={"environment": "/".join(STAGING)})
    assert audit.json()["entries"], "the audit log outlives the environment"
    await create(admin, STAGING)
    audit = await admin.get("/api/v1/audit", headers={"X-Penstock-Environment": "/".join(STAGING)})
    assert audit.json()["entries"] == [], "they are not of the new environment with this name"


async def test_without_metrics_the_deletion_needs_no_clickhouse(
    broker: GuardedBroker, admin: httpx.AsyncClient, settings: Settings
) -> None:
    await create(admin, STAGING)
    assert (await admin.delete(f"{PATH}/acme/shop/staging")).status_code == 202
    services = broker.services
    unreachable = WarehouseAccess(f"http://127.0.0.1:{any_free_port()}/default")
    waiting, finishing = (
        deletion_with(
            settings,
            environment_contents(
                services.broker, services.run_queues, unreachable, services.redis, has_metrics=has_metrics
            ),
        )
        for has_metrics in (True, False)
    )
    await waiting.run_round()
    assert (await admin.get(f"{PATH}/acme/shop/staging")).status_code == 200

    async def is_deleted() -> bool:
        await finishing.run_round()  # does nothing while a round of the broker holds the job
        return (await admin.get(f"{PATH}/acme/shop/staging")).status_code == 404

    await wait_until_async(is_deleted, 10, "the environment is deleted")
    unreachable.close()
