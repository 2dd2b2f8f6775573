"""Pushes and acks that take effect together or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import msgspec

from penstock.client.errors import TransactionFailed, api_error
from penstock.client.http.broker_api import BrokerApi
from penstock.client.messages import (
    AckItem,
    AckStatus,
    Message,
    MessageOptions,
    NewMessage,
    PushItem,
    TransactionResult,
    ack_item,
    push_item,
)

if TYPE_CHECKING:
    from penstock.client.tracing.spans import Tracing

NOT_EXECUTED = "not carried out"

_result = msgspec.json.Decoder(TransactionResult)


class Transaction:
    """Steps that take effect together. Nothing is sent before `commit`, which `async with` calls at its end.

    Each call is a step, counted from 0. TransactionFailed names the step that failed; then none took effect.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._steps: list[PushItem | AckItem] = []
        self._sent = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._sent and self._steps:
            await self.commit()

    def push(self, queue: str, payload: object, **options: Unpack[MessageOptions]) -> Self:
        return self._add(push_item(NewMessage(queue, payload, **options)))

    def ack(self, message: Message) -> Self:
        return self._ack(message, "completed")

    def nack(self, message: Message, error: str = "") -> Self:
        return self._ack(message, "failed", error)

    def retry(self, message: Message) -> Self:
        return self._ack(message, "retry")

    def dead_letter(self, message: Message, error: str = "") -> Self:
        return self._ack(message, "dlq", error)

    async def commit(self) -> TransactionResult:
        """Send all steps. Raises TransactionFailed if one of them failed; then nothing changed."""
        if self._sent:
            raise RuntimeError("The transaction was already sent. Create another one.")
        if not self._steps:
            raise ValueError("The transaction has no steps.")
        self._sent = True
        pushes = [step for step in self._steps if isinstance(step, PushItem)]
        self._api.assign_transaction_ids(pushes)
        # An ack succeeds once, so a transaction with an ack cannot repeat; pushes alone need ids.
        repeatable = len(pushes) < len(self._steps) or all(p.transaction_id is not None for p in pushes)
        operations = [
            {"type": "push", "items": [step]} if isinstance(step, PushItem) else step for step in self._steps
        ]
        with _tracing_pushes(self._api.tracing, pushes):
            response = await self._api.transaction(
                operations, repeatable, accept=lambda status: status < 400 or status == 409
            )
        if response.status == 409 and not response.body.startswith(b'{"transactionId"'):
            raise api_error(response.status, response.body, None)
        result = response.read(_result)
        if not result.success:
            raise _failure(result, response.uncertain)
        return result

    def _ack(self, message: Message, status: AckStatus, error: str | None = None) -> Self:
        item = ack_item(message, status, error or None)
        item.type = "ack"
        return self._add(item)

    def _add(self, step: PushItem | AckItem) -> Self:
        if self._sent:
            raise RuntimeError("The transaction was already sent. Create another one.")
        self._steps.append(step)
        return self


def _tracing_pushes(tracing: Tracing | None, pushes: list[PushItem]) -> AbstractContextManager[None]:
    """Return the span of a transaction's pushes, if there are both."""
    if tracing is None or not pushes:
        return nullcontext()
    return tracing.sending("push", {push.queue for push in pushes}, [push.traceparent for push in pushes])


def _failure(result: TransactionResult, uncertain: bool) -> TransactionFailed:
    failed_step = next(step for step in result.results if step.error not in (None, NOT_EXECUTED))
    error = TransactionFailed(
        result.error or "The transaction failed.",
        status=409,
        code="transaction_failed",
        title="Transaction failed",
        uncertain=uncertain,
    )
    error.step, error.kind = failed_step.index, failed_step.type
    error.reason = failed_step.error or ""
    error.results = result.results
    return error
