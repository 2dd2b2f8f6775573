"""Watch one component: start it, notice when it dies or hangs, and start it again.

The supervisor advances a watcher with `tick`, always from the one thread that also spawns children, because
the kernel ties a child's death signal to that thread. Slow work (preparing, probing, stopping) runs in the
pool.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.supervision.component import Component, Health, Program, start
from penstock.embedded.supervision.failures import EXIT_NEEDS_OPERATOR
from penstock.embedded.supervision.process import Child, kill_marked_processes, stop
from penstock.embedded.supervision.process_identity import write_pid_file
from penstock.embedded.supervision.service_fork import ServiceFork
from penstock.embedded.supervision.state import ComponentState, RunState
from penstock.errors import PenstockError

PROBE_STARTING_INTERVAL_S = 0.1
PROBE_UP_INTERVAL_S = 1.0

Report = Callable[[str, str, int], None]
"""Callback for events that users should see: the component's name, a sentence, and its log level."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a failed component is started again, and when the supervisor gives up on the platform."""

    first_backoff_s: float = 0.2
    max_backoff_s: float = 30.0
    stable_after_s: float = 60.0
    """A program that has run this long starts with the first backoff again."""
    first_start_attempts: int = 3
    """The platform stops when a required component fails this often before it is up for the first time."""
    external_server_timeout_s: float = 30.0
    """The platform stops when a required external server does not answer this long at the beginning."""

    def backoff_s(self, failures_in_a_row: int) -> float:
        return min(self.max_backoff_s, self.first_backoff_s * 2.0 ** (failures_in_a_row - 1))


class ComponentWatcher(ABC):
    """Base of all watchers: the state of one component, and its probes."""

    def __init__(self, component: Component, pool: Executor, report: Report, policy: RestartPolicy) -> None:
        self.component = component
        self.state = RunState.WAITING
        self.fatal_failure: str | None = None
        """Why the platform cannot start because of this component, or None."""
        self.has_been_up = False
        self._pool = pool
        self._report = report
        self._policy = policy
        self._up_since: float | None = None
        self._last_failure: str | None = None
        self._last_failure_at: float | None = None
        self._pending_probe: Future[Health] | None = None
        self._next_probe_at = 0.0

    @abstractmethod
    def tick(self, now: float, dependencies_up: bool) -> None:
        """Check the component once and take the action that is due."""

    def component_state(self) -> ComponentState:
        return ComponentState(
            name=self.component.name,
            state=self.state,
            address=self.component.address,
            up_since=self._up_since,
            last_failure=self._last_failure,
            last_failure_at=self._last_failure_at,
        )

    def _poll_probe(self, now: float, interval_s: float) -> Health | None:
        """Return the result of a probe that has just finished, if any, and keep one probe pending."""
        if self._pending_probe is not None:
            if not self._pending_probe.done():
                return None
            error = self._pending_probe.exception()
            health = Health(False, f"the probe failed: {error!r}") if error else self._pending_probe.result()
            self._pending_probe = None
            self._next_probe_at = now + interval_s
            return health
        if now >= self._next_probe_at:
            self._pending_probe = self._pool.submit(self.component.probe)
        return None

    def _record_failure(self, reason: str) -> None:
        self._last_failure = reason
        self._last_failure_at = time.time()

    def _mark_up(self) -> None:
        was_up_before = self.has_been_up
        self.has_been_up = True
        self.state = RunState.UP
        self._up_since = self._up_since or time.time()
        name = self.component.name
        message = f"{name} is up again" if was_up_before else f"{name} is up: {self.component.address}"
        self._report(name, message, logging.INFO)


class ExternalServerWatcher(ComponentWatcher):
    """Watches a server that the operator runs: it is either up or down."""

    def __init__(self, server: ExternalServer, pool: Executor, report: Report, policy: RestartPolicy) -> None:
        super().__init__(server, pool, report, policy)
        self._created_at = time.monotonic()

    def tick(self, now: float, dependencies_up: bool) -> None:
        health = self._poll_probe(now, PROBE_UP_INTERVAL_S)
        if health is None:
            return
        if health.ok:
            if self.state is not RunState.UP:
                self._mark_up()
            return
        name = self.component.name
        if self.state is not RunState.DOWN:
            self._record_failure(health.reason)
            self._report(name, health.reason, logging.ERROR)
        self.state = RunState.DOWN
        self._up_since = None
        timed_out = now - self._created_at > self._policy.external_server_timeout_s
        if self.component.required and not self.has_been_up and timed_out:
            self.fatal_failure = health.reason

    def component_state(self) -> ComponentState:
        return replace(super().component_state(), is_external=True)


class ProgramWatcher(ComponentWatcher):
    """Runs a program and restarts it when it dies or hangs."""

    def __init__(
        self,
        program: Program,
        run_directory: Path,
        pool: Executor,
        report: Report,
        policy: RestartPolicy,
        fork: ServiceFork | None = None,
    ) -> None:
        super().__init__(program, pool, report, policy)
        self.program = program
        self._fork = fork
        """Runs the program at its first start; without it, the first start is like the later ones."""
        self.child: Child | None = None
        self._pid_file = run_directory / f"{program.name}.pid"
        self._pending_prepare: Future[str | None] | None = None
        self._pending_stop: Future[bool] | None = None
        self._spawn_count = 0
        self._spawned_at = 0.0
        self._failures_in_a_row = 0
        self._next_start_at = 0.0
        self._unresponsive_since: float | None = None
        self._reported_note: str | None = None
        self._child_waits = False
        """Whether the child runs before its dependencies and waits for them."""

    def tick(self, now: float, dependencies_up: bool) -> None:
        if self._pending_stop is not None:
            if self._pending_stop.done():
                self._pending_stop = None
                self.child = None
            return
        if self.child is not None:
            self._check_child(self.child, now, dependencies_up)
        elif self._pending_prepare is not None:
            if self._pending_prepare.done():
                self._spawn(now)
        elif not dependencies_up and not self._may_start_early:
            self.state = RunState.DOWN if self._spawn_count else RunState.WAITING
        elif now >= self._next_start_at:
            self.state = RunState.STARTING
            self._pending_prepare = self._pool.submit(self._prepare)

    @property
    def _may_start_early(self) -> bool:
        """Whether this is the first start, of a program that can wait. Later, dependencies usually run."""
        return self.program.starts_early and self._spawn_count == 0 and self._failures_in_a_row == 0

    def _prepare(self) -> str | None:
        kill_marked_processes(self.program.mark)
        return self.program.prepare()

    def _spawn(self, now: float) -> None:
        prepare, self._pending_prepare = self._pending_prepare, None
        assert prepare is not None
        try:
            note = prepare.result()
            self._child_waits = self._may_start_early
            fork, self._fork = self._fork, None
            self.child = start(self.program, waits=self._child_waits, fork=fork)
            write_pid_file(self._pid_file, self.child.identity)
        except (PenstockError, OSError) as error:
            reason = error.detail if isinstance(error, PenstockError) else f"{self.program.name}: {error}"
            if not self.has_been_up and self.program.required:
                self.fatal_failure = reason
            self._handle_failure(now, reason)
            return
        if note and note != self._reported_note:
            self._reported_note = note
            self._report(self.program.name, note, logging.INFO)
        self._spawn_count += 1
        self._spawned_at = now
        self._unresponsive_since = None
        # A pending probe belongs to the previous process.
        self._pending_probe = None
        self._next_probe_at = now

    def _check_child(self, child: Child, now: float, dependencies_up: bool) -> None:
        exit_code = child.exit_code
        if exit_code is not None:
            self.child = None
            reason = self.program.explain_exit(exit_code, child.read_output())
            self._handle_failure(now, reason, needs_operator=exit_code == EXIT_NEEDS_OPERATOR)
            return
        if self._child_waits:
            if dependencies_up:
                self._child_waits = False
                self._spawned_at = now
                child.let_start()
            return
        is_up = self.state is RunState.UP
        health = self._poll_probe(now, PROBE_UP_INTERVAL_S if is_up else PROBE_STARTING_INTERVAL_S)
        if health is None:
            return
        if health.ok:
            self._unresponsive_since = None
            if not is_up:
                self._mark_up()
            if now - self._spawned_at > self._policy.stable_after_s:
                self._failures_in_a_row = 0
        elif self.state is RunState.STARTING:
            if now - self._spawned_at > self.program.start_timeout_s and not health.busy:
                self._stop_failed(child, now, self.program.explain_not_ready(health))
        else:
            self._handle_unresponsive(child, now, dependencies_up, health)

    def _handle_unresponsive(self, child: Child, now: float, dependencies_up: bool, health: Health) -> None:
        """Restart a program that runs but does not answer for long, unless a dependency is the cause."""
        name = self.program.name
        if self.state is not RunState.UNRESPONSIVE:
            reason = f"{name} {'does not work' if health.busy else 'does not answer'}: {health.reason}"
            self._record_failure(reason)
            self._report(name, reason, logging.WARNING)
        self.state = RunState.UNRESPONSIVE
        if self._unresponsive_since is None or not dependencies_up or health.busy:
            self._unresponsive_since = now
        if now - self._unresponsive_since > self.program.hang_timeout_s:
            reason = f"{name} did not answer for {self.program.hang_timeout_s:.0f} s: {health.reason}"
            self._stop_failed(child, now, reason)

    def _stop_failed(self, child: Child, now: float, reason: str) -> None:
        self._pending_stop = self._pool.submit(stop, child, self.program.stop_timeout_s)
        self._handle_failure(now, reason)

    def _handle_failure(self, now: float, reason: str, needs_operator: bool = False) -> None:
        self._failures_in_a_row += 1
        backoff_s = self._policy.backoff_s(self._failures_in_a_row)
        already_reported = False
        if needs_operator:
            # Retry now and then, in case the operator has done what the program asks for; report it once.
            backoff_s = self._policy.max_backoff_s
            already_reported = reason == self._last_failure
        self._next_start_at = now + backoff_s
        self.state = RunState.DOWN
        self._up_since = None
        self._record_failure(reason)
        too_often = self._failures_in_a_row >= self._policy.first_start_attempts
        if not self.has_been_up and self.program.required and too_often:
            self.fatal_failure = reason
        if not self.fatal_failure and not already_reported:
            message = f"{reason.rstrip('.')}. Next attempt in {backoff_s:.1f} s."
            self._report(self.program.name, message, logging.ERROR)

    def begin_stop(self) -> Future[bool] | None:
        """Ask the program to stop. The future completes when it has; None when the program does not run."""
        if self._fork is not None:
            self._fork.discard()
            self._fork = None
        if self.child is None:
            self.state = RunState.STOPPED
            return None
        self.state = RunState.STOPPING
        if self._pending_stop is None:
            self._pending_stop = self._pool.submit(stop, self.child, self.program.stop_timeout_s)
        return self._pending_stop

    def finish_stop(self) -> None:
        """Record that the process is gone."""
        self.child = None
        self.state = RunState.STOPPED
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        if self.child is not None:
            self.child.process.kill()

    def component_state(self) -> ComponentState:
        is_running = self.child is not None and self.child.exit_code is None
        return replace(
            super().component_state(),
            pid=self.child.identity.pid if self.child and is_running else None,
            restarts=max(0, self._spawn_count - 1),
        )
