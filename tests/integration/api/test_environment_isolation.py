"""Two environments with the same names never see or change each other's data, whatever is requested.

One environment sends random requests to every route, with ids of its own and of the other environment. No
response has a text or a number of the other environment, an id of it is answered like an unknown one, and
afterwards the other environment is as it was: in PostgreSQL, Redis, ClickHouse and memory.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.api.app import create_app
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from tests.integration.api.broker_tokens import GuardedBroker, run_guarded_broker
from tests.integration.api.environment_dump import dump_environment
from tests.integration.api.filled_environment import (
    GROUP,
    QUEUE,
    RUN_QUEUE,
    FilledEnvironment,
    Ids,
    fill_environment,
    unknown_ids,
)
from tests.integration.environments import create_environment
from tests.integration.warehouse.conftest import database_url

OURS, THEIRS = Scope("acme", "shop", "ours"), Scope("acme", "shop", "theirs")
REQUESTS = 300

PATH_IDS = {
    "partition_id": "partition",
    "transaction_id": "transaction",
    "lease": "lease",
    "operationId": "operation",
    "job_id": "job",
    "jobId": "task",
    "letter_id": "letter",
    "task_id": "task",
    "rule_id": "rule",
    "silence_id": "silence",
    "notice_id": "notice",
    "incident_id": "incident",
    "token_id": "token",
    "annotation_id": "annotation",
    "error_group": "error_group",
    "channel": "channel",
    "name": "trace",
    "environment": "environment",
    "organization": "organization",
}
"""Path parameters that are ids, and the ids they take."""

PATH_NAMES = {
    "group": GROUP,
    "partition": "p",
    "channelId": QUEUE,
    "consumerId": GROUP,
    "project": "shop",
    "hostname": "host",
    "worker": "0",
    "entry_id": "1",
}

ACK = {"transactionId": "{transaction}", "partitionId": "{partition}", "leaseId": "{lease}"}
PUSH = {"queue": QUEUE, "partition": "p", "payload": 1, "transactionId": "{transaction}"}

BODIES: dict[str, Any] = {
    "/api/v1/ack": ACK,
    "/api/v1/ack/batch": {
        "acknowledgments": [ACK | {"status": status} for status in ("completed", "failed", "retry", "dlq")]
    },
    "/api/v1/transaction": {"operations": [{"type": "push", "items": [PUSH]}, {"type": "ack", **ACK}]},
    "/api/v1/push": {"items": [PUSH]},
    "/api/v1/configure": {"queue": QUEUE, "options": {"retryLimit": 9}},
    "/api/v1/dlq/purge": {"letterIds": ["{letter}"]},
    "/api/v1/dlq/requeue": {"letterIds": ["{letter}"]},
    "/api/v1/dlq/error-groups/{error_group}": {"state": "ignored", "owner": "ada"},
    "/api/v1/jobs": {"subject": "messages", "kind": "purge", "queue": QUEUE},
    "/api/v1/traces": {
        "transactionId": "{transaction}",
        "partitionId": "{partition}",
        "traceNames": ["{trace}"],
        "data": {},
    },
    "/api/v1/tasks/ack": {"tasks": [{"id": "{task}", "token": "{task_token:int}"}]},
    "/api/v1/tasks/nack": {"tasks": [{"id": "{task}", "token": "{task_token:int}", "error": "e"}]},
    "/api/v1/tasks/give-back": {"tasks": [{"id": "{task}", "token": "{task_token:int}"}]},
    "/api/v1/tasks/heartbeat": {"tasks": [{"id": "{task}", "token": "{task_token:int}"}]},
    "/api/v1/tasks/{task_id}/ack": {"token": "{task_token:int}"},
    "/api/v1/tasks/{task_id}/nack": {"token": "{task_token:int}", "error": "e"},
    "/api/v1/tasks/{task_id}/give-back": {"token": "{task_token:int}"},
    "/api/v1/tasks/{task_id}/heartbeat": {"token": "{task_token:int}"},
    "/api/v1/run-queues/{queue}/dead-letters": {"ids": ["{task}"]},
    "/api/v1/run-queues/{queue}/dead-letters/redrive": {"ids": ["{task}"]},
    "/api/v1/run-queues/{queue}/tasks": {"payload": 1},
    "/api/v1/run-queues/{queue}/limits": {"concurrency": 5},
    "/api/v1/environments/{environment}/run-limits": {"concurrency": 5},
    "/api/v1/environments/{organization}/{project}/{environment}": {"quotas": {}},
    "/api/v1/alert-rules": {"name": "rule {random}", "type": "BACKLOG", "threshold": 5},
    "/api/v1/alert-rules/{rule_id}": {"name": "changed", "type": "BACKLOG", "threshold": 6},
    "/api/v1/alert-silences": {"comment": "quiet"},
    "/api/v1/alert-silences/{silence_id}": {"comment": "changed"},
    "/api/v1/alert-channels/{channel}": {"url": "https://example.com/changed"},
    "/api/v1/incidents/{incident_id}/notes": {"text": "note", "author": "x"},
    "/api/v1/incidents/{incident_id}/acknowledge": {"by": "x"},
    "/api/v1/messages/{partition_id}/{transaction_id}/dlq": {"consumerGroup": GROUP, "error": "e"},
    "/api/v1/consumer-groups/{group}/queues/{queue}/seek": {"toEnd": True},
    "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek": {"toEnd": True},
    "/api/v1/consumer-groups/{group}/subscription": {"subscriptionTimestamp": "2026-01-01T00:00:00Z"},
    "/api/v1/tokens/{token_id}/rotate": {"overlapS": 60},
    "/api/v1/annotations": {"text": "deploy {random}", "kind": "deploy"},
}

PARAMETERS = {
    "/api/v1/pop": "?namespace=only-&task=&consumerGroup=" + GROUP,
    "/api/v1/pop/queue/{queue}": "?batch=2&consumerGroup=" + GROUP,
    "/api/v1/pop/queue/{queue}/partition/{partition}": "?consumerGroup=" + GROUP,
    "/api/v1/dlq": "?limit=1000",
    "/api/v1/messages": "?limit=100",
    "/api/v1/alert-notices": "?incident={incident}",
    "/api/v1/operations": "?after=00000000-0000-0000-0000-000000000000",
}

SKIPPED = {"/api/v1/session", "/api/v1/alert-rules/test", "/api/v1/environments"}
"""Routes without data of environments, and one that takes seconds."""


@dataclass(frozen=True)
class Operation:
    method: str
    path: str

    async def send(self, client: httpx.AsyncClient, ids: Ids, names: Ids) -> httpx.Response:
        def fill(match: re.Match[str]) -> str:
            name = match[1]
            return ids[PATH_IDS[name]] if name in PATH_IDS else {**PATH_NAMES, **names}[name]

        url = re.sub(r"\{(\w+)\}", fill, self.path) + _fill_text(PARAMETERS.get(self.path, ""), ids)
        body = _fill_text(json.dumps(BODIES.get(self.path, {})), ids)
        has_body = self.method in ("POST", "PUT", "DELETE")
        return await client.request(self.method, url, content=body if has_body else None)


def _fill_text(text: str, ids: Ids) -> str:
    text = text.replace("{random}", str(random.random()))
    for name, value in ids.items():
        text = text.replace(f'"{{{name}:int}}"', value).replace(f"{{{name}}}", value)
    return text


def read_operations() -> Iterator[Operation]:
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        if path not in SKIPPED:
            yield from (Operation(method.upper(), path) for method in methods)


OPERATIONS = sorted(read_operations(), key=lambda operation: (operation.path, operation.method))
OPERATIONS_WITH_IDS = [
    operation
    for operation in OPERATIONS
    if re.search(r"\{(transaction|lease|letter|task|trace)", json.dumps(BODIES.get(operation.path, "")))
    or any(name in PATH_IDS for name in re.findall(r"\{(\w+)\}", operation.path))
]


def find_leaks(response: httpx.Response, other: FilledEnvironment, sent: set[str]) -> list[object]:
    """Parts of another environment: its marker, apart from texts that were sent, or its number."""
    text = response.text
    for value in sorted(sent, key=len, reverse=True):
        text = text.replace(value, "")
    if other.marker in text:
        position = text.index(other.marker)
        return [text[max(0, position - 200) : position + 200]]
    if response.headers.get("content-type", "").startswith("application/json"):
        return [number for number in _numbers(response.json()) if number == other.number]
    return list(re.findall(rf".* {other.number}(?:\.0)?$", response.text, re.MULTILINE))


def _numbers(value: object) -> Iterator[float]:
    match value:
        case bool():
            return
        case int() | float():
            yield value
        case dict():
            for entry in value.values():
                yield from _numbers(entry)
        case list():
            for entry in value:
                yield from _numbers(entry)


@pytest.fixture(scope="module")
def warehouse(clickhouse_url: str) -> Warehouse:
    url = database_url(clickhouse_url)
    migrate(url)
    return connect(url)


@pytest_asyncio.fixture
async def broker(settings: Settings, warehouse: Warehouse) -> AsyncIterator[GuardedBroker]:
    settings = settings.model_copy(update={"clickhouse_url": warehouse.url, "maintenance_s": 3600})
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def environments(
    broker: GuardedBroker, database: Database, warehouse: Warehouse
) -> AsyncIterator[tuple[FilledEnvironment, FilledEnvironment]]:
    filled = []
    for scope, marker, number in ((OURS, "zzours", 37), (THEIRS, "zztheirs", 977)):
        await create_environment(database, scope)
        await broker.services.tokens.refresh()
        filled.append(await fill_environment(broker, database, warehouse, scope, marker, number))
    await broker.services.queue_metrics.stop()  # a flush in progress would emit after the first dump
    yield filled[0], filled[1]
    for environment in filled:
        await environment.client.aclose()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_random_requests_neither_see_nor_change_another_environment(
    broker: GuardedBroker,
    environments: tuple[FilledEnvironment, FilledEnvironment],
    database: Database,
    warehouse: Warehouse,
    settings: Settings,
    seed: int,
) -> None:
    ours, theirs = environments
    rng, sent = random.Random(seed), set[str]()
    operations = [*OPERATIONS, *rng.choices(OPERATIONS, k=REQUESTS)]
    rng.shuffle(operations)
    counts = await read_counts(theirs)
    async with Redis.from_url(settings.redis_url) as redis:
        before = await dump_environment(broker.services, database, redis, warehouse, THEIRS)
        for operation in operations:
            ids = {name: rng.choice((ours.ids, theirs.ids, theirs.ids)).get(name, "1") for name in theirs.ids}
            queue = rng.choice((QUEUE, RUN_QUEUE, theirs.ids["own_queue"], ours.ids["own_queue"]))
            response = await operation.send(ours.client, ids, {"queue": queue})
            sent |= {value for value in (*ids.values(), queue) if theirs.marker in value}
            assert find_leaks(response, theirs, sent) == [], operation
            assert response.status_code < 500, (operation, response.text)
        after = await dump_environment(broker.services, database, redis, warehouse, THEIRS)
    for server, contents in before.items():
        for name in contents.keys() | after[server].keys():
            assert after[server].get(name) == contents.get(name), (server, name)
    assert await read_counts(theirs) == counts


async def read_counts(environment: FilledEnvironment) -> list[object]:
    """Counts that are kept apart from the rows they count."""
    times = re.compile(r'"(oldestAgeMs|asOf|timestamp|[a-zA-Z]*Age[a-zA-Z]*)":[^,}]*|"throughput":{[^}]*}')
    paths = ("/dlq/status", "/resources/queues", "/resources/overview", "/run-queues")
    return [times.sub("", (await environment.client.get(f"/api/v1{path}")).text) for path in paths]


async def test_ids_of_another_environment_are_answered_like_unknown_ones(
    environments: tuple[FilledEnvironment, FilledEnvironment],
) -> None:
    ours, theirs = environments
    names = {"queue": RUN_QUEUE}
    for operation in OPERATIONS_WITH_IDS:
        unknown = theirs.ids | unknown_ids()
        outlines = [
            outline(await operation.send(ours.client, ids, names), ids) for ids in (theirs.ids, unknown)
        ]
        assert outlines[0] == outlines[1], operation
        assert outlines[0][0] != 403, operation


def outline(response: httpx.Response, ids: Ids) -> tuple[int, str]:
    """The status of a response and its text, without ids and numbers."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "", response.text)
    for value in sorted(ids.values(), key=len, reverse=True):
        if not value.isdigit():
            text = text.replace(value, "")
    return response.status_code, re.sub(r"[0-9][0-9.:TZ-]*", "", text)
