"""The supervisor: brings parts up in order, keeps them up, and takes them down without a trace.

Guarantees:
- one supervisor per home, by a lock the kernel releases when its process ends, however it ends;
- a part starts when everything it needs is up, and stops before anything it needs does;
- when the supervisor itself is killed, the kernel signals its children (Linux), and the next start ends
  whatever is still there, by pid and beginning, never by name;
- after `run` returns, no process that it started is left.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from penstock.embedded.servers.external import ExternalServer
from penstock.embedded.supervision import logs
from penstock.embedded.supervision.component import Component, Program
from penstock.embedded.supervision.failures import from_os_error
from penstock.embedded.supervision.one_shot import OneShotTask, OneShotTaskWatcher
from penstock.embedded.supervision.process import kill_marked_processes, process_mark, stop_orphan
from penstock.embedded.supervision.process_identity import identify, read_pid_file
from penstock.embedded.supervision.state import (
    ComponentState,
    PlatformState,
    State,
    read_state,
    state_path,
    write_state,
)
from penstock.embedded.supervision.watcher import (
    ComponentWatcher,
    ExternalServerWatcher,
    ProgramWatcher,
    Report,
)
from penstock.errors import ComponentFailed

TICK_S = 0.05
STATE_S = 1.0
ROTATE_S = 10.0
STRAY_STOP_S = 10.0


class AlreadyRunning(ComponentFailed):
    """Another supervisor holds this home."""

    code = "already_running"


def make_home(home: Path) -> None:
    """Make the home and its directories: private ones, in a home that lets the user of PostgreSQL pass."""
    if not home.exists():
        home.mkdir(parents=True)
        if os.geteuid() == 0:
            home.chmod(0o755)
    for directory in (home / "run", home / "logs"):
        directory.mkdir(mode=0o700, exist_ok=True)


class HomeLock:
    """The right to run on a home. Held until closed, or until the process ends in any way."""

    def __init__(self, home: Path) -> None:
        try:
            make_home(home)
            self._file: IO[str] = (home / "run" / "lock").open("a")
        except OSError as error:
            raise ComponentFailed(from_os_error("preparing PENSTOCK_HOME", error, home)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            running = read_state(home)
            where = f" at {running.url} (pid {running.supervisor.pid})" if running else ""
            raise AlreadyRunning(
                f"Penstock already runs on {home}{where}: `penstock status` shows it; to run a second one, "
                "choose another PENSTOCK_HOME and PENSTOCK_PORT"
            ) from None

    def close(self) -> None:
        self._file.close()


def stop_orphans(home: Path) -> list[str]:
    """End what an earlier supervisor of this home left behind; returns the names of those parts.

    Call it with the home's lock held. Only processes that are provably ours are touched: the very ones the
    pid files name, and those that carry this home's mark.
    """
    ended = []
    for pid_file in sorted((home / "run").glob("*.pid")):
        identity = read_pid_file(pid_file)
        # PostgreSQL takes SIGTERM for "when all clients have left"; SIGINT means now, in order.
        gently = signal.SIGINT if pid_file.stem == "postgres" else signal.SIGTERM
        found = identity is not None and stop_orphan(identity, gently, STRAY_STOP_S)
        found |= kill_marked_processes(process_mark(home, pid_file.stem)) > 0
        if found:
            ended.append(pid_file.stem)
        pid_file.unlink()
    return ended


class Supervisor:
    """Runs parts on one home. Give it the lock; call `run` from the main thread."""

    def __init__(
        self,
        home: Path,
        parts: Sequence[Component],
        url: str,
        lock: HomeLock,
        report: Report = lambda part, words: None,
        refresh: Callable[[PlatformState], None] = lambda state: None,
    ) -> None:
        self.home = home
        self.url = url
        self._lock = lock
        self._tell = report
        self._refresh = refresh
        # A plain number: an Event has a lock, which a signal handler must not wait for.
        self._stop_requests = 0
        self._started_at = time.time()
        self._identity = identify(os.getpid())
        self._written: tuple[ComponentState, ...] = ()
        self._next_state = 0.0
        self._next_rotation = 0.0
        self._file_trouble: str | None = None
        self._pool = ThreadPoolExecutor(max_workers=2 * len(parts) + 2, thread_name_prefix="part")
        self._watches = {part.name: self._watch(part, self._pool) for part in parts}

    def request_stop(self) -> None:
        """Stop everything in order; asked again, kill what is still there. Safe in a signal handler."""
        self._stop_requests += 1

    def run(self) -> None:
        """Keep the parts up until `request_stop`. Raises ComponentFailed when the platform cannot come up."""
        try:
            while self._stop_requests == 0:
                now = time.monotonic()
                for watch in self._watches.values():
                    watch.tick(now, self._needs_up(watch.part))
                self._housekeeping(now)
                for watch in self._watches.values():
                    if watch.given_up:
                        raise ComponentFailed(watch.given_up)
                time.sleep(TICK_S)
        finally:
            self._take_down()

    @property
    def state(self) -> PlatformState:
        assert self._identity is not None
        rows = tuple(w.row() for w in self._watches.values() if not isinstance(w, OneShotTaskWatcher))
        return PlatformState(self._identity, str(self.home), self.url, time.time(), self._started_at, rows)

    def _watch(self, part: Component, pool: Executor) -> ComponentWatcher:
        match part:
            case Program():
                return ProgramWatcher(part, self.home / "run", pool, self._report)
            case ExternalServer():
                return ExternalServerWatcher(part, pool, self._report)
            case OneShotTask():
                return OneShotTaskWatcher(part, pool, self._report)
            case _:
                raise TypeError(f"{part.name} is of a kind that cannot be watched")

    def _needs_up(self, part: Component) -> bool:
        """Whether all it needs is up; a need that is not part of this platform is somebody else's matter."""
        needed = (self._watches[name] for name in part.needs if name in self._watches)
        return all(watch.state is State.UP for watch in needed)

    def _report(self, part: str, words: str) -> None:
        self._tell(part, words)
        with self._files_may_fail(), (self.home / "logs" / "supervisor.log").open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}\n")

    @contextmanager
    def _files_may_fail(self) -> Iterator[None]:
        """A full disk must not end the supervisor, which repairs everything else once there is room again."""
        try:
            yield
        except OSError as error:
            words = from_os_error("keeping its own files", error, self.home)
            if words != self._file_trouble:
                self._tell("supervisor", words)
            self._file_trouble = words

    def _housekeeping(self, now: float) -> None:
        state = self.state
        if state.parts != self._written or now >= self._next_state:
            with self._files_may_fail():
                write_state(self.home, state)
            self._written = state.parts
            self._next_state = now + STATE_S
            self._refresh(state)
        if now >= self._next_rotation:
            with self._files_may_fail():
                for log in (self.home / "logs").glob("*.log"):
                    logs.rotate(log)
            self._next_rotation = now + ROTATE_S

    def _take_down(self) -> None:
        """Stop the parts level by level, those that nobody needs first, and wait for each level."""
        programs = [watch for watch in self._watches.values() if isinstance(watch, ProgramWatcher)]
        while programs:
            needed = {name for watch in programs for name in self._all_needs(watch.part)}
            level = [watch for watch in programs if watch.part.name not in needed]
            ending = {future for watch in level if (future := watch.begin_stop())}
            while ending:
                ending = wait(ending, timeout=0.1).not_done
                with self._files_may_fail():
                    write_state(self.home, self.state)
                self._refresh(self.state)
                if self._stop_requests > 1:
                    for watch in programs:
                        watch.kill()
            for watch in level:
                watch.stopped()
                programs.remove(watch)
        self._refresh(self.state)
        self._pool.shutdown(wait=True)
        state_path(self.home).unlink(missing_ok=True)
        self._lock.close()

    def _all_needs(self, part: Component) -> set[str]:
        direct = {name for name in part.needs if name in self._watches}
        return direct.union(*(self._all_needs(self._watches[name].part) for name in direct))
