"""Tasks that workers hold: heartbeat, ack, nack and giving back, each many at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import msgpack

from penstock.errors import LeaseLost, PenstockError, UnknownTask
from penstock.model import Scope
from penstock.runqueue.keys import environment_name, shard_of_task
from penstock.runqueue.limits import check_many, check_number
from penstock.runqueue.merging import Merger
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import (
    LONGEST_DELAY_MS,
    LONGEST_ERROR,
    Lease,
    Nack,
    Outcome,
    Settled,
    TaskState,
)

UNKNOWN, LOST, BURIED, AT_ONCE = 0, -1, 2, 3
"""Answers of the scripts; larger ones are times."""

BACKOFF = -1
Item = tuple[Any, ...]


class Settling:
    """Each verb returns one outcome per lease, in order; what concerns one lease concerns it alone."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._mergers = {command: self._merger(command) for command in ("heartbeat", "ack", "nack")}

    async def heartbeat(self, scope: Scope, leases: Sequence[Lease], visibility_ms: int) -> list[Outcome]:
        items = [(lease, (visibility_ms,)) for lease in leases]
        return await self._settle(
            "heartbeat", scope, items, lambda lease, at: Settled(lease.id, TaskState.RUNNING, at)
        )

    async def ack(self, scope: Scope, leases: Sequence[Lease]) -> list[Outcome]:
        items: list[tuple[Lease, Item]] = [(lease, ()) for lease in leases]
        return await self._settle("ack", scope, items, lambda lease, _: Settled(lease.id, None))

    async def nack(self, scope: Scope, nacks: Sequence[Nack]) -> list[Outcome]:
        return await self._settle(
            "nack", scope, [(nack.lease, _nack_item(nack)) for nack in nacks], _returned
        )

    async def give_back(self, scope: Scope, leases: Sequence[Lease]) -> list[Outcome]:
        items = [(lease, ("give back", 0, 0, "")) for lease in leases]
        return await self._settle("nack", scope, items, _returned)

    async def drain(self) -> None:
        for merger in self._mergers.values():
            await merger.drain()

    async def _settle(
        self,
        command: str,
        scope: Scope,
        items: Sequence[tuple[Lease, Item]],
        settled: Callable[[Lease, int], Settled],
    ) -> list[Outcome]:
        check_many("tasks", items)
        environment = environment_name(scope)
        outcomes: list[Outcome | None] = [None] * len(items)
        by_shard: dict[int, list[int]] = {}
        for place, (lease, _) in enumerate(items):
            try:
                by_shard.setdefault(shard_of_task(lease.id), []).append(place)
            except UnknownTask as unknown:
                outcomes[place] = unknown
        for shard, places in by_shard.items():
            sent = [
                (environment, items[place][0].id, items[place][0].token, *items[place][1]) for place in places
            ]
            answers = await self._mergers[command].submit(shard, sent)
            for place, answer in zip(places, answers, strict=True):
                lease = items[place][0]
                outcomes[place] = _refusal(lease, answer) or settled(lease, answer)
        return [outcome for outcome in outcomes if outcome is not None]

    def _merger(self, command: str) -> Merger[Item, int]:
        async def execute(shard: int, items: list[Item]) -> list[int]:
            answers: list[int] = await self._scripts.call(command, shard, msgpack.encode(items))
            return answers

        return Merger(execute)


def raised(outcome: Outcome) -> Settled:
    """The one outcome of a call for one task."""
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def _refusal(lease: Lease, answer: int) -> PenstockError | None:
    if answer == UNKNOWN:
        return UnknownTask(
            f"there is no task {lease.id}: it is done, has expired or never was in this environment",
            taskId=lease.id,
        )
    if answer == LOST:
        return LeaseLost(
            f"task {lease.id} is not held under this token any more: it took longer than its visibility "
            "timeout or was settled before; drop the work, somebody else has it or will",
            taskId=lease.id,
        )
    return None


def _returned(lease: Lease, answer: int) -> Settled:
    if answer == BURIED:
        return Settled(lease.id, TaskState.DEAD)
    if answer == AT_ONCE:
        return Settled(lease.id, TaskState.ELIGIBLE)
    return Settled(lease.id, TaskState.DELAYED, answer)


def _nack_item(nack: Nack) -> Item:
    delay_ms = BACKOFF
    if nack.delay_ms is not None:
        delay_ms = check_number("delay_ms", nack.delay_ms, 0, LONGEST_DELAY_MS)
    error = nack.error[:LONGEST_ERROR].encode("utf-8", "replace").decode()
    return ("retry" if nack.retry else "bury", delay_ms, random.random(), error)
