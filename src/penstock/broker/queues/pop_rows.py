"""Convert the rows of a pop into messages, without the messages the group has already finished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any, Protocol

from penstock.broker.messages import Message
from penstock.encryption import PayloadCipher
from penstock.trace_context import TRACED_MARK, split_context

HIGHEST_MARK = TRACED_MARK
"""No payload that is stored as it was pushed starts with this byte or a lower one: it is JSON text."""


class PopRow(Protocol):
    """A row of `pop_v1` or `pop_single_v1`, read by column name or position."""

    def __getitem__(self, column: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


def read_single(rows: list[PopRow], cipher: PayloadCipher) -> list[Message]:
    """Convert rows of `pop_single_v1`. Raises KeyMissing."""
    messages: list[Message] = []
    for _, _, _, message_id, transaction_id, trace_id, payload, *rest in rows:
        if message_id is not None:
            message = Message(message_id, transaction_id or message_id, trace_id, payload, *rest)
            if payload[:1] <= HIGHEST_MARK:
                _open_payload(message, cipher)
            messages.append(message)
    return messages


def read_batch(rows: list[PopRow], cipher: PayloadCipher) -> list[Message]:
    """Convert rows of `pop_v1`. Raises KeyMissing."""
    messages: list[Message] = []
    for row in rows:
        if not row["request"]:
            continue
        attempts = json.loads(row["attempts"]) if row["attempts"] != "{}" else {}
        finished = row["finished"]
        created_at = row["created_at"].timestamp()
        partition_id, partition = row["partition_id"], row["partition"]
        columns = zip(
            count(row["first_offset"]),
            row["message_ids"],
            row["transaction_ids"] or repeat(None),
            row["trace_ids"] or repeat(None),
            row["payloads"],
            strict=False,
        )
        for offset, message_id, transaction_id, trace_id, payload in columns:
            if finished and any(r.lower <= offset < r.upper for r in finished):
                continue
            id_text = str(message_id)
            message = Message(
                id_text,
                transaction_id or id_text,
                trace_id,
                payload,
                created_at,
                partition_id,
                partition,
                attempts.get(str(offset), 0) if attempts else 0,
            )
            if payload[:1] <= HIGHEST_MARK:
                _open_payload(message, cipher)
            messages.append(message)
    return messages


def _open_payload(message: Message, cipher: PayloadCipher) -> None:
    """Decrypt a stored payload, if it is encrypted, and take the trace context from it, if it has one."""
    message.payload, message.traceparent = split_context(cipher.decrypt(message.payload))
