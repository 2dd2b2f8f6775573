"""The pages of the console with data on each, and the call behind every button that changes something."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from penstock.durable.pool import Database
from tests.integration.api.broker_tokens import GuardedBroker
from tests.integration.api.calls import get, pop, push
from tests.integration.api.routes.test_dead_letter_routes import create_job, dead_letter_messages
from tests.integration.console.test_alerts_page import add_incident
from tests.integration.durable.alerts.alert_rows import add_notice

PAYLOAD = "card 4711"
"""A text that is in all payloads, and nowhere else."""


@dataclass(frozen=True)
class Action:
    """A button or link of a page, and the operation of the API behind it."""

    operation: str
    needs_payload: bool = False
    needs_platform_admin: bool = False


@dataclass(frozen=True)
class ConsolePage:
    """A page at the path, which shows text of this pattern when it has its data."""

    path: str
    ready_pattern: str
    actions: Mapping[str, Action] = field(default_factory=dict)
    shows_payload: bool = False


PUSH = Action("POST /api/v1/push")
CLONE_MESSAGE = Action("POST /api/v1/push", needs_payload=True)
CLONE_TASK = Action("POST /api/v1/run-queues/{queue}/tasks", needs_payload=True)
ANNOTATE = Action("POST /api/v1/annotations")
CREATE_JOB = Action("POST /api/v1/jobs")
CHANGE_GROUP = Action("PATCH /api/v1/dlq/error-groups/{error_group}")
DELETE_MESSAGE = Action("DELETE /api/v1/messages/{partition_id}/{transaction_id}")
SET_QUOTAS = Action(
    "PUT /api/v1/environments/{organization}/{project}/{environment}", needs_platform_admin=True
)
GROUP_ACTIONS = {
    "Requeue…": Action("POST /api/v1/dlq/requeue"),
    "Resolve": CHANGE_GROUP,
    "Mark open": CHANGE_GROUP,
    "Ignore until…": CHANGE_GROUP,
    "Owner and note…": CHANGE_GROUP,
    "Delete all…": Action("POST /api/v1/dlq/purge"),
}


async def create_pages(
    broker: GuardedBroker, client: httpx.AsyncClient, database: Database
) -> dict[str, ConsolePage]:
    """Create data for all pages, as a platform administrator, and return the pages by name."""
    suffix = uuid.uuid4().hex[:8]
    return {
        "overview": ConsolePage("/", "Dead letters"),
        "workers": ConsolePage("/console/workers", "Batches since the start|Only platform administrators"),
        "pipeline": ConsolePage("/console/pipeline", "has not reported yet|Only platform administrators"),
        **await queue_pages(client, f"orders-{suffix}", f"mail-{suffix}"),
        **await dead_letter_pages(client, f"payments-{suffix}"),
        **await operation_pages(broker, client, f"busy-{suffix}"),
        **await alert_pages(client, database, f"alerts-{suffix}"),
        **await access_pages(client, f"env-{suffix}"),
    }


async def queue_pages(client: httpx.AsyncClient, queue: str, run_queue: str) -> dict[str, ConsolePage]:
    [_, message] = await push(client, {"n": 1, "text": PAYLOAD}, {"n": 2, "text": PAYLOAD}, queue=queue)
    assert await pop(client, queue, consumerGroup="billing", subscriptionMode="all", batch=1)
    await send(client, "/annotations", kind="deploy", text="release 7", queue=queue)
    await send(client, f"/run-queues/{run_queue}/tasks", payload={"text": PAYLOAD})
    ids = {"transactionId": message["transaction_id"], "partitionId": message["partition_id"]}
    await send(client, "/traces", **ids, data={"text": PAYLOAD}, traceNames="flow")
    return {
        "queues": ConsolePage(f"/console/queues?search={queue}", queue),
        "queue": ConsolePage(
            f"/console/queues/{queue}",
            "release 7",
            {
                "Push a message": PUSH,
                "Pause": Action("POST /api/v1/resources/queues/{queue}/pause"),
                "Configure": Action("POST /api/v1/configure"),
                "Purge": Action("POST /api/v1/resources/queues/{queue}/purge"),
                "Delete": Action("DELETE /api/v1/resources/queues/{queue}"),
                "Seek": Action("POST /api/v1/consumer-groups/{group}/queues/{queue}/seek"),
                "Add a note": ANNOTATE,
                "✕": Action("DELETE /api/v1/annotations/{annotation_id}"),
                "Clone": CLONE_MESSAGE,
            },
            shows_payload=True,
        ),
        "run queue": ConsolePage(
            f"/console/queues/{run_queue}",
            "0 of",
            {
                "Enqueue a task": Action("POST /api/v1/run-queues/{queue}/tasks"),
                "Pause": Action("POST /api/v1/run-queues/{queue}/pause"),
                "Limit": Action("PUT /api/v1/run-queues/{queue}/limits"),
                "Purge": Action("POST /api/v1/run-queues/{queue}/purge"),
                "Delete": Action("DELETE /api/v1/run-queues/{queue}"),
                "Change all that match…": CREATE_JOB,
                "Add a note": ANNOTATE,
                "Clone": CLONE_TASK,
            },
            shows_payload=True,
        ),
        "messages": ConsolePage(
            f"/console/messages?queue={queue}",
            message["transaction_id"],
            {"Change all that match…": CREATE_JOB},
            shows_payload=True,
        ),
        "message": ConsolePage(
            f"/console/messages/{message['transaction_id']}?{urlencode(ids)}",
            "Trace:",
            {
                "Clone and edit": CLONE_MESSAGE,
                "Move to dead letters": Action("POST /api/v1/messages/{partition_id}/{transaction_id}/dlq"),
                "Delete": DELETE_MESSAGE,
            },
            shows_payload=True,
        ),
    }


async def dead_letter_pages(client: httpx.AsyncClient, queue: str) -> dict[str, ConsolePage]:
    payloads = [{"n": n, "text": PAYLOAD} for n in (1, 2)]
    letter, message = await dead_letter_messages(client, *payloads, queue=queue, error="card declined")
    await dead_letter_messages(client, 1, 2, 3, queue=f"{queue}-2", error="timeout")
    await create_job(client, "requeue", queue=f"{queue}-2", sample=1)
    [group] = (await get(client, "/dlq/groups", queue=queue))["groups"]
    group_path = f"/console/dead-letters/{group['errorGroup']}?queue={queue}"
    ids = urlencode({key: message[key] for key in ("transactionId", "partitionId")})
    return {
        "dead letters": ConsolePage(f"/console/dead-letters?queue={queue}", "card declined"),
        "error group": ConsolePage(group_path, letter["letterId"], GROUP_ACTIONS),
        "dead letter": ConsolePage(
            f"{group_path}&letter={quote(letter['letterId'])}",
            "First enqueued",
            GROUP_ACTIONS
            | {
                "Requeue": Action("POST /api/v1/dlq/letters/{letter_id}/requeue"),
                "Delete…": Action("DELETE /api/v1/dlq/letters/{letter_id}"),
            },
            shows_payload=True,
        ),
        "dead message": ConsolePage(
            f"/console/messages/{message['transactionId']}?{ids}",
            "Dead after",
            {
                "Clone and edit": CLONE_MESSAGE,
                "Requeue": Action("POST /api/v1/messages/{partition_id}/{transaction_id}/retry"),
                "Delete": DELETE_MESSAGE,
            },
            shows_payload=True,
        ),
        "jobs": ConsolePage(
            "/console/dead-letters?tab=jobs",
            f"{queue}-2",
            {
                "Change messages or tasks…": CREATE_JOB,
                "Cancel job": Action("POST /api/v1/jobs/{job_id}/cancel"),
            },
        ),
    }


async def operation_pages(
    broker: GuardedBroker, client: httpx.AsyncClient, queue: str
) -> dict[str, ConsolePage]:
    """Defer a push, which waits because the drain is stopped."""
    load = broker.services.broker.load
    await push(client, 1, queue=queue)
    load._kinds["push"].is_busy = True
    body = {"items": [{"queue": queue, "payload": 2}]}
    assert (await client.post("/api/v1/push", json=body)).status_code == 202
    load._kinds["push"].is_busy = False
    return {
        "operations": ConsolePage(
            f"/console/operations?status=pending&queue={queue}",
            "pending",
            {"Cancel": Action("DELETE /api/v1/operations/{operationId}")},
        )
    }


async def alert_pages(client: httpx.AsyncClient, database: Database, queue: str) -> dict[str, ConsolePage]:
    definition = {"name": f"rule of {queue}", "type": "BACKLOG", "queue": queue, "threshold": 100.0}
    rule = await send(client, "/alert-rules", **definition)
    await send(client, "/alert-silences", queue=queue, comment=f"silence of {queue}")
    url = "https://hooks.example.com/"
    channel = await send(client, "/alert-channels", name=f"channel-of-{queue}", kind="webhook", url=url)
    incident_id = await add_incident(database, {**definition, "statistic": "last", "windowMinutes": 1}, queue)
    notice_id = await add_notice(database, incident_id, uuid.UUID(channel["id"]))
    await database.fetch("UPDATE alert_notices SET state = 'failed' WHERE id = $1", notice_id)
    return {
        "incidents": ConsolePage(f"/console/alerts?queue={queue}", f"rule of {queue}"),
        "incident": ConsolePage(
            f"/console/alerts?incident={incident_id}",
            "900 messages wait",
            {
                "Acknowledge": Action("POST /api/v1/incidents/{incident_id}/acknowledge"),
                "Silence": Action("POST /api/v1/alert-silences"),
                "Add note": Action("POST /api/v1/incidents/{incident_id}/notes"),
            },
        ),
        "rules": ConsolePage(
            "/console/alerts?tab=rules",
            f"rule of {queue}",
            {
                "New rule": Action("POST /api/v1/alert-rules"),
                "Turn off": Action("PUT /api/v1/alert-rules/{rule_id}"),
                "Delete": Action("DELETE /api/v1/alert-rules/{rule_id}"),
            },
        ),
        "rule": ConsolePage(
            f"/console/alerts?tab=rules&rule={rule['id']}",
            "Backtest",
            {
                "Save": Action("PUT /api/v1/alert-rules/{rule_id}"),
                "Backtest": Action("POST /api/v1/alert-rules/test"),
            },
        ),
        "deliveries": ConsolePage(
            f"/console/alerts?tab=deliveries&channel=channel-of-{queue}",
            f"channel-of-{queue} webhook",
            {"Retry": Action("POST /api/v1/alert-notices/{notice_id}/retry")},
        ),
        "silences": ConsolePage(
            "/console/alerts?tab=silences",
            f"silence of {queue}",
            {
                "New silence": Action("POST /api/v1/alert-silences"),
                "Edit": Action("PUT /api/v1/alert-silences/{silence_id}"),
                "Delete": Action("DELETE /api/v1/alert-silences/{silence_id}"),
            },
        ),
        "channels": ConsolePage(
            "/console/alerts?tab=channels",
            f"channel-of-{queue}",
            {
                "New channel": Action("POST /api/v1/alert-channels"),
                "Send test": Action("POST /api/v1/alert-channels/{channel}/test"),
                "Edit": Action("PUT /api/v1/alert-channels/{channel}"),
                "Delete": Action("DELETE /api/v1/alert-channels/{channel}"),
            },
        ),
    }


async def access_pages(client: httpx.AsyncClient, environment: str) -> dict[str, ConsolePage]:
    await send(client, "/environments", organization="acme", project="shop", environment=environment)
    await send(client, "/tokens", name=f"token-of-{environment}", scopes=["read"])
    own = "default/default/default"
    return {
        "tokens": ConsolePage(
            "/console/access",
            f"token-of-{environment}|{own}",
            {
                "New token": Action("POST /api/v1/tokens"),
                "Rotate": Action("POST /api/v1/tokens/{token_id}/rotate"),
                "Revoke": Action("DELETE /api/v1/tokens/{token_id}"),
            },
        ),
        "environments": ConsolePage(
            "/console/access?tab=environments",
            own,
            {
                "New environment": Action("POST /api/v1/environments", needs_platform_admin=True),
                "Quotas": SET_QUOTAS,
                "Delete": Action(
                    "DELETE /api/v1/environments/{organization}/{project}/{environment}",
                    needs_platform_admin=True,
                ),
            },
        ),
        "quotas": ConsolePage(
            "/console/access?tab=quotas", f"Environment {own}", {"Change the quotas": SET_QUOTAS}
        ),
        "audit": ConsolePage(
            "/console/access?tab=audit",
            f"POST /api/v1/tokens|{own}",
            {"Export": Action("GET /api/v1/audit/export")},
        ),
    }


async def send(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    """Send a POST request and return the body of its response."""
    response = await client.post(f"/api/v1{path}", json=body)
    assert response.is_success, response.text
    answer: dict[str, Any] = response.json()
    return answer
