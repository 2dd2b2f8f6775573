"""The health of this process and of the servers it uses, for `/health` and `/health/ready`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from penstock.api.cached_check import TIMEOUT_S, CachedCheck, ComponentHealth
from penstock.api.warehouse_access import WarehouseAccess
from penstock.broker.broker import Broker
from penstock.config import Settings
from penstock.errors import PenstockError, SchemaOutdated
from penstock.streams.progress import find_problem, read_progress_async

READY_WAIT_S = 0.5
"""How long `/health/ready` waits for PostgreSQL: less than the timeout of common probes, one second."""

EFFECTS = {
    "postgres": "Pushes go to the journal; pops and acks get 503.",
    "redis": "Run queues get 503, and metric events wait in the broker. Durable queues work.",
    "clickhouse": "Queues work; charts show no new data, and metric events wait in Redis.",
    "pipeline": "Queues work; charts show no new data, and metric events wait in Redis.",
}
"""What the outage of a component means for users, while messages can be taken."""

STOPPING = "This broker is stopping."
OUTDATED_SCHEMA = "the tables or functions of Penstock are missing or outdated"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of all components.

    `reasons` has one sentence for each component that is down. `warnings` are problems that do not stop
    anything yet.
    """

    components: Mapping[str, ComponentHealth]
    reasons: list[str]
    warnings: list[str]
    takes_messages: bool


class HealthChecks:
    """Checks of PostgreSQL, Redis, ClickHouse and the pipeline, each on connections of its own."""

    def __init__(self, settings: Settings, broker: Broker, warehouse: WarehouseAccess) -> None:
        self._horizon_s = settings.horizon_s
        self._broker = broker
        self._warehouse = warehouse
        self._redis = redis.asyncio.from_url(
            settings.redis_url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._warnings: list[str] = []
        self._checks = {
            "postgres": CachedCheck(self._check_postgres),
            "redis": CachedCheck(self._check_redis),
            "clickhouse": CachedCheck(self._check_clickhouse),
            "pipeline": CachedCheck(self._check_pipeline),
        }
        self._is_stopping = False

    def begin_drain(self) -> None:
        """Report that this broker should get no new traffic. It still serves."""
        self._is_stopping = True

    async def stop(self) -> None:
        for check in self._checks.values():
            await check.stop()
        await self._redis.aclose()

    async def report(self) -> HealthReport:
        """Check every component; wait at most two seconds."""
        results = await asyncio.gather(*(check.read() for check in self._checks.values()))
        components: dict[str, ComponentHealth] = {"broker": {"status": "up", "detail": "answering"}}
        components.update(zip(self._checks, results, strict=True))
        refusal = self._push_refusal(components["postgres"])
        effects = EFFECTS | {"postgres": refusal} if refusal else EFFECTS
        reasons = [
            f"{name} is down: {component['detail'].rstrip('.')}. {effects[name]}"
            for name, component in components.items()
            if component["status"] != "up"
        ]
        return HealthReport(components, reasons, self._warnings, refusal is None)

    async def find_unready_reason(self) -> str | None:
        """Return why this broker should get no traffic, or None if it should; waits half a second at most."""
        if self._is_stopping:
            return STOPPING
        postgres = await self._checks["postgres"].read(READY_WAIT_S)
        refusal = self._push_refusal(postgres)
        return None if refusal is None else f"postgres is down: {postgres['detail'].rstrip('.')}. {refusal}"

    def _push_refusal(self, postgres: ComponentHealth) -> str | None:
        """Return why no message can be taken, or None if PostgreSQL or the journal takes messages."""
        if postgres["status"] == "up":
            return None
        if postgres["detail"] == OUTDATED_SCHEMA:  # PostgreSQL responds, so pushes do not go to the journal
            return "Messages cannot be taken: run `penstock migrate`."
        if self._broker.journal is None:
            return "Messages cannot be taken: the journal is switched off (PENSTOCK_JOURNAL_MB=0)."
        reason = self._broker.journal.refusal_reason()
        return f"Messages cannot be taken: {reason}." if reason else None

    async def _check_postgres(self) -> str:
        try:
            holders = await self._broker.diagnostics.check_health(self._horizon_s)
        except SchemaOutdated as error:
            raise PenstockError(OUTDATED_SCHEMA) from error
        self._warnings = [holder.summary for holder in holders]
        return "answering"

    async def _check_redis(self) -> str:
        await self._redis.ping()
        return "answering"

    async def _check_clickhouse(self) -> str:
        await asyncio.to_thread(self._warehouse.ping)
        return "answering"

    async def _check_pipeline(self) -> str:
        progress = await read_progress_async(self._redis)
        if problem := find_problem(progress):
            raise PenstockError(problem)
        return str((progress or {})["state"])
