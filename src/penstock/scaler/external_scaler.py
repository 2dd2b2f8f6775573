"""The methods of KEDA's external scaler, answered by the broker's route for scaling.

A call fails with a gRPC status if the number of workers is unknown. KEDA and the Kubernetes autoscaler then
keep the workers that run, or use the `fallback` of the ScaledObject.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn, TypeAlias

import grpc
import httpx
from google.protobuf.message import Message

from penstock.errors import InvalidRequest
from penstock.scaler import externalscaler_pb2 as messages
from penstock.scaler.scaling_trigger import ScalingTrigger

SERVICE = "externalscaler.ExternalScaler"
METRIC = "wanted-workers"
POLL_S = 5.0
"""How often a stream asks the broker whether the queue has become active."""

_STATUS = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ExternalScaler:
    """Answers KEDA. Each call is one request to the broker with the token of the trigger."""

    def __init__(self, broker: httpx.AsyncClient, poll_s: float = POLL_S) -> None:
        self._broker = broker
        self._poll_s = poll_s

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of all methods, for a gRPC server."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "IsActive": _unary(self.is_active, messages.ScaledObjectRef),
                "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                    self.stream_is_active,
                    request_deserializer=messages.ScaledObjectRef.FromString,
                    response_serializer=_serialize,
                ),
                "GetMetricSpec": _unary(self.get_metric_spec, messages.ScaledObjectRef),
                "GetMetrics": _unary(self.get_metrics, messages.GetMetricsRequest),
            },
        )

    async def is_active(self, request: messages.ScaledObjectRef, context: Context) -> Message:
        """Say whether the queue needs a worker, also while their number is unknown."""
        scaling = await self._read_scaling(request.scalerMetadata, context)
        return messages.IsActiveResponse(result=_is_active(scaling))

    async def stream_is_active(
        self, request: messages.ScaledObjectRef, context: Context
    ) -> AsyncIterator[Message]:
        """Say it now, and again whenever it changes, until KEDA ends the call."""
        last: bool | None = None
        while True:
            active = _is_active(await self._read_scaling(request.scalerMetadata, context))
            if active != last:
                yield messages.IsActiveResponse(result=active)
                last = active
            await asyncio.sleep(self._poll_s)

    async def get_metric_spec(self, request: messages.ScaledObjectRef, context: Context) -> Message:
        """The metric is the number of workers itself: one unit per worker."""
        spec = messages.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: messages.GetMetricsRequest, context: Context) -> Message:
        """Return the number of wanted workers."""
        scaling = await self._read_scaling(request.scaledObjectRef.scalerMetadata, context)
        wanted = scaling["wantedWorkers"]
        if wanted is None:
            await _abort(
                context,
                grpc.StatusCode.UNAVAILABLE,
                f"The rate of a worker is unknown: {scaling['rate']['problem']}",
            )
        value = messages.MetricValue(
            metricName=request.metricName or METRIC, metricValue=wanted, metricValueFloat=float(wanted)
        )
        return messages.GetMetricsResponse(metricValues=[value])

    async def _read_scaling(self, metadata: Mapping[str, str], context: Context) -> dict[str, Any]:
        try:
            trigger = ScalingTrigger.from_metadata(metadata)
        except InvalidRequest as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, error.detail)
        try:
            response = await self._broker.get(
                trigger.path, params=dict(trigger.parameters), headers=trigger.headers
            )
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            await _abort(context, grpc.StatusCode.UNAVAILABLE, f"The broker does not answer: {reason}")
        document: dict[str, Any] = response.json()
        if not response.is_success:
            status = _STATUS.get(response.status_code, grpc.StatusCode.UNAVAILABLE)
            await _abort(context, status, str(document.get("detail", response.status_code)))
        return document


def _is_active(scaling: Mapping[str, Any]) -> bool:
    """An unknown number means that work waits."""
    return scaling["wantedWorkers"] is None or scaling["wantedWorkers"] > 0


async def _abort(context: Context, status: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(status, text)
    raise AssertionError("abort raises")


def _serialize(message: Message) -> bytes:
    return bytes(message.SerializeToString())


def _unary(method: Any, request_type: Any) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request_type.FromString, response_serializer=_serialize
    )
