"""JSON of dead letters and of their error groups."""

from __future__ import annotations

from penstock.api.http.response import iso_or_none, payload_fields
from penstock.broker.dead_letters.dead_letter_source import DeadLetterDetails, ErrorGroup
from penstock.broker.durable_store import ErrorGroupStatus
from penstock.caller import Caller
from penstock.clock import iso


def dead_letter_to_dict(caller: Caller, dead_letter: DeadLetterDetails) -> dict[str, object]:
    partition_id = dead_letter.partition_id
    return {
        "letterId": dead_letter.letter_id,
        "kind": dead_letter.kind,
        "id": dead_letter.message_id,
        "transactionId": dead_letter.transaction_id,
        "partitionId": None if partition_id is None else str(partition_id),
        "queue": dead_letter.queue,
        "partition": dead_letter.partition,
        "consumerGroup": dead_letter.group,
        "offset": dead_letter.offset,
        "traceId": dead_letter.trace_id,
        "errorMessage": dead_letter.error,
        "errorGroup": dead_letter.error_key,
        "retryCount": dead_letter.attempts,
        "createdAt": iso(dead_letter.created_at),
        "failedAt": iso(dead_letter.failed_at),
        "timesDead": dead_letter.deaths,
        "totalAttempts": dead_letter.total_attempts,
        "firstEnqueuedAt": iso(dead_letter.first_created_at),
        "firstTransactionId": dead_letter.first_transaction_id,
        **payload_fields(caller, dead_letter.payload),
    }


def summarize_dead_letter(dead_letter: DeadLetterDetails) -> dict[str, object]:
    """Return what the audit log keeps of a dead letter: not its payload."""
    return {
        "letterId": dead_letter.letter_id,
        "queue": dead_letter.queue,
        "partition": dead_letter.partition,
        "consumerGroup": dead_letter.group,
        "transactionId": dead_letter.transaction_id,
        "errorMessage": dead_letter.error,
        "retryCount": dead_letter.attempts,
        "failedAt": iso(dead_letter.failed_at),
    }


def error_group_to_dict(group: ErrorGroup) -> dict[str, object]:
    return {
        "errorGroup": str(group.key),
        "error": "no error was given" if group.pattern == "" else group.pattern or "not grouped yet",
        "deadLetters": group.count,
        "queues": group.queues,
        "consumerGroups": group.groups,
        "firstFailedAt": iso_or_none(group.first_at),
        "lastFailedAt": iso_or_none(group.last_at),
        "trend": group.hours,
        "example": group.example,
        **error_group_status_to_dict(group.status),
    }


def error_group_status_to_dict(status: ErrorGroupStatus) -> dict[str, object]:
    """Return the state of an error group, its owner and note, and who changed them when."""
    return {
        "state": status.state,
        "stateSince": iso_or_none(status.state_since),
        "returnedFrom": status.set_state if status.state == "back_again" else None,
        "ignoredUntil": {
            "time": iso_or_none(status.ignored_until),
            "count": status.ignored_count,
            "ratePerHour": status.ignored_rate,
        }
        if status.set_state == "ignored"
        else None,
        "owner": status.owner,
        "note": status.note,
        "changedAt": iso_or_none(status.changed_at),
        "changedBy": status.changed_by,
    }
