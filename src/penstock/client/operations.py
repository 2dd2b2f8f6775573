"""Deferred operations: read them, wait for them, retry or delete failed ones."""

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

MIN_POLL_S = 0.05
MAX_POLL_S = 1.0
"""Bounds of the interval at which a pending operation is polled."""


class Operation(Struct, frozen=True, kw_only=True, rename="camel"):
    """A deferred push or ack."""

    operation_id: str
    type: Literal["push", "ack"] | None = None
    status: OperationStatus
    """`failed`: it is kept until an operator retries or deletes it."""
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
    """The results that the request would have returned if it had been executed at once."""

    @property
    def finished(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def pushed(self) -> list[PushResult]:
        """The results of a push, with indexes from 0 within the operation."""
        return msgspec.convert(self.result or [], list[PushResult])

    @property
    def settled(self) -> list[AckResult]:
        """The results of acks."""
        return msgspec.convert(self.result or [], list[AckResult])


class OperationPage(Struct, frozen=True, kw_only=True):
    operations: list[Operation]
    next: str | None = None
    """The value of `after` for the next page; None: this is the last page."""


_operation = msgspec.json.Decoder(Operation)
_page = msgspec.json.Decoder(OperationPage)
_stats = msgspec.json.Decoder(dict[str, Any])


class Operations:
    """Read operations, wait for them, retry or delete failed ones."""

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s

    async def get(self, operation_id: str) -> Operation:
        """Return an operation. Raises NotFound if it does not exist, or was completed long ago."""
        return (await self._transport.send("GET", _path(operation_id))).read(_operation)

    async def list(
        self,
        *,
        status: Literal["pending", "completed", "failed"] | None = None,
        queue: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> OperationPage:
        """Return a page of operations, oldest first."""
        parameters = {"status": status, "queue": queue, "limit": limit, "after": after}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        return (await self._transport.send("GET", f"/api/v1/operations?{query}")).read(_page)

    async def stats(self) -> dict[str, Any]:
        """Return the number of pending operations, their rate, and the load of the broker."""
        return (await self._transport.send("GET", "/api/v1/operations/stats")).read(_stats)

    async def retry(self, operation_id: str) -> None:
        """Retry a failed operation. Raises WrongState if it has not failed."""
        await self._transport.send("POST", f"{_path(operation_id)}/retry")

    async def delete(self, operation_id: str) -> None:
        """Delete an operation. A pending or failed one is never executed, and its messages are lost."""
        await self._transport.send("DELETE", _path(operation_id))

    async def wait(self, operation_id: str, *, timeout_s: float | None = None) -> Operation:
        """Wait until the operation is completed or failed, and return it.

        Raises NotFound if it does not exist, and OperationPending after `timeout_s`: it is accepted all the
        same and must not be sent again. Errors of unavailable brokers are retried meanwhile.
        """
        [operation] = await self.wait_for([operation_id], self._timeout_s if timeout_s is None else timeout_s)
        if operation is None:
            raise OperationPending(operation_id)
        return operation

    async def wait_for(
        self, operation_ids: Iterable[str], timeout_s: float, *, must_exist: bool = False
    ) -> Sequence[Operation | None]:
        """Return the operations that finished in time, in order; None for others.

        `must_exist`: a broker returned these ids, so an unknown id belongs to the journal of another broker.
        """
        deadline = time.monotonic() + timeout_s
        waits = [
            self._wait_until_finished(operation_id, deadline, must_exist) for operation_id in operation_ids
        ]
        return await asyncio.gather(*waits)

    async def _wait_until_finished(
        self, operation_id: str, deadline: float, must_exist: bool
    ) -> Operation | None:
        poll_s = MIN_POLL_S
        while True:
            try:
                async with asyncio.timeout_at(
                    asyncio.get_running_loop().time() + deadline - time.monotonic()
                ):
                    operation = await self.get(operation_id)
            except (NoAnswer, Overloaded, Unavailable):
                pass
            except NotFound:
                if not must_exist:
                    raise
            except TimeoutError:
                return None
            else:
                if operation.finished:
                    return operation
                poll_s = min(max(poll_s, (operation.estimated_wait_s or 0) / 2), MAX_POLL_S)
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(min(poll_s * random.uniform(0.5, 1), max(0, deadline - time.monotonic())))
            poll_s = min(poll_s * 1.5, MAX_POLL_S)


def _path(operation_id: str) -> str:
    return f"/api/v1/operations/{quote(operation_id, safe='')}"
