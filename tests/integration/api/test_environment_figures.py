"""Metrics and figures are those of the caller's environment; platform administrators see all."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.access.token_service import NewToken
from penstock.broker.messages import NewMessage
from penstock.broker.overload.load import Decision
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import Scope
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, run_guarded_broker
from tests.integration.api.calls import assert_problem, write_minutes
from tests.integration.environments import create_environment

OURS, THEIRS = Scope("acme", "shop", "ours"), Scope("acme", "shop", "theirs")
PUSHED = {OURS: 3, THEIRS: 5}
PUSHED_NAME = "penstock_queue_messages_total"


@pytest_asyncio.fixture
async def broker(settings: Settings, database: Database) -> AsyncIterator[GuardedBroker]:
    """A broker with messages, tasks and deferred operations in two environments."""
    async with run_guarded_broker(settings) as guarded_broker:
        services = guarded_broker.services
        await services.broker.drain.stop()
        for scope, count in PUSHED.items():
            await create_environment(database, scope)
            await services.tokens.refresh()
            async with guarded_broker.client(await guarded_broker.secret(ALL_SCOPES, scope)) as client:
                items = [{"queue": "orders", "payload": n} for n in range(count)]
                await client.post("/api/v1/push", json={"items": items})
                await client.get("/api/v1/pop/queue/orders?consumerGroup=g&autoAck=true")
                await client.post("/api/v1/run-queues/mail/tasks", json={"payload": 1})
            await services.broker.push(scope, [NewMessage("late", "p", b"1")], Decision.DEFER)
        await write_minutes(services.worker_metrics)
        yield guarded_broker


@pytest_asyncio.fixture
async def ours(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with broker.client(await broker.secret(ALL_SCOPES, OURS)) as client:
        yield client


@pytest_asyncio.fixture
async def admin(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    token = NewToken(name="root", scopes=ALL_SCOPES, is_platform_admin=True)
    async with broker.client(await broker.create(token)) as client:
        yield client


async def scrape(client: httpx.AsyncClient) -> list[tuple[str, dict[str, str], float]]:
    text = (await client.get("/metrics")).text
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def pushed_by_environment(samples: list[tuple[str, dict[str, str], float]]) -> dict[str, float]:
    return {
        labels["environment"]: value
        for name, labels, value in samples
        if name == "penstock_queue_messages_total"
        and (labels["queue"], labels["event"]) == ("orders", "pushed")
    }


async def test_prometheus_gets_the_samples_of_the_callers_environment(
    ours: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    samples = await scrape(ours)
    assert {labels.get("environment") for _, labels, _ in samples} == {"ours"}, (
        "nothing of the platform either"
    )
    assert pushed_by_environment(samples) == {"ours": 3}
    names = {name for name, _, _ in samples}
    assert {"penstock_queue_depth", "penstock_queue_delayed", "penstock_incidents"} <= names
    all_samples = await scrape(admin)
    assert pushed_by_environment(all_samples) == {"ours": 3, "theirs": 5}
    assert any(name == "penstock_workers" for name, _, _ in all_samples)


@pytest.mark.parametrize("path", ["/analytics/throughput", "/status/analytics"])
async def test_messages_over_time_are_those_of_the_callers_environment(
    ours: httpx.AsyncClient, path: str
) -> None:
    response = (await ours.get(f"/api/v1{path}")).json()
    points = response.get("series") or response["dataPoints"]
    counts = [point.get("pushMessages", point.get("messages")) for point in points]
    assert sum(count or 0 for count in counts) == 3
    if path == "/analytics/throughput":
        assert sum(point["popMessages"] or 0 for point in points) == 1
        assert sum(point["ackMessages"] or 0 for point in points) == 1
        assert {point["pushRequests"] for point in points} == {None}
        assert [point["p50LagMs"] for point in points if point["popMessages"]] != [None]


async def test_rates_are_those_of_the_callers_environment(ours: httpx.AsyncClient) -> None:
    rates = (await ours.get("/api/v1/status")).json()["throughput"]
    assert rates["pushPerSecond"] == pytest.approx(3 / rates["coveredSeconds"], rel=0.01)


async def test_platform_administrators_see_the_throughput_of_all_brokers(admin: httpx.AsyncClient) -> None:
    points = (await admin.get("/api/v1/analytics/throughput")).json()["series"]
    assert sum(point["pushMessages"] or 0 for point in points) == 8
    assert sum(point["pushRequests"] or 0 for point in points) >= 2


async def test_statistics_of_operations_are_those_of_the_callers_environment(
    ours: httpx.AsyncClient,
) -> None:
    [row] = (await ours.get("/api/v1/operations/stats")).json()["stats"]
    assert (row["type"], row["count"]) == ("push", 1)


@pytest.mark.parametrize(
    "path",
    [
        "/analytics/worker-metrics",
        "/analytics/system-metrics",
        "/status/reconciliation",
        "/workers/host/0/metrics",
    ],
)
async def test_figures_of_the_platform_are_for_its_administrators(
    ours: httpx.AsyncClient, admin: httpx.AsyncClient, path: str
) -> None:
    assert_problem(await ours.get(f"/api/v1{path}"), 403, "forbidden")
    assert (await admin.get(f"/api/v1{path}")).status_code != 403
