"""Fixtures: an evaluator with its own databases, and a clock that the test sets."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from redis.asyncio import Redis

from penstock.alerts.evaluation.evaluator import Evaluator
from penstock.clock import to_utc
from penstock.definitions import EMIT_DELAY_S, QUEUE
from penstock.durable.pool import SCHEMA, Database
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.streams.positions import CONSUMER_GROUP
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.integration.warehouse.conftest import database_url as clickhouse_database_url
from tests.integration.warehouse.landing_rows import insert_rows, landing_row


@pytest.fixture(scope="module")
def warehouse(clickhouse_url: str) -> Iterator[Warehouse]:
    url = clickhouse_database_url(clickhouse_url)
    migrate(url)
    client = connect(url)
    yield client
    client.command(f"DROP DATABASE {urlsplit(url).path[1:]}")
    client.close()


@dataclass(slots=True)
class AlertPlatform:
    """An environment with queues, rules and a channel, and evaluators whose clock the test moves."""

    database_url: str
    connection: asyncpg.Connection[asyncpg.Record]
    redis_url: str
    warehouse: Warehouse
    environment_id: int
    environment: str
    now_s: float = 1_800_000_000.0
    evaluators: list[Evaluator] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def evaluator(self) -> Evaluator:
        """A new evaluator, stopped at the end of the test."""
        created = Evaluator(
            self.database_url,
            Redis.from_url(self.redis_url),
            self.warehouse,
            RunQueues(self.redis_url),
            clock=self.clock,
        )
        self.evaluators.append(created)
        return created

    async def add_rule(self, **fields: object) -> uuid.UUID:
        rule_id = uuid4()
        rule = {"name": f"rule {rule_id}", "channels": ["ops"], **fields}
        await self.connection.execute(
            "INSERT INTO alert_rules (id, environment_id, name, rule, enabled) VALUES ($1, $2, $3, $4, true)",
            rule_id,
            self.environment_id,
            rule["name"],
            json.dumps(rule),
        )
        return rule_id

    async def add_queue(self, queue: str) -> None:
        await self.connection.execute(
            "INSERT INTO queues (environment_id, name) VALUES ($1, $2)", self.environment_id, queue
        )

    def observe(self, queue: str, seconds_ago: float = 1.0, **measures: Any) -> None:
        """Write a row of metrics for the time some seconds before the clock's."""
        time_s = self.now_s - seconds_ago
        insert_rows(
            self.warehouse, landing_row(time_s, queue=queue, environment=self.environment, **measures)
        )

    async def set_watermark(self, behind_s: float) -> None:
        """Let the oldest event that the pipeline has not read be as old as this."""
        redis = Redis.from_url(self.redis_url)
        key = QUEUE.stream_keys[0]
        await redis.delete(*QUEUE.stream_keys)
        await redis.xgroup_create(key, CONSUMER_GROUP, id="0", mkstream=True)
        event_ms = int((self.now_s - behind_s + EMIT_DELAY_S) * 1000)
        await redis.xadd(key, {"event": ""}, id=f"{event_ms}-0")
        await redis.aclose()

    async def evaluate(self, after_s: float = 30.0) -> None:
        """Move the clock and evaluate once with the first evaluator."""
        self.now_s += after_s
        evaluator = self.evaluators[0] if self.evaluators else self.evaluator()
        assert await evaluator.run_round()

    async def states(self) -> dict[str, str]:
        rows = await self.connection.fetch("SELECT queue, phase, unknown_reason FROM alert_states")
        return {row["queue"]: "unknown" if row["unknown_reason"] else row["phase"] for row in rows}

    async def notices(self) -> list[tuple[str, list[str]]]:
        """The transition and the queues of every notice, in order."""
        rows = await self.connection.fetch(
            "SELECT transition, message FROM alert_notices ORDER BY created_at"
        )
        return [
            (row["transition"], [queue["name"] for queue in json.loads(row["message"])["queues"]])
            for row in rows
        ]


@pytest.fixture
async def platform(database_url: str, redis_url: str, warehouse: Warehouse) -> AsyncIterator[AlertPlatform]:
    connection = await asyncpg.connect(database_url, server_settings={"search_path": SCHEMA})
    environment = f"env-{uuid4().hex[:8]}"
    environment_id = await connection.fetchval(
        "INSERT INTO environments (organization, project, name) VALUES ('default', 'default', $1) "
        "RETURNING id",
        environment,
    )
    await connection.execute(
        "INSERT INTO alert_channels (id, environment_id, name, kind, settings, secrets) "
        "VALUES ($1, $2, 'ops', 'webhook', '{}', '')",
        uuid4(),
        environment_id,
    )
    created = AlertPlatform(*(database_url, connection, redis_url, warehouse, environment_id, environment))
    yield created
    for evaluator in created.evaluators:
        await evaluator.stop()
        await evaluator.close()
    await connection.close()


@pytest.fixture
def queue(platform: AlertPlatform, database: Database) -> QueueUnderTest:
    """The queue `orders` of the platform's environment; the test moves its clock too."""
    created = QueueUnderTest(database, scope=Scope("default", "default", platform.environment))
    created.now = to_utc(platform.now_s)
    return created
