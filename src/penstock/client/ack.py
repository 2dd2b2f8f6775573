"""What became of tasks, told to the broker: one request at a time, with all that has gathered meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.client.errors import ClientError
from penstock.client.task_types import Task, TaskResult
from penstock.client.tasks import Tasks

logger = logging.getLogger("penstock.client")

Verb = Literal["ack", "nack", "give-back"]


@dataclass(slots=True, eq=False)
class Held:
    """A task in this worker's hands."""

    task: Task
    running: asyncio.Task[None] | None = None
    settling: bool = False
    lost: bool = False
    left: bool = False
    """A thread works on it that nobody waits for."""


@dataclass(slots=True, eq=False)
class Verdict:
    held: Held
    verb: Verb
    error: str
    told: asyncio.Future[None]


class Settling:
    def __init__(self, tasks: Tasks, lose: Callable[[Held], None]) -> None:
        self._tasks = tasks
        self._lose = lose
        self._verdicts: list[Verdict] = []
        self._sending: asyncio.Task[None] | None = None

    async def settle(self, held: Held, verb: Verb, error: str = "") -> None:
        """Tell the broker; what cannot be told comes again after its time. A caller that is cancelled does
        not interrupt it."""
        held.settling = True
        verdict = Verdict(held, verb, error, asyncio.get_running_loop().create_future())
        self._verdicts.append(verdict)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        await asyncio.shield(verdict.told)

    async def _send(self) -> None:
        try:
            while self._verdicts:
                verdicts, self._verdicts = self._verdicts, []
                for verb in ("ack", "nack", "give-back"):
                    if some := [verdict for verdict in verdicts if verdict.verb == verb]:
                        await self._send_some(some)
        finally:
            self._sending = None

    async def _send_some(self, verdicts: list[Verdict]) -> None:
        try:
            for verdict, result in zip(verdicts, await self._told(verdicts), strict=True):
                self._hear(verdict.held, result)
        except ClientError as error:
            logger.error("%d tasks could not be settled and may come again: %s", len(verdicts), error)
        finally:
            for verdict in verdicts:
                if not verdict.told.done():
                    verdict.told.set_result(None)

    async def _told(self, verdicts: list[Verdict]) -> list[TaskResult]:
        tasks = [verdict.held.task for verdict in verdicts]
        if verdicts[0].verb == "ack":
            return await self._tasks.ack_many(tasks)
        if verdicts[0].verb == "nack":
            return await self._tasks.nack_many((v.held.task, v.error) for v in verdicts)
        return await self._tasks.give_back_many(tasks)

    def _hear(self, held: Held, result: TaskResult) -> None:
        if result.uncertain:
            logger.warning("an answer was lost: task %s is settled, or will come again", held.task.id)
        elif not result.success:
            self._lose(held)
