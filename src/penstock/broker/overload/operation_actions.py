"""OperationActions in an operator's hands: looked at, tried again, dropped."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.broker.context import BrokerContext
from penstock.broker.overload.deferred import DeferredWrites
from penstock.durable import deferred_operations
from penstock.errors import DatabaseUnavailable, UnknownOperation, WrongState
from penstock.model import Scope


class OperationActions:
    def __init__(self, context: BrokerContext, deferred_writes: DeferredWrites) -> None:
        self._context = context
        self._deferred_writes = deferred_writes

    async def get(self, scope: Scope, operation_id: uuid.UUID) -> Any:
        """The operation, as `operation_v1` describes it. Raises UnknownOperation, or DatabaseUnavailable
        if it may still be in the journal."""
        waiting = self._deferred_writes.journal is not None and self._deferred_writes.journal.has_records
        found = await deferred_operations.operation(self._context.database, scope, operation_id)
        if found is None:
            if waiting:
                raise DatabaseUnavailable("the journal is being taken over, and it may be there; ask again")
            raise _unknown(operation_id)
        return found

    async def retry(self, scope: Scope, operation_id: uuid.UUID) -> None:
        """Let a failed one be tried again, before all others of its lane."""
        await self.get(scope, operation_id)
        outcome = await deferred_operations.retry(self._context.database, operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome == "not_failed":
            raise WrongState("only an operation that has failed can be tried again")
        self._deferred_writes.notify_work()

    async def drop(self, scope: Scope, operation_id: uuid.UUID) -> str:
        """Forget one, whether it was carried out or never will be; the status it had."""
        await self.get(scope, operation_id)
        status = await deferred_operations.drop(self._context.database, operation_id)
        if status == "unknown":
            raise _unknown(operation_id)
        return status


def _unknown(operation_id: uuid.UUID) -> UnknownOperation:
    return UnknownOperation(
        f"there is no operation {operation_id}; what is done is forgotten after a while",
        operationId=operation_id,
    )
