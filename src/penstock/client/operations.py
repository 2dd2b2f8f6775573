"""Operations: what became of pushes and acks that the broker accepted to do later."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct, field

from penstock.client.errors import NoAnswer, NotFound, OperationPending, Overloaded, Unavailable
from penstock.client.http.transport import Transport
from penstock.client.messages import AckResult, PushResult

OperationStatus = Literal["journaled", "pending", "processing", "completed", "failed"]

SHORTEST_LOOK_S = 0.05
LONGEST_LOOK_S = 1.0
"""How often a waiting operation is looked at, at most and at least."""


class Operation(Struct, frozen=True, kw_only=True, rename="camel"):
    """A push or ack that was accepted to be done later."""

    operation_id: str
    type: Literal["push", "ack"] | None = None
    status: OperationStatus
    """`failed`: it could not be carried out and waits for somebody to retry or delete it."""
    reason: str | None = None
    queue: str | None = None
    partition: str | None = None
    items: int | None = None
    priority: int | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0
    error: str | None = None
    queue_position: int | None = None
    estimated_wait_s: float | None = field(default=None, name="estimatedWait")
    result: list[dict[str, Any]] | None = None
    """What the answer would have been, had it been done at once."""

    @property
    def finished(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def pushed(self) -> list[PushResult]:
        """The results of a push, counted from 0 within the operation."""
        return msgspec.convert(self.result or [], list[PushResult])

    @property
    def settled(self) -> list[AckResult]:
        """The results of acks."""
        return msgspec.convert(self.result or [], list[AckResult])


class OperationPage(Struct, frozen=True, kw_only=True):
    operations: list[Operation]
    next: str | None = None
    """What to give as `after` for the next page; None: there is none."""


_operation = msgspec.json.Decoder(Operation)
_page = msgspec.json.Decoder(OperationPage)
_stats = msgspec.json.Decoder(dict[str, Any])


class Operations:
    """Look at operations, wait for them, retry or delete those that failed."""

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s

    async def get(self, operation_id: str) -> Operation:
        """An operation. Raises NotFound if there is none, or if it was completed long ago."""
        return (await self._transport.send("GET", _path(operation_id))).read(_operation)

    async def list(
        self,
        *,
        status: Literal["pending", "completed", "failed"] | None = None,
        queue: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> OperationPage:
        """Operations, the oldest first, a page at a time."""
        asked = {"status": status, "queue": queue, "limit": limit, "after": after}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return (await self._transport.send("GET", f"/api/v1/operations?{query}")).read(_page)

    async def stats(self) -> dict[str, Any]:
        """How many wait, how fast they are carried out, and how loaded the broker is."""
        return (await self._transport.send("GET", "/api/v1/operations/stats")).read(_stats)

    async def retry(self, operation_id: str) -> None:
        """Let one that failed be tried again. Raises WrongState if it has not failed."""
        await self._transport.send("POST", f"{_path(operation_id)}/retry")

    async def delete(self, operation_id: str) -> None:
        """Forget one. If it is pending or has failed, it is never carried out: what it holds is lost."""
        await self._transport.send("DELETE", _path(operation_id))

    async def wait(self, operation_id: str, *, timeout_s: float | None = None) -> Operation:
        """The operation, once it is completed or has failed.

        Raises NotFound if there is none, OperationPending if it takes longer than `timeout_s`: it is accepted
        all the same, and must not be sent again. Brokers that are away meanwhile are sat out.
        """
        [operation] = await self.wait_for([operation_id], self._timeout_s if timeout_s is None else timeout_s)
        if operation is None:
            raise OperationPending(operation_id)
        return operation

    async def wait_for(
        self, operation_ids: Iterable[str], timeout_s: float, *, known: bool = False
    ) -> Sequence[Operation | None]:
        """Operations that finished in time, each in its place. `known`: the broker has told these ids, so one
        that it cannot find is still in the journal of another."""
        deadline = time.monotonic() + timeout_s
        return await asyncio.gather(*(self._until_finished(one, deadline, known) for one in operation_ids))

    async def _until_finished(self, operation_id: str, deadline: float, known: bool) -> Operation | None:
        look_s = SHORTEST_LOOK_S
        while True:
            try:
                async with asyncio.timeout_at(
                    asyncio.get_running_loop().time() + deadline - time.monotonic()
                ):
                    operation = await self.get(operation_id)
            except (NoAnswer, Overloaded, Unavailable):
                pass
            except NotFound:
                if not known:
                    raise
            except TimeoutError:
                return None
            else:
                if operation.finished:
                    return operation
                look_s = min(max(look_s, (operation.estimated_wait_s or 0) / 2), LONGEST_LOOK_S)
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(min(look_s * random.uniform(0.5, 1), max(0, deadline - time.monotonic())))
            look_s = min(look_s * 1.5, LONGEST_LOOK_S)


def _path(operation_id: str) -> str:
    return f"/api/v1/operations/{quote(operation_id, safe='')}"
