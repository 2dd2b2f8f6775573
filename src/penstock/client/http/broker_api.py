"""One method per route of the broker, for client, buffer, transaction and consumer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from penstock.client.deferred import Queued, R, Results
from penstock.client.http.connections import RequestCancellation
from penstock.client.http.transport import BrokerResponse, Transport
from penstock.client.messages import (
    AckItem,
    AckResult,
    ExtendResponse,
    Message,
    PopResponse,
    PushItem,
    PushResult,
    QueueDescription,
)
from penstock.client.operations import Operations
from penstock.client.pop_request import PopRequest
from penstock.client.settings import ClientSettings
from penstock.client.tracing.discovery import find_tracing

_encode = msgspec.json.encode
_push_results = msgspec.json.Decoder(list[PushResult])
_pop_response = msgspec.json.Decoder(PopResponse)
_ack_results = msgspec.json.Decoder(list[AckResult])
_extend_response = msgspec.json.Decoder(ExtendResponse)
_queue_description = msgspec.json.Decoder(QueueDescription)


class _DeferredObject(msgspec.Struct):
    """The body of a 202 of version 0.1."""

    items: msgspec.Raw


_deferred_object = msgspec.json.Decoder(_DeferredObject)


class BrokerApi:
    """The routes of durable queues as methods, and access to deferred operations."""

    def __init__(self, urls: str | Sequence[str], settings: ClientSettings, token: str | None = None) -> None:
        self.settings = settings
        self.tracing = find_tracing()
        """None without OpenTelemetry."""
        self.transport = Transport(urls, settings, token, self.tracing)
        self.operations = Operations(self.transport, settings.queued_operation_timeout_s)

    def close(self) -> None:
        self.transport.close()

    def assign_transaction_ids(self, items: Iterable[PushItem]) -> set[int]:
        """Generate missing transaction ids, if the settings say so; return the indexes of those items."""
        if not self.settings.make_transaction_ids:
            return set()
        prefix = uuid4().hex  # new every time: a forked process must not repeat its parent's
        generated = set()
        for index, item in enumerate(items):
            if item.transaction_id is None:
                item.transaction_id = f"{prefix}.{index}"
                generated.add(index)
        return generated

    async def push(self, items: Sequence[PushItem], generated: set[int]) -> Results[PushResult]:
        """Push items. Those at the indexes in `generated` have ids that no other call uses."""
        if not items:
            return Results([])
        if self.tracing is None:
            return await self._push(items, generated)
        with self.tracing.sending("push", {i.queue for i in items}, [i.traceparent for i in items]):
            return await self._push(items, generated)

    async def _push(self, items: Sequence[PushItem], generated: set[int]) -> Results[PushResult]:
        repeatable = all(item.transaction_id is not None for item in items)
        body = _encode({"items": items})
        response = await self.transport.send("POST", "/api/v1/push", body, repeatable=repeatable)
        results = _results(response, _push_results)
        if response.uncertain:
            # No other call uses these ids, so the original is the first attempt, whose response was lost.
            for result in results:
                if result.status == "duplicate" and result.index in generated:
                    msgspec.structs.force_setattr(result, "status", "queued")
        return results

    async def pop(
        self, pop_request: PopRequest, cancellation: RequestCancellation | None = None
    ) -> list[Message]:
        """Pop messages. A pop with auto_ack is not repeated: the first one may have taken messages."""
        repeatable = not pop_request.auto_ack
        response = await self.transport.send(
            "GET",
            pop_request.path,
            repeatable=repeatable,
            wait_s=pop_request.wait_s,
            cancellation=cancellation,
        )
        if not response.body:
            return []
        popped = response.read(_pop_response)
        for message in popped.messages:
            msgspec.structs.force_setattr(message, "queue", popped.queue)
        return popped.messages

    async def ack_one(self, item: AckItem) -> AckResult:
        """Ack a message. Repeating is safe: under a lease, a message is acked once."""
        response = await self.transport.send("POST", "/api/v1/ack", _encode(item))
        [result] = _results(response, _ack_results)
        return result

    async def ack_many(self, items: Sequence[AckItem]) -> Results[AckResult]:
        if not items:
            return Results([])
        body = _encode({"acknowledgments": items})
        response = await self.transport.send("POST", "/api/v1/ack/batch", body)
        results = _results(response, _ack_results)
        if response.uncertain:
            for result in results:
                msgspec.structs.force_setattr(result, "uncertain", not result.success)
        return results

    async def extend(self, lease_id: str, seconds: float) -> datetime:
        body = _encode({"seconds": max(1, math.ceil(seconds))})
        response = await self.transport.send("POST", f"/api/v1/lease/{quote(lease_id, safe='')}/extend", body)
        return response.read(_extend_response).newExpiresAt

    async def transaction(
        self, operations: Sequence[object], repeatable: bool, accept: Callable[[int], bool]
    ) -> BrokerResponse:
        body = _encode({"operations": operations})
        return await self.transport.send(
            "POST", "/api/v1/transaction", body, repeatable=repeatable, accept=accept
        )

    async def configure(self, body: Mapping[str, object]) -> dict[str, Any]:
        response = await self.transport.send("POST", "/api/v1/configure", _encode(body))
        return response.read(_queue_description).options

    async def options_of(self, queue: str) -> dict[str, Any]:
        path = f"/api/v1/resources/queues/{quote(queue, safe='')}?limit=1"
        return (await self.transport.send("GET", path)).read(_queue_description).options


def _results(response: BrokerResponse, decoder: msgspec.json.Decoder[list[R]]) -> Results[R]:
    """Return one result per item, with the deferred operation if the response is a 202."""
    if response.status == 202 and response.body.startswith(b"{"):  # a broker of version 0.1
        items = decoder.decode(response.read(_deferred_object).items)
    else:
        items = response.read(decoder)
    results = Results(items)
    deferred = [result for result in results if result.operation_id is not None]
    if deferred:
        last = max(deferred, key=lambda result: result.queue_position or 0)
        results.queued = Queued(
            operation_id=last.operation_id or "",
            queue_position=last.queue_position,
            reason=last.reason,
            estimated_wait_s=last.estimated_wait_s,
        )
    return results
