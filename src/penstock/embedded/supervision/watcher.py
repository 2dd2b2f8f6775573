"""Watching one part: start it, notice that it died or hangs, start it again.

A watch is advanced by `tick`, always from the one thread that also spawns (the kernel ties a child's death
signal to that thread). What takes time, such as preparing, probing and stopping, runs in the pool.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.supervision.component import Component, Health, Program, start
from penstock.embedded.supervision.failures import EXIT_NEEDS_OPERATOR
from penstock.embedded.supervision.process import Child, kill_marked_processes, stop
from penstock.embedded.supervision.process_identity import write_pid_file
from penstock.embedded.supervision.state import ComponentState, State
from penstock.errors import PenstockError

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 30.0
STABLE_S = 60.0
FIRST_START_ATTEMPTS = 3
OWN_SERVER_PATIENCE_S = 30.0
PROBE_STARTING_S = 0.1
PROBE_UP_S = 1.0

Report = Callable[[str, str], None]
"""Called with a part's name and a sentence whenever something worth telling happened."""


class ComponentWatcher(ABC):
    """What every kind of watch shares: a state, a row for the table, and the probing of its part."""

    def __init__(self, part: Component, pool: Executor, report: Report) -> None:
        self.part = part
        self.state = State.WAITING
        self.given_up: str | None = None
        """Why the platform cannot start because of this part, in words; None while there is hope."""
        self.ever_up = False
        self._pool = pool
        self._report = report
        self._up_since: float | None = None
        self._last_failure: str | None = None
        self._last_failure_at: float | None = None
        self._probing: Future[Health] | None = None
        self._next_probe = 0.0

    @abstractmethod
    def tick(self, now: float, needs_up: bool) -> None:
        """Look once and do what is due. `needs_up`: whether all that the part needs is up."""

    def row(self) -> ComponentState:
        return ComponentState(
            name=self.part.name,
            state=self.state,
            address=self.part.address,
            up_since=self._up_since,
            last_failure=self._last_failure,
            last_failure_at=self._last_failure_at,
        )

    def _health(self, now: float, every_s: float) -> Health | None:
        """The answer of a probe that has just come back, if one has; keeps one probe on its way."""
        if self._probing is not None:
            if not self._probing.done():
                return None
            broken = self._probing.exception()
            health = Health(False, f"it cannot be asked: {broken!r}") if broken else self._probing.result()
            self._probing = None
            self._next_probe = now + every_s
            return health
        if now >= self._next_probe:
            self._probing = self._pool.submit(self.part.probe)
        return None

    def _note_failure(self, words: str) -> None:
        self._last_failure = words
        self._last_failure_at = time.time()

    def _is_up(self) -> None:
        again = self.ever_up
        self.ever_up = True
        self.state = State.UP
        self._up_since = self._up_since or time.time()
        self._report(
            self.part.name, f"{self.part.name} is up" + (" again" if again else f": {self.part.address}")
        )


class ExternalServerWatcher(ComponentWatcher):
    """A server that somebody else runs: it can only be up or down."""

    def __init__(self, part: ExternalServer, pool: Executor, report: Report) -> None:
        super().__init__(part, pool, report)
        self._setting = part.setting
        self._began = time.monotonic()

    def tick(self, now: float, needs_up: bool) -> None:
        health = self._health(now, PROBE_UP_S)
        if health is None:
            return
        if health.ok:
            if self.state is not State.UP:
                self._is_up()
            return
        words = f"{self.part.name}: the server given by {self._setting} does not answer: {health.reason}"
        if self.state is not State.DOWN:
            self._note_failure(words)
            self._report(self.part.name, words)
        self.state = State.DOWN
        self._up_since = None
        if self.part.required and not self.ever_up and now - self._began > OWN_SERVER_PATIENCE_S:
            self.given_up = words

    def row(self) -> ComponentState:
        return replace(super().row(), yours=True)


class ProgramWatcher(ComponentWatcher):
    """A program that is run here, and run again when it dies or hangs."""

    def __init__(self, part: Program, run_directory: Path, pool: Executor, report: Report) -> None:
        super().__init__(part, pool, report)
        self.program = part
        self.child: Child | None = None
        self._pid_file = run_directory / f"{part.name}.pid"
        self._preparing: Future[str | None] | None = None
        self._ending: Future[bool] | None = None
        self._spawned = 0
        self._spawned_at = 0.0
        self._failures_in_a_row = 0
        self._next_start = 0.0
        self._silent_since: float | None = None
        self._told: str | None = None

    def tick(self, now: float, needs_up: bool) -> None:
        if self._ending is not None:
            if self._ending.done():
                self._ending = None
                self.child = None
            return
        if self.child is not None:
            self._watch_child(self.child, now, needs_up)
        elif self._preparing is not None:
            if self._preparing.done():
                self._spawn(now)
        elif not needs_up:
            self.state = State.DOWN if self._spawned else State.WAITING
        elif now >= self._next_start:
            self.state = State.STARTING
            self._preparing = self._pool.submit(self._prepare)

    def _prepare(self) -> str | None:
        kill_marked_processes(self.program.mark)
        return self.program.prepare()

    def _spawn(self, now: float) -> None:
        preparing, self._preparing = self._preparing, None
        assert preparing is not None
        try:
            note = preparing.result()
            self.child = start(self.program)
            write_pid_file(self._pid_file, self.child.identity)
        except (PenstockError, OSError) as error:
            words = error.detail if isinstance(error, PenstockError) else f"{self.part.name}: {error}"
            if not self.ever_up and self.part.required:
                self.given_up = words
            self._failed(now, words)
            return
        if note and note != self._told:
            self._told = note
            self._report(self.part.name, note)
        self._spawned += 1
        self._spawned_at = now
        self._silent_since = None
        # A probe that was on its way asked the previous process.
        self._probing = None
        self._next_probe = now

    def _watch_child(self, child: Child, now: float, needs_up: bool) -> None:
        exit_code = child.exit_code
        if exit_code is not None:
            self.child = None
            words = self.program.explain(exit_code, child.output())
            self._failed(now, words, needs_somebody=exit_code == EXIT_NEEDS_OPERATOR)
            return
        health = self._health(now, PROBE_STARTING_S if self.state is not State.UP else PROBE_UP_S)
        if health is None:
            return
        if health.ok:
            self._silent_since = None
            if self.state is not State.UP:
                self._is_up()
            if now - self._spawned_at > STABLE_S:
                self._failures_in_a_row = 0
        elif self.state is State.STARTING:
            if now - self._spawned_at > self.program.start_timeout_s and not health.busy:
                self._end(child, now, self.program.not_ready(health))
        else:
            self._went_silent(child, now, needs_up, health)

    def _went_silent(self, child: Child, now: float, needs_up: bool, health: Health) -> None:
        """It runs but does not answer. Restarted only when that lasts, and nothing it needs is to blame."""
        if self.state is not State.SILENT:
            words = f"{self.part.name} does not answer: {health.reason}"
            self._note_failure(words)
            self._report(self.part.name, words)
        self.state = State.SILENT
        if self._silent_since is None or not needs_up or health.busy:
            self._silent_since = now
        if now - self._silent_since > self.program.hang_timeout_s:
            words = f"{self.part.name} did not answer for {self.program.hang_timeout_s:.0f} s: {health.reason}"
            self._end(child, now, words)

    def _end(self, child: Child, now: float, words: str) -> None:
        self._ending = self._pool.submit(stop, child, self.program.stop_timeout_s)
        self._failed(now, words)

    def _failed(self, now: float, words: str, needs_somebody: bool = False) -> None:
        self._failures_in_a_row += 1
        backoff_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self._failures_in_a_row - 1))
        told = False
        if needs_somebody:
            # It is tried again at times, in case somebody has done what it asks for; it is told once.
            backoff_s = MAX_BACKOFF_S
            told = words == self._last_failure
        self._next_start = now + backoff_s
        self.state = State.DOWN
        self._up_since = None
        self._note_failure(words)
        if not self.ever_up and self.part.required and self._failures_in_a_row >= FIRST_START_ATTEMPTS:
            self.given_up = words
        if not self.given_up and not told:
            self._report(self.part.name, f"{words}; next try in {backoff_s:.1f} s")

    def begin_stop(self) -> Future[bool] | None:
        """Ask it to end; the future is done when it has. None when it does not run."""
        if self.child is None:
            self.state = State.STOPPED
            return None
        self.state = State.STOPPING
        if self._ending is None:
            self._ending = self._pool.submit(stop, self.child, self.program.stop_timeout_s)
        return self._ending

    def stopped(self) -> None:
        """Its process is gone: forget it."""
        self.child = None
        self.state = State.STOPPED
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        if self.child is not None:
            self.child.process.kill()

    def row(self) -> ComponentState:
        runs = self.child is not None and self.child.exit_code is None
        return replace(
            super().row(),
            pid=self.child.identity.pid if self.child and runs else None,
            restarts=max(0, self._spawned - 1),
        )
