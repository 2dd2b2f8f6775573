"""Decode the task records that the scripts store."""

from __future__ import annotations

from msgspec import msgpack

from penstock.model import Scope
from penstock.runqueue.keys import parse_queue_name
from penstock.runqueue.task_model import Task, TaskState
from penstock.trace_context import split_context

FIELDS = (
    *("queue", "state", "priority", "attempts", "max_attempts", "enqueued", "eligible_at", "expires", "ttl"),
    *("started", "deadline", "token", "worker", "error", "dead_at", "caller"),
)
"""Fields of a record, in the order of `lua/include/task.lua`. A task that never ran lacks the last one."""


def scope_of_record(record: bytes) -> Scope:
    return parse_queue_name(msgpack.decode(record)[0])[0]


def decode_task(task_id: str, record: bytes, payload: bytes) -> Task:
    payload, traceparent = split_context(payload)
    fields = dict(zip(FIELDS, msgpack.decode(record), strict=False))
    state = TaskState(fields["state"])
    due_ms = {
        TaskState.DELAYED: min(fields["eligible_at"], fields["expires"] or fields["eligible_at"]),
        TaskState.ELIGIBLE: fields["expires"],
        TaskState.RUNNING: fields["deadline"],
        TaskState.DEAD: 0,
    }[state]
    return Task(
        id=task_id,
        queue=parse_queue_name(fields["queue"])[1],
        state=state,
        priority=fields["priority"],
        attempts=fields["attempts"],
        max_attempts=fields["max_attempts"],
        enqueued_ms=fields["enqueued"],
        eligible_ms=fields["eligible_at"],
        started_ms=fields["started"] or None,
        due_ms=due_ms or None,
        ttl_ms=fields["ttl"] or None,
        worker=fields["worker"],
        error=fields["error"],
        dead_ms=fields["dead_at"] or None,
        payload=payload,
        traceparent=traceparent,
    )
