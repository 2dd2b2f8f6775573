"""Limits of run queues, and the checks that refuse values outside them.

Routes, schemas and `RunQueues` share these constants. A check raises InvalidRequest, which names the value
and the allowed range, before anything has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidRequest
from penstock.runqueue.task_model import NewTask

MAX_PRIORITY = 9
MAX_DELAY_MS = 366 * 24 * 3_600_000
MIN_VISIBILITY_MS = 100
MAX_VISIBILITY_MS = MAX_DELAY_MS
"""The scripts store a deadline as a timer, like a delay, so both have the same maximum."""

MAX_ATTEMPTS = 1_000
MAX_CONCURRENCY = 1_000_000
MAX_BURST = 100
MAX_NAME_LENGTH = 255
MAX_ERROR_LENGTH = 2_000
"""Characters kept of the error of a failed attempt."""

MAX_ITEMS_PER_CALL = 10_000
"""A larger call would block Redis for all clients."""

MAX_REPLY_BYTES = 4 * 1024 * 1024
"""Payload bytes in one reply. A larger reply would block Redis for all clients."""

MAX_TASKS_PER_DEQUEUE = 1_000
MAX_PAYLOAD_BYTES = 1024 * 1024


def check_number(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{name} must be a whole number from {low} to {high}, not {value!r}.")
    return value


def check_item_count(name: str, items: Sequence[object]) -> None:
    if len(items) > MAX_ITEMS_PER_CALL:
        raise InvalidRequest(
            f"The call has {len(items)} {name}. Send at most {MAX_ITEMS_PER_CALL} in one call."
        )


def check_task(task: NewTask) -> NewTask:
    check_number("priority", task.priority, 0, MAX_PRIORITY)
    check_number("delay_ms", task.delay_ms, 0, MAX_DELAY_MS)
    check_number("max_attempts", task.max_attempts, 1, MAX_ATTEMPTS)
    if task.ttl_ms is not None:
        check_number("ttl_ms", task.ttl_ms, 1, MAX_DELAY_MS)
    if task.idempotency_key is not None and not 1 <= len(task.idempotency_key) <= MAX_NAME_LENGTH:
        raise InvalidRequest(f"An idempotency key has 1 to {MAX_NAME_LENGTH} characters.")
    if len(task.payload) > MAX_PAYLOAD_BYTES:
        raise InvalidRequest(
            f"The payload has {len(task.payload)} bytes, more than the maximum of {MAX_PAYLOAD_BYTES}. "
            "Store it elsewhere and enqueue a reference to it."
        )
    return task


def check_visibility(value: int, min_ms: int = MIN_VISIBILITY_MS) -> int:
    return check_number("visibility_ms", value, min_ms, MAX_VISIBILITY_MS)


def check_concurrency_limit(value: int | None) -> int | None:
    """Return the limit; None means no limit.

    0 is refused: a queue that must start no task is paused, and metrics report "no limit" as 0.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CONCURRENCY:
        raise InvalidRequest(
            f"A concurrency limit is a whole number from 1 to {MAX_CONCURRENCY}, not {value!r}. "
            "Pause the queue to start no more of its tasks.",
            field="concurrency",
        )
    return value


def check_burst(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_BURST:
        raise InvalidRequest(f"burst must be a number from 1 to {MAX_BURST}, not {value!r}.")
    return float(value)


def check_worker_name(value: str) -> str:
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"The worker's name has {len(value)} characters, more than the maximum of {MAX_NAME_LENGTH}."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("The worker's name cannot be encoded as UTF-8.") from None
    return value
