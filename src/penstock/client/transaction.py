"""Pushes and acks that take effect together or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from uuid import UUID

import msgspec

from penstock.client.errors import Problem, TransactionFailed
from penstock.client.http.calls import Calls
from penstock.client.messages import (
    Message,
    NewMessage,
    PushItem,
    Settlement,
    Status,
    TransactionResult,
    item_of,
    settlement_of,
)

NOT_THE_CULPRIT = "not carried out"

_result = msgspec.json.Decoder(TransactionResult)


class Transaction:
    """Steps to be taken as one. Nothing is sent before `commit`, which `async with` calls at its end.

    Each call is a step, counted from 0; TransactionFailed names the one that failed, and then none was taken.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._steps: list[PushItem | Settlement] = []
        self._sent = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._sent and self._steps:
            await self.commit()

    def push(
        self,
        queue: str,
        payload: Any,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: UUID | str | None = None,
    ) -> Self:
        return self._add(item_of(NewMessage(queue, payload, partition, transaction_id, trace_id)))

    def ack(self, message: Message) -> Self:
        return self._settle(message, "completed")

    def nack(self, message: Message, error: str = "") -> Self:
        return self._settle(message, "failed", error)

    def retry(self, message: Message) -> Self:
        return self._settle(message, "retry")

    def dead_letter(self, message: Message, error: str = "") -> Self:
        return self._settle(message, "dlq", error)

    async def commit(self) -> TransactionResult:
        """Take all steps. Raises TransactionFailed if one could not be taken: nothing was changed then."""
        if self._sent:
            raise RuntimeError("the transaction was sent already: begin another")
        if not self._steps:
            raise ValueError("the transaction has no steps")
        self._sent = True
        pushes = [step for step in self._steps if isinstance(step, PushItem)]
        self._calls.identify(pushes)
        # An ack works once, so a transaction that has one cannot double; pushes alone are told by their ids.
        repeatable = len(pushes) < len(self._steps) or all(p.transaction_id is not None for p in pushes)
        operations = [
            {"type": "push", "items": [step]} if isinstance(step, PushItem) else step for step in self._steps
        ]
        answer = await self._calls.transaction(
            operations, repeatable, accept=lambda status: status < 400 or status == 409
        )
        if answer.status == 409 and not answer.body.startswith(b'{"transactionId"'):
            raise Problem.of(answer.status, answer.body, None)
        result = answer.read(_result)
        if not result.success:
            raise _failure(result, answer.uncertain)
        return result

    def _settle(self, message: Message, status: Status, error: str | None = None) -> Self:
        settlement = settlement_of(message, status, error or None)
        settlement.type = "ack"
        return self._add(settlement)

    def _add(self, step: PushItem | Settlement) -> Self:
        if self._sent:
            raise RuntimeError("the transaction was sent already: begin another")
        self._steps.append(step)
        return self


def _failure(result: TransactionResult, uncertain: bool) -> TransactionFailed:
    culprit = next(step for step in result.results if step.error not in (None, NOT_THE_CULPRIT))
    error = TransactionFailed(
        result.error or "the transaction failed",
        status=409,
        code="transaction_failed",
        title="The transaction was not carried out",
        uncertain=uncertain,
    )
    error.step, error.kind = culprit.index, culprit.type
    error.reason = culprit.error or ""
    error.results = result.results
    return error
