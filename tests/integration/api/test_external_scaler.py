"""KEDA's external scaler: a real gRPC client, the server of `penstock scaler`, and a broker with tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import grpc
import pytest
import pytest_asyncio

from penstock.access.token_service import NewToken
from penstock.config import Settings
from penstock.embedded.servers.ports import any_free_port
from penstock.scaler import externalscaler_pb2 as messages
from penstock.scaler.external_scaler import SERVICE
from penstock.scaler.scaler_server import running_scaler
from tests.deadlines import deadline_s
from tests.integration.api import shared_app
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker
from tests.integration.api.http.raw_connections import RunningServer

server = shared_app.server

RESPONSES: dict[str, Any] = {
    "IsActive": messages.IsActiveResponse,
    "GetMetricSpec": messages.GetMetricSpecResponse,
    "GetMetrics": messages.GetMetricsResponse,
}


class Keda:
    """What KEDA calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def call(self, method: str, request: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=RESPONSES[method].FromString,
        )
        return await call(request, timeout=deadline_s(20))

    def stream_is_active(self, request: Any) -> Any:
        return self._channel.unary_stream(
            f"/{SERVICE}/StreamIsActive",
            request_serializer=type(request).SerializeToString,
            response_deserializer=messages.IsActiveResponse.FromString,
        )(request, timeout=deadline_s(30))


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings) -> Settings:
    changes = {"authentication": "required", "scaler_port": 0, "clickhouse_url": "http://127.0.0.1:1"}
    return shared_settings.model_copy(update=changes)


@pytest_asyncio.fixture
async def keda(shared_settings: Settings, server: RunningServer) -> AsyncIterator[Keda]:
    address = f"http://127.0.0.1:{server.port}"
    async with (
        running_scaler(shared_settings, address, poll_s=0.05) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield Keda(channel)


@pytest.fixture(scope="module")
def broker(server: RunningServer) -> GuardedBroker:
    return GuardedBroker(server)


@pytest.fixture
def queue() -> str:
    return f"renders-{uuid4().hex[:8]}"


async def enqueue(broker: GuardedBroker, queue: str, count: int) -> None:
    async with broker.client(await broker.secret(ALL_SCOPES)) as client:
        tasks = [{"payload": number} for number in range(count)]
        response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"tasks": tasks})
        assert response.is_success, response.text


async def drain(broker: GuardedBroker, queue: str) -> None:
    async with broker.client(await broker.secret(ALL_SCOPES)) as client:
        assert (await client.post(f"/api/v1/run-queues/{queue}/purge")).is_success


def trigger(queue: str, **metadata: str) -> Any:
    return messages.ScaledObjectRef(
        name="worker", namespace="shop", scalerMetadata={"scalerAddress": "s:1", "queue": queue, **metadata}
    )


async def test_keda_reads_the_number_of_workers_with_the_token_of_its_trigger(
    keda: Keda, broker: GuardedBroker, queue: str
) -> None:
    await enqueue(broker, queue, 40)
    token = await broker.create(NewToken(name=f"keda {queue}", scopes=["read"], queues=[queue]))
    reference = trigger(queue, token=token, waitTarget="10", workerRate="0.5")
    [spec] = (await keda.call("GetMetricSpec", reference)).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat) == ("wanted-workers", 1.0)
    request = messages.GetMetricsRequest(scaledObjectRef=reference, metricName=spec.metricName)
    [value] = (await keda.call("GetMetrics", request)).metricValues
    assert (value.metricName, value.metricValue, value.metricValueFloat) == ("wanted-workers", 8, 8.0)
    assert (await keda.call("IsActive", reference)).result
    await drain(broker, queue)
    assert not (await keda.call("IsActive", reference)).result


async def test_refusals_of_the_broker_become_statuses(keda: Keda, broker: GuardedBroker, queue: str) -> None:
    await enqueue(broker, queue, 1)
    limited = await broker.create(NewToken(name=f"other {queue}", scopes=["read"], queues=["other*"]))
    full = await broker.secret(ALL_SCOPES)
    for reference, status in (
        (trigger(queue), grpc.StatusCode.UNAUTHENTICATED),
        (trigger(queue, token="pk_wrong"), grpc.StatusCode.UNAUTHENTICATED),
        (trigger(queue, token=limited), grpc.StatusCode.PERMISSION_DENIED),
        (trigger(f"{queue}-none", token=full), grpc.StatusCode.NOT_FOUND),
        (trigger(queue, token=full, waitTarget="soon"), grpc.StatusCode.INVALID_ARGUMENT),
        (trigger("", token=full), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await keda.call("IsActive", reference)
        assert refused.value.code() is status, refused.value.details()


async def test_an_unknown_number_is_an_error_although_the_queue_is_active(
    shared_settings: Settings, broker: GuardedBroker, keda: Keda, queue: str
) -> None:
    """The settings name a ClickHouse that is away, so that the rate of a worker is unknown."""
    await enqueue(broker, queue, 3)
    reference = trigger(queue, tokenFromEnv=await broker.secret(ALL_SCOPES))
    assert (await keda.call("IsActive", reference)).result
    with pytest.raises(grpc.aio.AioRpcError, match="rate of a worker is unknown") as unknown:
        await keda.call("GetMetrics", messages.GetMetricsRequest(scaledObjectRef=reference))
    assert unknown.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_says_when_a_queue_becomes_active(
    keda: Keda, broker: GuardedBroker, queue: str
) -> None:
    await enqueue(broker, queue, 1)
    await drain(broker, queue)
    stream = keda.stream_is_active(trigger(queue, token=await broker.secret(ALL_SCOPES), workerRate="1"))
    assert not (await stream.read()).result
    await enqueue(broker, queue, 1)
    assert (await stream.read()).result
    stream.cancel()


async def test_a_broker_that_is_away_is_unavailable(shared_settings: Settings, queue: str) -> None:
    address = f"http://127.0.0.1:{any_free_port()}"
    async with (
        running_scaler(shared_settings, address) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="does not answer") as away:
            await Keda(channel).call("IsActive", trigger(queue))
    assert away.value.code() is grpc.StatusCode.UNAVAILABLE
