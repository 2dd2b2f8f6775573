"""Report the outcomes of tasks to the broker: one request at a time, with all outcomes since the last one."""

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
class RunningTask:
    """A task that this worker holds."""

    task: Task
    handler: asyncio.Task[None] | None = None
    is_reporting: bool = False
    lease_lost: bool = False
    thread_continues: bool = False
    """The handler's thread could not be cancelled and runs without a waiting task."""


@dataclass(slots=True, eq=False)
class TaskReport:
    """The outcome of a task on its way to the broker."""

    running: RunningTask
    verb: Verb
    error: str
    sent: asyncio.Future[None]


class TaskReporter:
    """Send ack, nack and give-back for the tasks of one worker."""

    def __init__(self, tasks: Tasks, on_lease_lost: Callable[[RunningTask], None]) -> None:
        self._tasks = tasks
        self._on_lease_lost = on_lease_lost
        self._reports: list[TaskReport] = []
        self._send_task: asyncio.Task[None] | None = None

    async def report(self, running: RunningTask, verb: Verb, error: str = "") -> None:
        """Report an outcome. If that fails, the task is delivered again after its lease.

        Cancelling the caller does not interrupt the request.
        """
        running.is_reporting = True
        report = TaskReport(running, verb, error, asyncio.get_running_loop().create_future())
        self._reports.append(report)
        if self._send_task is None:
            self._send_task = asyncio.create_task(self._send())
        await asyncio.shield(report.sent)

    async def _send(self) -> None:
        try:
            while self._reports:
                reports, self._reports = self._reports, []
                for verb in ("ack", "nack", "give-back"):
                    if same_verb := [report for report in reports if report.verb == verb]:
                        await self._send_batch(same_verb)
        finally:
            self._send_task = None

    async def _send_batch(self, reports: list[TaskReport]) -> None:
        try:
            for report, result in zip(reports, await self._request(reports), strict=True):
                self._check_result(report.running, result)
        except ClientError as error:
            logger.error("Could not report %d tasks; they may be delivered again: %s", len(reports), error)
        finally:
            for report in reports:
                if not report.sent.done():
                    report.sent.set_result(None)

    async def _request(self, reports: list[TaskReport]) -> list[TaskResult]:
        tasks = [report.running.task for report in reports]
        if reports[0].verb == "ack":
            return await self._tasks.ack_many(tasks)
        if reports[0].verb == "nack":
            return await self._tasks.nack_many((r.running.task, r.error) for r in reports)
        return await self._tasks.give_back_many(tasks)

    def _check_result(self, running: RunningTask, result: TaskResult) -> None:
        if result.uncertain:
            logger.warning(
                "The response to a report was lost: task %s is finished, or will be delivered again.",
                running.task.id,
            )
        elif not result.success:
            self._on_lease_lost(running)
