"""One-shot tasks: work that must finish before other components may start, such as migrations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future

from penstock.embedded.supervision.component import Component, Health
from penstock.embedded.supervision.state import RunState
from penstock.embedded.supervision.watcher import ComponentWatcher, Report, RestartPolicy
from penstock.errors import PenstockError


class OneShotTask(Component):
    """Work with an end. `work` returns a summary of what it did, or raises PenstockError."""

    def __init__(self, name: str, depends_on: tuple[str, ...], work: Callable[[], str]) -> None:
        self.name = name
        self.depends_on = depends_on
        self._work = work
        self._summary = ""

    @property
    def address(self) -> str:
        return self._summary

    def run(self) -> None:
        self._summary = self._work()

    def probe(self) -> Health:
        return Health(bool(self._summary))


class OneShotTaskWatcher(ComponentWatcher):
    """Runs the task when its dependencies are up, and retries a few times when it fails."""

    def __init__(self, task: OneShotTask, pool: Executor, report: Report, policy: RestartPolicy) -> None:
        super().__init__(task, pool, report, policy)
        self._task = task
        self._pending_run: Future[None] | None = None
        self._attempts = 0
        self._next_attempt_at = 0.0

    def tick(self, now: float, dependencies_up: bool) -> None:
        if self.state is RunState.UP:
            return
        if self._pending_run is None:
            if dependencies_up and now >= self._next_attempt_at:
                self.state = RunState.STARTING
                self._attempts += 1
                self._pending_run = self._pool.submit(self._task.run)
            return
        if not self._pending_run.done():
            return
        finished_run, self._pending_run = self._pending_run, None
        try:
            finished_run.result()
        except PenstockError as error:
            self.state = RunState.DOWN
            self._record_failure(error.detail)
            self._next_attempt_at = now + self._policy.backoff_s(self._attempts + 1)
            if self._attempts >= self._policy.first_start_attempts:
                self.fatal_failure = error.detail
            else:
                self._report(self._task.name, f"{self._task.name}: {error.detail}", logging.WARNING)
            return
        self.has_been_up = True
        self.state = RunState.UP
        self._report(self._task.name, f"{self._task.name}: {self._task.address}", logging.INFO)
