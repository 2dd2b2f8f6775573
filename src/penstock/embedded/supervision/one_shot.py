"""Work that must be done once before other parts may start, such as migrations."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future

from penstock.embedded.supervision.component import Component, Health
from penstock.embedded.supervision.state import State
from penstock.embedded.supervision.watcher import (
    FIRST_BACKOFF_S,
    FIRST_START_ATTEMPTS,
    ComponentWatcher,
    Report,
)
from penstock.errors import PenstockError


class OneShotTask(Component):
    """Work with an end. `work` returns what it did, in words, or raises PenstockError when it cannot."""

    def __init__(self, name: str, needs: tuple[str, ...], work: Callable[[], str]) -> None:
        self.name = name
        self.needs = needs
        self._work = work
        self._done = ""

    @property
    def address(self) -> str:
        return self._done

    def run(self) -> None:
        self._done = self._work()

    def probe(self) -> Health:
        return Health(bool(self._done))


class OneShotTaskWatcher(ComponentWatcher):
    """Does the work when what it needs is up, and tries again a few times when that fails."""

    def __init__(self, part: OneShotTask, pool: Executor, report: Report) -> None:
        super().__init__(part, pool, report)
        self._step = part
        self._doing: Future[None] | None = None
        self._attempts = 0
        self._next_try = 0.0

    def tick(self, now: float, needs_up: bool) -> None:
        if self.state is State.UP:
            return
        if self._doing is None:
            if needs_up and now >= self._next_try:
                self.state = State.STARTING
                self._attempts += 1
                self._doing = self._pool.submit(self._step.run)
            return
        if not self._doing.done():
            return
        doing, self._doing = self._doing, None
        try:
            doing.result()
        except PenstockError as error:
            self.state = State.DOWN
            self._note_failure(error.detail)
            self._next_try = now + FIRST_BACKOFF_S * 2**self._attempts
            if self._attempts >= FIRST_START_ATTEMPTS:
                self.given_up = error.detail
            return
        self.ever_up = True
        self.state = State.UP
        self._report(self.part.name, f"{self.part.name}: {self.part.address}")
