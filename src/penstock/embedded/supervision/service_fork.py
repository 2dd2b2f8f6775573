"""Fork the services of the platform from the supervisor, which has imported much of what they need.

A service that starts from nothing imports the same packages again: 37 MB of memory and 0.2 s of CPU time
each. So the supervisor forks them before it has a thread, and each fork waits until it gets its command.
The command replaces environment, directory and output, as a start from nothing would. Later starts are starts
from nothing, because the supervisor has threads by then. Linux only.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from setproctitle import setproctitle

from penstock.embedded.supervision.death_signal import request_death_signal
from penstock.forked_process import (
    can_fork,
    close_files_from,
    replace_environment,
    reset_signals,
    run_and_exit,
)

_POLL_S = 0.02
_FIRST_OWN_FILE = 3


@dataclass(frozen=True, slots=True)
class ForkCommand:
    """What a fork is to run: `python -m` with these arguments, the first of which names the module."""

    module_arguments: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    log: str
    death_signal: int

    def to_line(self) -> bytes:
        """Return it as a line of ASCII: an environment may hold bytes that are no text."""
        return json.dumps(asdict(self)).encode() + b"\n"


class ServiceFork:
    """A fork of this process that waits for its command. It is used as subprocess.Popen is."""

    def __init__(self) -> None:
        read_end, write_end = os.pipe()
        parent_pid = os.getpid()
        sys.stdout.flush()  # the fork must not write it again
        self.pid = os.fork()
        if self.pid == 0:
            run_and_exit(lambda: _run_command(read_end, parent_pid))
        os.close(read_end)
        self.stdin = os.fdopen(write_end, "wb", buffering=0)
        self._exit_code: int | None = None
        self._wait_lock = threading.Lock()

    def run(self, command: ForkCommand) -> None:
        """Tell the fork what to run. Its standard input ends when `stdin` is closed here.

        Raises BrokenPipeError if it has ended.
        """
        rest = memoryview(command.to_line())
        try:
            while rest:  # a signal may interrupt the write of a large environment
                rest = rest[self.stdin.write(rest) :]
        except BrokenPipeError:
            self.discard()
            raise

    def discard(self) -> None:
        """End a fork that got no command."""
        self.stdin.close()
        self.wait()

    def poll(self) -> int | None:
        """Return None while it runs, otherwise its exit code, negative for the signal that terminated it."""
        with self._wait_lock:
            if self._exit_code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._exit_code = os.waitstatus_to_exitcode(status)
            return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (exit_code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
            time.sleep(_POLL_S)
        return exit_code

    def send_signal(self, number: int) -> None:
        with self._wait_lock:  # a process that was waited for may have passed on its pid
            if self._exit_code is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_services(names: Iterable[str]) -> dict[str, ServiceFork]:
    """Return a fork of this process for each service; none where forking is impossible or unsafe."""
    if not can_fork():
        return {}
    gc.collect()
    gc.freeze()  # the garbage collector must not write to the memory that all forks share
    return {name: ServiceFork() for name in names}


def _run_command(read_end: int, parent_pid: int) -> None:
    """Wait for a command in a fork, and run it as a process that was started from nothing would."""
    os.setpgid(0, 0)
    request_death_signal(signal.SIGKILL, parent_pid)
    reset_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(read_end, 0)
    close_files_from(_FIRST_OWN_FILE)
    sys.stdin = os.fdopen(0, closefd=False)
    line = sys.stdin.readline()
    if not line:
        return  # the supervisor has ended, or starts the service in another way
    command = ForkCommand(**json.loads(line))
    request_death_signal(command.death_signal, parent_pid)
    _redirect_output(Path(command.log))
    os.chdir(command.directory)
    # Before the environment changes: the title needs the place where the kernel put it.
    setproctitle(shlex.join((sys.executable, "-m", *command.module_arguments)))
    replace_environment(command.environment)
    sys.argv = list(command.module_arguments)
    try:
        runpy.run_module(command.module_arguments[0], run_name="__main__", alter_sys=True)
    finally:
        # What Python does at the end of a process.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def _redirect_output(log: Path) -> None:
    log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number in (1, 2):
        os.dup2(log_file, number)
    os.close(log_file)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
