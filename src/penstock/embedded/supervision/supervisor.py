"""Start components in dependency order, keep them up, and stop them without leaving processes behind.

Guarantees:
- one supervisor per home, by a lock that the kernel releases when its process ends, however it ends;
- a component starts when all its dependencies are up, and stops before any of them does;
- when the supervisor itself is killed, the kernel signals its children (Linux), and the next start stops the
  processes that remain; it identifies them by pid and start time, never by name;
- after `run` returns, no process that it started is running.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.supervision import logs
from penstock.embedded.supervision.component import Component, Program
from penstock.embedded.supervision.failures import explain_os_error
from penstock.embedded.supervision.one_shot import OneShotTask, OneShotTaskWatcher
from penstock.embedded.supervision.process import kill_marked_processes, process_mark, stop_orphan
from penstock.embedded.supervision.process_identity import identify, read_pid_file
from penstock.embedded.supervision.service_fork import ServiceFork
from penstock.embedded.supervision.state import (
    ComponentState,
    PlatformState,
    RunState,
    read_state,
    state_path,
    write_state,
)
from penstock.embedded.supervision.watcher import (
    ComponentWatcher,
    ExternalServerWatcher,
    ProgramWatcher,
    RestartPolicy,
)
from penstock.errors import ComponentFailed
from penstock.log_format import format_line
from penstock.private_directories import create_home, make_private

TICK_INTERVAL_S = 0.05
TICK_UP_INTERVAL_S = 0.25
"""While all components are up: a killed one is noticed this late."""
STATE_WRITE_INTERVAL_S = 1.0
LOG_ROTATION_INTERVAL_S = 10.0
ORPHAN_STOP_TIMEOUT_S = 10.0


class AlreadyRunning(ComponentFailed):
    """Another supervisor holds the lock of this home."""

    code = "already_running"


class HomeLock:
    """An exclusive lock on a home, held until closed or until the process ends in any way."""

    def __init__(self, home: Path) -> None:
        try:
            create_home(home)
            for directory in (home / "run", home / "logs"):
                make_private(directory)
            self._file: IO[str] = (home / "run" / "lock").open("a")
        except OSError as error:
            raise ComponentFailed(explain_os_error("prepare PENSTOCK_HOME", error, home)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            running = read_state(home)
            location = f" at {running.url} (pid {running.supervisor.pid})" if running else ""
            raise AlreadyRunning(
                f"Penstock already runs on {home}{location}. `penstock status` shows it. To run a second "
                "platform, set another PENSTOCK_HOME and PENSTOCK_PORT."
            ) from None

    def close(self) -> None:
        self._file.close()


def stop_orphans(home: Path) -> list[str]:
    """Stop processes that an earlier supervisor of this home left running; return the components' names.

    Call it while holding the lock of the home. It touches only processes that are certainly ours: those that
    the pid files identify, and those that carry this home's mark.
    """
    stopped = []
    for pid_file in sorted((home / "run").glob("*.pid")):
        identity = read_pid_file(pid_file)
        # On SIGTERM PostgreSQL waits until all clients have disconnected; SIGINT is its fast, orderly
        # shutdown.
        stop_signal = signal.SIGINT if pid_file.stem == "postgres" else signal.SIGTERM
        was_running = identity is not None and stop_orphan(identity, stop_signal, ORPHAN_STOP_TIMEOUT_S)
        was_running |= kill_marked_processes(process_mark(home, pid_file.stem)) > 0
        if was_running:
            stopped.append(pid_file.stem)
        pid_file.unlink()
    return stopped


class Supervisor:
    """Runs components on one home. It takes over the lock; call `run` from the main thread."""

    def __init__(
        self,
        home: Path,
        components: Sequence[Component],
        url: str,
        lock: HomeLock,
        on_report: Callable[[str, str], None] = lambda component, message: None,
        on_state: Callable[[PlatformState], None] = lambda state: None,
        policy: RestartPolicy | None = None,
        settings: Mapping[str, object] | None = None,
        forks: Mapping[str, ServiceFork] | None = None,
    ) -> None:
        self.home = home
        self.url = url
        self._settings = dict(settings or {})
        self._forks = forks or {}
        self._lock = lock
        self._on_report = on_report
        self._on_state = on_state
        self._policy = policy or RestartPolicy()
        # A plain number: an Event has a lock, which a signal handler must not wait for.
        self._stop_requests = 0
        self._started_at = time.time()
        self._identity = identify(os.getpid())
        self._written_components: tuple[ComponentState, ...] = ()
        self._next_state_write_at = 0.0
        self._next_rotation_at = 0.0
        self._last_file_error: str | None = None
        self._pool = ThreadPoolExecutor(max_workers=2 * len(components) + 2, thread_name_prefix="component")
        self._watchers = {
            component.name: self._create_watcher(component, self._pool) for component in components
        }

    def request_stop(self) -> None:
        """Stop all components in order; a second request kills them. Safe in a signal handler."""
        self._stop_requests += 1

    def run(self) -> None:
        """Keep all components up until `request_stop`. Raises ComponentFailed if one cannot start."""
        try:
            while self._stop_requests == 0:
                now = time.monotonic()
                for watcher in self._watchers.values():
                    watcher.tick(now, self._dependencies_up(watcher.component))
                self._write_state_and_rotate_logs(now)
                for watcher in self._watchers.values():
                    if watcher.fatal_failure:
                        self._write_log(watcher.fatal_failure, logging.CRITICAL)
                        raise ComponentFailed(watcher.fatal_failure)
                all_up = all(watcher.state is RunState.UP for watcher in self._watchers.values())
                time.sleep(TICK_UP_INTERVAL_S if all_up else TICK_INTERVAL_S)
        finally:
            self._stop_all()

    @property
    def state(self) -> PlatformState:
        assert self._identity is not None
        components = tuple(
            watcher.component_state()
            for watcher in self._watchers.values()
            if not isinstance(watcher, OneShotTaskWatcher)
        )
        return PlatformState(
            supervisor=self._identity,
            home=str(self.home),
            url=self.url,
            written_at=time.time(),
            started_at=self._started_at,
            components=components,
            settings=self._settings,
        )

    def _create_watcher(self, component: Component, pool: Executor) -> ComponentWatcher:
        match component:
            case Program():
                fork = self._forks.get(component.name)
                return ProgramWatcher(component, self.home / "run", pool, self._report, self._policy, fork)
            case ExternalServer():
                return ExternalServerWatcher(component, pool, self._report, self._policy)
            case OneShotTask():
                return OneShotTaskWatcher(component, pool, self._report, self._policy)
            case _:
                raise TypeError(f"No watcher exists for {component.name}, a {type(component).__name__}")

    def _dependencies_up(self, component: Component) -> bool:
        """Return whether all its dependencies are up, ignoring those that this supervisor does not run."""
        dependencies = (self._watchers[name] for name in component.depends_on if name in self._watchers)
        return all(watcher.state is RunState.UP for watcher in dependencies)

    def _report(self, component: str, message: str, level: int) -> None:
        self._on_report(component, message)
        self._write_log(message, level)

    def _write_log(self, message: str, level: int) -> None:
        with self._report_file_errors(), (self.home / "logs" / "supervisor.log").open("a") as log:
            log.write(format_line(level, "penstock.supervisor", message))

    @contextmanager
    def _report_file_errors(self) -> Iterator[None]:
        """Report a failed write instead of raising: on a full disk the supervisor must keep working."""
        try:
            yield
        except OSError as error:
            message = explain_os_error("write the supervisor's files", error, self.home)
            if message != self._last_file_error:
                self._on_report("supervisor", message)
            self._last_file_error = message

    def _write_state_and_rotate_logs(self, now: float) -> None:
        state = self.state
        if state.components != self._written_components or now >= self._next_state_write_at:
            with self._report_file_errors():
                write_state(self.home, state)
            self._written_components = state.components
            self._next_state_write_at = now + STATE_WRITE_INTERVAL_S
            self._on_state(state)
        if now >= self._next_rotation_at:
            with self._report_file_errors():
                for log in (self.home / "logs").glob("*.log"):
                    logs.rotate(log)
            self._next_rotation_at = now + LOG_ROTATION_INTERVAL_S

    def _stop_all(self) -> None:
        """Stop the programs level by level, starting with those that no other one depends on."""
        programs = [watcher for watcher in self._watchers.values() if isinstance(watcher, ProgramWatcher)]
        while programs:
            needed = {name for watcher in programs for name in self._all_dependencies(watcher.component)}
            level = [watcher for watcher in programs if watcher.component.name not in needed]
            pending_stops = {future for watcher in level if (future := watcher.begin_stop())}
            while pending_stops:
                pending_stops = wait(pending_stops, timeout=0.1).not_done
                with self._report_file_errors():
                    write_state(self.home, self.state)
                self._on_state(self.state)
                if self._stop_requests > 1:
                    for watcher in programs:
                        watcher.kill()
            for watcher in level:
                watcher.finish_stop()
                programs.remove(watcher)
        self._on_state(self.state)
        self._pool.shutdown(wait=True)
        for component in [watcher.component for watcher in self._watchers.values()]:
            component.close()
        state_path(self.home).unlink(missing_ok=True)
        self._lock.close()

    def _all_dependencies(self, component: Component) -> set[str]:
        direct = {name for name in component.depends_on if name in self._watchers}
        return direct.union(*(self._all_dependencies(self._watchers[name].component) for name in direct))
