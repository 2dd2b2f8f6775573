"""Receipts: one text that names a popped message with its lease, or a task with its token.

`penstock pop` shows them and `penstock ack` takes them. A transaction id can have any character, so it is
last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.cli.broker_client import JsonObject

MESSAGE, TASK = "message", "task"


@dataclass(frozen=True, slots=True)
class MessageReceipt:
    """A message of a durable queue under its lease."""

    partition_id: str
    lease_id: str
    transaction_id: str

    def to_json(self) -> JsonObject:
        return {
            "partitionId": self.partition_id,
            "leaseId": self.lease_id,
            "transactionId": self.transaction_id,
        }


@dataclass(frozen=True, slots=True)
class TaskReceipt:
    """A task of a run queue under the token of its dequeue."""

    task_id: str
    token: int

    def to_json(self) -> JsonObject:
        return {"id": self.task_id, "token": self.token}


def format_message_receipt(message: JsonObject) -> str:
    return f"{MESSAGE}:{message['partitionId']}:{message['leaseId']}:{message['transactionId']}"


def format_task_receipt(task: JsonObject) -> str:
    return f"{TASK}:{task['id']}:{task['token']}"


def parse_receipt(text: str) -> MessageReceipt | TaskReceipt:
    """Return what a receipt names. Raises InvalidRequest if `penstock pop` did not print it."""
    kind, *values = text.split(":", 3)
    if kind == MESSAGE and len(values) == 3 and all(values):
        return MessageReceipt(*values)
    if kind == TASK and len(values) == 2 and values[0] and values[1].isascii() and values[1].isdigit():
        return TaskReceipt(values[0], int(values[1][:20]))
    raise InvalidRequest(f"{text!r} is not a receipt. `penstock pop` shows the receipt of each message.")
