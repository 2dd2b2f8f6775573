"""What the database answers to a pop, as messages: without those that were finished earlier."""

from __future__ import annotations

import json
from itertools import count, repeat
from typing import Any

from penstock.broker.encryption import PayloadCipher
from penstock.broker.messages import Message


def single(rows: list[Any], cipher: PayloadCipher) -> list[Message]:
    """Of rows as `pop_single_v1` describes them. Raises KeyMissing."""
    messages: list[Message] = []
    for _, _, _, message_id, chosen, trace_id, payload, *rest in rows:
        if message_id is not None:
            messages.append(Message(message_id, chosen or message_id, trace_id, cipher.decrypt(payload), *rest))
    return messages


def many(rows: list[Any], cipher: PayloadCipher) -> list[Message]:
    """Of rows as `pop_v1` describes them. Raises KeyMissing."""
    messages: list[Message] = []
    for row in rows:
        if not row["request"]:
            continue
        attempts = json.loads(row["attempts"]) if row["attempts"] != "{}" else {}
        done = row["finished"]
        created_at = row["created_at"].timestamp()
        partition_id, partition = row["partition_id"], row["partition"]
        parts = zip(
            count(row["first_offset"]),
            row["message_ids"],
            row["transaction_ids"] or repeat(None),
            row["trace_ids"] or repeat(None),
            row["payloads"],
            strict=False,
        )
        for offset, message_id, chosen, trace_id, payload in parts:
            if done and any(r.lower <= offset < r.upper for r in done):
                continue
            text = str(message_id)
            messages.append(
                Message(
                    text,
                    chosen or text,
                    trace_id,
                    cipher.decrypt(payload),
                    created_at,
                    partition_id,
                    partition,
                    attempts.get(str(offset), 0) if attempts else 0,
                )
            )
    return messages
