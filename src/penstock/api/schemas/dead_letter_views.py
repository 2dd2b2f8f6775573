"""JSON of dead letters of both kinds of queues: messages in PostgreSQL, tasks in Redis."""

from __future__ import annotations

import msgspec

from penstock.api.http.parameters import MAX_ID
from penstock.api.http.response import iso_or_none, payload_fields
from penstock.api.services import Services
from penstock.broker.dead_letters.task_dead_letters import TaskErrorGroup, time_of_death
from penstock.broker.durable_store import DeadLetter
from penstock.clock import iso, to_utc
from penstock.model import QUEUE_MODE
from penstock.runqueue.task_model import Task


def is_task_id(dead_letter_id: str) -> bool:
    """Whether the id is that of a dead task; ids of dead messages are plain numbers."""
    return "-" in dead_letter_id


def parse_dead_letter_id(dead_letter_id: str) -> int:
    """The id of a dead message, capped at the largest bigint, which no dead letter has."""
    return min(int(dead_letter_id), MAX_ID)


def dead_task_to_dict(task: Task) -> dict[str, object]:
    return {
        "letterId": task.id,
        "kind": "run",
        "id": task.id,
        "transactionId": task.id,
        "partitionId": None,
        "queue": task.queue,
        "partition": None,
        "consumerGroup": QUEUE_MODE,
        "offset": None,
        "traceId": None,
        "errorMessage": task.error,
        "errorGroup": None,
        "retryCount": task.attempts,
        "createdAt": iso(to_utc(task.enqueued_ms / 1000)),
        "failedAt": iso(time_of_death(task)),
        "timesDead": None,
        "totalAttempts": task.attempts,
        "firstEnqueuedAt": iso(to_utc(task.enqueued_ms / 1000)),
        "firstTransactionId": task.id,
        "data": msgspec.Raw(task.payload or b"null"),
    }


def task_error_group_to_dict(group: TaskErrorGroup, queue: str) -> dict[str, object]:
    return {
        "errorGroup": str(group.key),
        "error": group.pattern or "no error was given",
        "deadLetters": group.tasks,
        "queues": [queue],
        "consumerGroups": [QUEUE_MODE],
        "firstFailedAt": iso_or_none(group.first_at),
        "lastFailedAt": iso_or_none(group.last_at),
        "trend": group.hours,
        "example": group.example,
    }


def dead_letter_to_dict(services: Services, dead_letter: DeadLetter) -> dict[str, object]:
    """The JSON of a dead message, with its decrypted payload."""
    return {
        "letterId": str(dead_letter.id),
        "kind": "durable",
        "id": dead_letter.message_id,
        "transactionId": dead_letter.transaction_id,
        "partitionId": str(dead_letter.partition_id),
        "queue": dead_letter.queue,
        "partition": dead_letter.partition,
        "consumerGroup": dead_letter.group_name,
        "offset": dead_letter.message_offset,
        "traceId": dead_letter.trace_id,
        "errorMessage": dead_letter.error,
        "errorGroup": dead_letter.error_key,
        "retryCount": dead_letter.attempts,
        "createdAt": iso(dead_letter.created_at),
        "failedAt": iso(dead_letter.failed_at),
        "timesDead": dead_letter.deaths,
        "totalAttempts": dead_letter.earlier_attempts + dead_letter.attempts,
        "firstEnqueuedAt": iso(dead_letter.first_created_at or dead_letter.created_at),
        "firstTransactionId": dead_letter.first_transaction_id or dead_letter.transaction_id,
        **payload_fields(services.broker.message_actions.decrypt(dead_letter.payload)),
    }
