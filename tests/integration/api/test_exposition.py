"""What Prometheus reads."""

from __future__ import annotations

import asyncpg
import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.telemetry import EXPORTED


async def scraped(client: httpx.AsyncClient) -> dict[str, dict[tuple[str, ...], float]]:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(answer.text)
    return {f.name: {tuple(s.labels.values()): s.value for s in f.samples} for f in families}


async def test_every_metric_of_the_table_is_exported(client: httpx.AsyncClient) -> None:
    assert set(await scraped(client)) == {exported.name for exported in EXPORTED}


async def test_operations_are_counted(client: httpx.AsyncClient) -> None:
    body = {"items": [{"queue": "q", "payload": n} for n in range(3)]}
    await client.post("/api/v1/push", json=body)
    metrics = await scraped(client)
    assert metrics["penstock_operation_requests"][("push",)] == 1
    assert metrics["penstock_operation_items"][("push",)] == 3
    assert metrics["penstock_database_connections"][("open",)] >= 1


async def test_who_holds_the_vacuum_horizon_is_named(database_url: str, client: httpx.AsyncClient) -> None:
    client_app = client._transport.app.app  # type: ignore[attr-defined]
    given = client_app.state.services
    object.__setattr__(given, "settings", given.settings.model_copy(update={"horizon_s": 0}))
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        pid = str(holder.get_server_pid())
        named = (await scraped(client))["penstock_vacuum_horizon_age_seconds"]
        assert ("idle in transaction", pid) in named
    finally:
        await holder.close()
