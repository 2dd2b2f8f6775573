"""What may be asked of run queues: each refusal names the value, what is allowed, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidRequest
from penstock.runqueue.task_model import (
    HIGHEST_PRIORITY,
    LARGEST_LIMIT,
    LONGEST_DELAY_MS,
    LONGEST_NAME,
    MOST_ATTEMPTS,
    NewTask,
)

MOST_AT_ONCE = 10_000
"""Items in one call: more would hold Redis up for everybody."""

LARGEST_PAYLOAD = 1024 * 1024
SHORTEST_VISIBILITY_MS = 100


def check_number(what: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{what} must be a whole number from {low} to {high}, not {value!r}")
    return value


def check_many(what: str, items: Sequence[object]) -> None:
    if len(items) > MOST_AT_ONCE:
        raise InvalidRequest(f"{len(items)} {what} in one call: send at most {MOST_AT_ONCE}")


def check_task(task: NewTask) -> NewTask:
    check_number("priority", task.priority, 0, HIGHEST_PRIORITY)
    check_number("delay_ms", task.delay_ms, 0, LONGEST_DELAY_MS)
    check_number("max_attempts", task.max_attempts, 1, MOST_ATTEMPTS)
    if task.ttl_ms is not None:
        check_number("ttl_ms", task.ttl_ms, 1, LONGEST_DELAY_MS)
    if task.idempotency_key is not None and not 1 <= len(task.idempotency_key) <= LONGEST_NAME:
        raise InvalidRequest(f"an idempotency key has 1 to {LONGEST_NAME} characters")
    if len(task.payload) > LARGEST_PAYLOAD:
        raise InvalidRequest(
            f"a payload of {len(task.payload)} bytes: at most {LARGEST_PAYLOAD} fit; "
            "store it elsewhere and enqueue where"
        )
    return task


def check_visibility(value: int) -> int:
    return check_number("visibility_ms", value, SHORTEST_VISIBILITY_MS, LONGEST_DELAY_MS)


def check_limit(value: int | None) -> int | None:
    """None is no limit. A queue that shall start nothing is paused, so 0 is free to say *none* in metrics."""
    return None if value is None else check_number("limit", value, 1, LARGEST_LIMIT)


def check_burst(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 100:
        raise InvalidRequest(f"burst must be a number from 1 to 100, not {value!r}")
    return float(value)


def check_worker(value: str) -> str:
    if len(value) > LONGEST_NAME:
        raise InvalidRequest(f"a worker's name has at most {LONGEST_NAME} characters, this one {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("a worker's name must be text that can be written as UTF-8") from None
    return value
