"""The broker's routes as calls: what client, buffer, transaction and consumer are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from penstock.client.deferred import Accepted, Queued, R, Results
from penstock.client.http.connections import Parting
from penstock.client.http.transport import Answer, Transport
from penstock.client.messages import (
    AckResult,
    Described,
    Extended,
    Message,
    Popped,
    PushItem,
    PushResult,
    Settlement,
)
from penstock.client.operations import Operations
from penstock.client.pop_request import Pop
from penstock.client.settings import ClientSettings

_encode = msgspec.json.encode
_pushed = msgspec.json.Decoder(list[PushResult])
_push_accepted = msgspec.json.Decoder(Accepted[PushResult])
_popped = msgspec.json.Decoder(Popped)
_settled = msgspec.json.Decoder(list[AckResult])
_ack_accepted = msgspec.json.Decoder(Accepted[AckResult])
_extended = msgspec.json.Decoder(Extended)
_described = msgspec.json.Decoder(Described)


class Calls:
    def __init__(self, urls: str | Sequence[str], settings: ClientSettings) -> None:
        self.settings = settings
        self._transport = Transport(urls, settings)
        self.operations = Operations(self._transport, settings.queued_operation_timeout_s)

    def close(self) -> None:
        self._transport.close()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        repeatable: bool = True,
        *,
        wait_s: float = 0.0,
        parting: Parting | None = None,
    ) -> Answer:
        """Any request, as the transport sends it."""
        return await self._transport.send(
            method, path, body, repeatable=repeatable, wait_s=wait_s, parting=parting
        )

    def identify(self, items: Iterable[PushItem]) -> set[int]:
        """Give items without a transaction id one, if the settings say so; returns which (by index)."""
        if not self.settings.make_transaction_ids:
            return set()
        stem = uuid4().hex  # drawn anew every time: a forked process must not repeat its parent's
        made = set()
        for index, item in enumerate(items):
            if item.transaction_id is None:
                item.transaction_id = f"{stem}.{index}"
                made.add(index)
        return made

    async def push(self, items: Sequence[PushItem], made: set[int]) -> Results[PushResult]:
        """Push items, of which those in `made` have ids that only this call knows."""
        if not items:
            return Results([])
        repeatable = all(item.transaction_id is not None for item in items)
        body = _encode({"items": items})
        answer = await self._transport.send("POST", "/api/v1/push", body, repeatable=repeatable)
        results = _results(answer, _pushed, _push_accepted)
        if answer.uncertain:
            # Nobody else has these ids: the first of the two was our own, and its answer was lost.
            for result in results:
                if result.status == "duplicate" and result.index in made:
                    msgspec.structs.force_setattr(result, "status", "queued")
        return results

    async def pop(self, asked: Pop, parting: Parting | None = None) -> list[Message]:
        """The next messages. What is taken for good is not asked for twice: the first may be lost."""
        repeatable = not asked.auto_ack
        answer = await self._transport.send(
            "GET", asked.path, repeatable=repeatable, wait_s=asked.wait_s, parting=parting
        )
        if not answer.body:
            return []
        popped = answer.read(_popped)
        for message in popped.messages:
            msgspec.structs.force_setattr(message, "queue", popped.queue)
        return popped.messages

    async def settle_one(self, settlement: Settlement) -> AckResult:
        """Settle a message. Repeated, it is refused and changes nothing: it is settled once under a lease."""
        answer = await self._transport.send("POST", "/api/v1/ack", _encode(settlement))
        [result] = _results(answer, _settled, _ack_accepted)
        return result

    async def settle(self, settlements: Sequence[Settlement]) -> Results[AckResult]:
        if not settlements:
            return Results([])
        body = _encode({"acknowledgments": settlements})
        answer = await self._transport.send("POST", "/api/v1/ack/batch", body)
        results = _results(answer, _settled, _ack_accepted)
        if answer.uncertain:
            for result in results:
                msgspec.structs.force_setattr(result, "uncertain", not result.success)
        return results

    async def extend(self, lease_id: str, seconds: float) -> datetime:
        body = _encode({"seconds": max(1, math.ceil(seconds))})
        answer = await self._transport.send("POST", f"/api/v1/lease/{quote(lease_id, safe='')}/extend", body)
        return answer.read(_extended).newExpiresAt

    async def transaction(
        self, operations: Sequence[object], repeatable: bool, accept: Callable[[int], bool]
    ) -> Answer:
        body = _encode({"operations": operations})
        return await self._transport.send(
            "POST", "/api/v1/transaction", body, repeatable=repeatable, accept=accept
        )

    async def configure(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._transport.send("POST", "/api/v1/configure", _encode(asked))
        return answer.read(_described).options

    async def options_of(self, queue: str) -> dict[str, Any]:
        path = f"/api/v1/resources/queues/{quote(queue, safe='')}?limit=1"
        return (await self._transport.send("GET", path)).read(_described).options


def _results(
    answer: Answer, done: msgspec.json.Decoder[list[R]], accepted: msgspec.json.Decoder[Accepted[R]]
) -> Results[R]:
    """One result per item: of what is done, or, if the answer says so, of what is partly done later."""
    if answer.status != 202:
        results = answer.read(done)
        return Results(results)
    body = answer.read(accepted)
    queued = Queued(
        operation_id=body.operation_id,
        queue_position=body.queue_position,
        reason=body.reason,
        estimated_wait_s=body.estimated_wait_s,
    )
    return Results(body.items, queued)
