"""An environment with objects of every kind, and their ids."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from penstock.broker.messages import NewMessage
from penstock.broker.overload.load import Decision
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

QUEUE, GROUP, RUN_QUEUE = "orders", "workers", "mail"
"""Names that all environments have."""

Ids = dict[str, str]


@dataclass(frozen=True)
class FilledEnvironment:
    """`marker` is in every text, and `number` is the number of pushed messages and measured events."""

    scope: Scope
    marker: str
    number: int
    client: httpx.AsyncClient
    ids: Ids


def unknown_ids() -> Ids:
    """Ids of the same form that nothing has."""
    return {
        "partition": "987654321",
        "transaction": "no-such-message",
        "lease": f"987654321.{uuid4()}",
        "letter": "987654321",
        "task": f"{uuid4()}-0",
        "task_token": "1",
        "channel": "no-such-channel",
        "trace": "no-such-trace",
        "own_queue": "no-such-queue",
        **{
            name: str(uuid4())
            for name in ("message", "operation", "job", "rule", "silence", "notice", "incident", "token")
        },
        "error_group": str(uuid4()),
        "annotation": "987654321",
        "environment": "no-such-environment",
        "organization": "no-such-organization",
    }


async def fill_environment(
    broker: GuardedBroker, database: Database, warehouse: Warehouse, scope: Scope, marker: str, number: int
) -> FilledEnvironment:
    """Create objects of every kind in an existing environment."""
    client = broker.client(await broker.secret(ALL_SCOPES, scope), timeout=60)
    ids: Ids = {"environment": scope.environment, "organization": scope.organization}
    ids |= await _fill_durable_queues(client, broker, scope, marker, number)
    ids |= await _fill_dead_letters(client, marker)
    ids |= await _fill_run_queue(client, marker)
    ids |= await _fill_alerts(client, database, scope, marker)
    ids["annotation"] = (await _post(client, "/annotations", {"text": marker, "queue": QUEUE}))["id"]
    ids["token"] = (await _get(client, "/tokens"))["tokens"][0]["id"]
    for queue in (QUEUE, ids["own_queue"]):
        row = landing_row(time.time() - 60, queue=queue, enqueued=number, **scope._asdict())
        insert_rows(warehouse, row)
    return FilledEnvironment(scope, marker, number, client, ids)


async def _get(client: httpx.AsyncClient, path: str) -> Any:
    response = await client.get(f"/api/v1{path}")
    assert response.is_success, response.text
    return response.json()


async def _post(client: httpx.AsyncClient, path: str, body: object) -> Any:
    response = await client.post(f"/api/v1{path}", json=body)
    assert response.is_success, response.text
    return response.json()


async def _fill_durable_queues(
    client: httpx.AsyncClient, broker: GuardedBroker, scope: Scope, marker: str, number: int
) -> Ids:
    own_queue = f"only-{marker}"
    items = [
        {"queue": queue, "partition": "p", "payload": marker, "transactionId": f"{marker}-{n}"}
        for queue, count in ((QUEUE, number - 2), (own_queue, number))  # two more follow
        for n in range(count)
    ]
    await _post(client, "/push", {"items": items})
    popped = await _get(client, f"/pop/queue/{QUEUE}?batch=3&consumerGroup={GROUP}")
    message = popped["messages"][0]
    ids = {
        "partition": message["partitionId"],
        "transaction": message["transactionId"],
        "lease": message["leaseId"],
        "message": message["id"],
        "own_queue": own_queue,
        "trace": f"trace-{marker}",
    }
    trace = {name: message[name] for name in ("transactionId", "partitionId")}
    await _post(client, "/traces", trace | {"traceNames": [ids["trace"]], "data": {"text": marker}})
    deferred = [NewMessage(QUEUE, "deferred", f'"{marker}"'.encode())]
    [result] = await broker.services.broker.push(scope, deferred, Decision.DEFER)
    assert result.deferral is not None
    return ids | {"operation": result.deferral.operation_id}


async def _fill_dead_letters(client: httpx.AsyncClient, marker: str) -> Ids:
    await _post(client, "/push", {"items": [{"queue": QUEUE, "partition": "dead", "payload": marker}]})
    popped = await _get(client, f"/pop/queue/{QUEUE}/partition/dead?consumerGroup={GROUP}")
    [message] = popped["messages"]
    ack = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    await _post(client, "/ack", ack | {"status": "dlq", "error": f"broken {marker}"})
    letter = (await _get(client, "/dlq"))["messages"][0]
    groups = (await _get(client, "/dlq/groups"))["groups"]
    job = await _post(client, "/dlq/purge", {"queue": f"only-{marker}", "error": marker})
    return {"letter": letter["letterId"], "error_group": groups[0]["errorGroup"], "job": job["id"]}


async def _fill_run_queue(client: httpx.AsyncClient, marker: str) -> Ids:
    tasks = [{"payload": marker, "maxAttempts": 1} for _ in range(4)]
    await _post(client, f"/run-queues/{RUN_QUEUE}/tasks", {"tasks": tasks})
    options = {"limit": 2, "worker": marker, "visibilityMs": 600_000}
    dead, held = (await _post(client, f"/run-queues/{RUN_QUEUE}/dequeue", options))["tasks"]
    await _post(client, f"/tasks/{dead['id']}/nack", {"token": dead["token"], "error": marker})
    return {"task": held["id"], "task_token": str(held["token"]), "dead_task": dead["id"]}


async def _fill_alerts(client: httpx.AsyncClient, database: Database, scope: Scope, marker: str) -> Ids:
    channel = {"name": f"ops-{marker}", "kind": "webhook", "url": f"https://example.com/{marker}"}
    await _post(client, "/alert-channels", channel)
    rule = {"name": marker, "type": "BACKLOG", "threshold": 5, "channels": [channel["name"]]}
    ids = {
        "channel": channel["name"],
        "rule": (await _post(client, "/alert-rules", rule))["id"],
        "silence": (await _post(client, "/alert-silences", {"comment": marker}))["id"],
        "notice": (await _post(client, f"/alert-channels/{channel['name']}/test", {}))["id"],
        "incident": str(uuid4()),
    }
    await database.fetch(
        "INSERT INTO alert_incidents (id, environment_id, rule_id, rule, severity, opened_at) "
        "SELECT $1, environment_id, id, rule, 'warning', now() FROM alert_rules WHERE id = $2",
        ids["incident"],
        ids["rule"],
    )
    await _post(client, f"/incidents/{ids['incident']}/notes", {"text": marker, "author": marker})
    return ids
