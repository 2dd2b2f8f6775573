"""Helpers for tests with the Queen client."""

from __future__ import annotations

from typing import Any

from queen import Queen


def payloads(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["data"] for message in messages]


async def count_unfinished(queen: Queen, queue: str) -> int:
    """Return how many messages the queue's slowest group has not finished."""
    detail = await queen.admin.get_queue(queue)
    return int(detail["depth"]) + int(detail["running"])
