"""Bodies of the hot routes, read and written without building dictionaries."""

from __future__ import annotations

import uuid
from typing import Literal

import msgspec
from msgspec import Raw, Struct

Status = Literal["completed", "success", "failed", "retry", "dlq"]


class PushItem(Struct):
    queue: str
    payload: Raw
    partition: str | None = None
    transactionId: str | None = None
    traceId: uuid.UUID | None = None


class PushBody(Struct):
    items: list[PushItem]


class LoosePushBody(Struct):
    """A push whose items are looked at one by one, because one of them does not fit."""

    items: list[Raw]


class PushItemResult(Struct, omit_defaults=True):
    index: int
    status: str
    """queued, duplicate or failed"""
    transaction_id: str | None = None
    message_id: str | None = None
    partition_id: str | None = None
    trace_id: uuid.UUID | None = None
    queueName: str | None = None
    error: str | None = None
    operationId: str | None = None
    """Of an item that was accepted for later"""
    reason: str | None = None
    """Why it was not stored at once"""


class PoppedMessage(Struct):
    id: str
    transactionId: str
    traceId: uuid.UUID | None
    data: Raw
    producerSub: str | None
    createdAt: str
    partitionId: str
    partition: str
    leaseId: str | None
    consumerGroup: str
    retryCount: int


class PopResponse(Struct):
    success: bool
    queue: str
    partition: str
    partitionId: str
    leaseId: str | None
    consumerGroup: str
    partitionsClaimed: int
    messages: list[PoppedMessage]


class AckBody(Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None = None
    status: Status = "completed"
    error: str | None = None
    consumerGroup: str | None = None


class AckResult(Struct, omit_defaults=True):
    index: int
    transactionId: str
    success: bool
    error: str | None
    queueName: str | None
    partitionName: str | None
    leaseReleased: bool
    dlq: bool
    operationId: str | None = None
    reason: str | None = None


class AckBatchBody(Struct):
    acknowledgments: list[AckBody]
    consumerGroup: str | None = None


class ExtendBody(Struct):
    seconds: int = 60


class Extended(Struct):
    success: bool
    leaseId: str
    newExpiresAt: str
    lease_expires_at: str


class PushOperation(Struct, tag_field="type", tag="push"):
    items: list[PushItem]


class AckOperation(AckBody, tag_field="type", tag="ack"):
    """An ack inside a transaction; the lease may be left to `requiredLeases`."""


class TransactionBody(Struct):
    operations: list[PushOperation | AckOperation]
    requiredLeases: list[str] = []


class TransactionStep(Struct):
    index: int
    type: str
    success: bool = False
    transactionId: str | None = None
    messageId: str | None = None
    partitionId: str | None = None
    queueName: str | None = None
    duplicate: bool = False
    error: str | None = None
    dlq: bool = False


class TransactionResponse(Struct):
    transactionId: str
    success: bool
    error: str | None
    results: list[TransactionStep]


push_body = msgspec.json.Decoder(PushBody)
loose_push_body = msgspec.json.Decoder(LoosePushBody)
push_item = msgspec.json.Decoder(PushItem)
ack_body = msgspec.json.Decoder(AckBody)
ack_batch_body = msgspec.json.Decoder(AckBatchBody)
extend_body = msgspec.json.Decoder(ExtendBody)
transaction_body = msgspec.json.Decoder(TransactionBody)
encode = msgspec.json.Encoder().encode
