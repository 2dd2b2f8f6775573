"""Mark changes of queues in their charts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Literal

from starlette.requests import Request

from penstock.api.services import get_services
from penstock.broker.durable_store import NewAnnotation
from penstock.caller import Caller
from penstock.clock import system_clock

logger = logging.getLogger(__name__)

WRITE_TIMEOUT_S = 5.0
"""How long a call waits for its annotation."""
MAX_LISTED_CHANGES = 5

ChangeKind = Literal["pause", "resume", "limit", "seek", "requeue", "purge", "configure"]
CHANGE_KINDS: tuple[ChangeKind, ...] = ("pause", "resume", "limit", "seek", "requeue", "purge", "configure")
"""Kinds of annotations that the broker itself writes."""


async def annotate_change(
    request: Request,
    caller: Caller,
    kind: ChangeKind,
    text: str,
    *,
    queue: str | None,
    key: str | None = None,
) -> None:
    """Add an annotation of a change that has happened; without a queue, to the whole environment.

    It never fails: an annotation that cannot be stored goes to the broker's log. With a `key`, changes that
    have the same one get one annotation.
    """
    annotation = NewAnnotation(kind=kind, text=text, subject=caller.subject, queue=queue, key=key)
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await get_services(request).broker.store.annotations.add(caller.environment, annotation)
    except Exception as error:  # noqa: BLE001 - the change has happened, so its response must not fail
        logger.warning("No annotation of the %s of queue %r was stored: %r", kind, queue, error)


def describe_limit(before: int | None, after: int | None) -> str:
    """Return the text of a changed limit."""
    return f"Limit of running tasks: {before or 'none'} → {after or 'none'}"


def describe_options(before: Mapping[str, object] | None, after: Mapping[str, object]) -> str:
    """Return the text of changed options; empty if none has changed. `before` None: the queue is new."""
    if before is None:
        return "Queue created"
    names = [name for name, value in after.items() if before.get(name) != value]
    listed = [f"{name} {before.get(name)} → {after[name]}" for name in names[:MAX_LISTED_CHANGES]]
    more = [f"{len(names) - MAX_LISTED_CHANGES} more"] if len(names) > MAX_LISTED_CHANGES else []
    return ", ".join(listed + more)


async def annotate_pause(request: Request, caller: Caller, queue: str, is_paused: bool) -> None:
    """Add the annotation of a queue that was paused or resumed."""
    kind: ChangeKind = "pause" if is_paused else "resume"
    await annotate_change(request, caller, kind, "Paused" if is_paused else "Resumed", queue=queue)


async def annotate_single_requeue(request: Request, caller: Caller, queue: str) -> None:
    """Add one annotation for all dead letters of a queue that are requeued by id in the same minute."""
    minute = int(system_clock() // 60)
    await annotate_change(
        request,
        caller,
        "requeue",
        "Requeued single dead letters",
        queue=queue,
        key=f"requeue {minute} {queue}",
    )
