"""Start and stop child processes so that none of them outlives the supervisor.

Every child leads its own process group, carries a mark in its environment that its own children inherit, and
asks the kernel (on Linux) for a signal when its parent dies. The kernel watches the parent's *thread*: call
`spawn` from a thread that lives as long as the child should.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import psutil

from penstock.config import PREFIX
from penstock.embedded.supervision.death_signal import request_death_signal
from penstock.embedded.supervision.process_identity import ProcessIdentity, identify
from penstock.embedded.supervision.service_fork import ForkCommand, ServiceFork
from penstock.errors import ComponentFailed
from penstock.log_format import FORMAT_VARIABLE
from penstock.start_gate import GATE_VARIABLE

MARK_VARIABLE = "SUPERVISED_BY_PENSTOCK"
"""Environment variable `<home>#<component>` that identifies our descendants after their leader is gone."""

MAX_OUTPUT_BYTES = 8192

_POLL_S = 0.02
_KILL_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged user that runs a child."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run. The child gets `env`, and this process's environment without Penstock's variables.

    These hold secrets, which servers do not need; Penstock's own commands get all settings in `env`.
    """

    argv: tuple[str, ...]
    """The program and its arguments. A fork runs Python modules only: sys.executable, `-m` and the module."""
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals | None = None
    """The signal the kernel sends when the parent dies; None means the stop signal."""
    waits: bool = False
    """Whether the child waits until `Child.let_start` before it uses its servers."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running child: the leader of its own process group."""

    process: subprocess.Popen[bytes] | ServiceFork
    identity: ProcessIdentity
    mark: str
    stop_signal: signal.Signals
    log: Path
    log_offset: int
    """Size of the log when the child started."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs; otherwise its exit code, negative for the signal that terminated it."""
        return self.process.poll()

    def let_start(self) -> None:
        """Tell a child that waits that its servers run. May be called twice."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def read_output(self, max_bytes: int = MAX_OUTPUT_BYTES) -> str:
        """Return the end of this child's output, without that of earlier children in the same log."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            start = self.log_offset if self.log_offset <= end else 0
            file.seek(max(start, end - max_bytes))
            return file.read().decode(errors="replace")


def process_mark(home: Path, component: str) -> str:
    return f"{home}#{component}"


def spawn(command: Command, log: Path, mark: str, fork: ServiceFork | None = None) -> Child:
    """Start the command and append its output to `log`. Raises ComponentFailed when it cannot be executed.

    With a fork, which waits for a Python module, the fork runs it.
    """
    environment = _build_environment(command, mark)
    with log.open("ab") as output:
        log_offset = output.tell()
        process = (
            _tell_fork(fork, command, environment, log) if fork else _execute(command, environment, output)
        )
    identity = identify(process.pid) or ProcessIdentity(process.pid, "already gone")
    return Child(process, identity, mark, command.stop_signal, log, log_offset)


def _build_environment(command: Command, mark: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) or name == FORMAT_VARIABLE
    }
    gate = {GATE_VARIABLE: "1"} if command.waits else {}
    return {**inherited, **command.env, **gate, MARK_VARIABLE: mark}


def _tell_fork(fork: ServiceFork, command: Command, environment: Mapping[str, str], log: Path) -> ServiceFork:
    module_arguments = command.argv[command.argv.index("-m") + 1 :]
    death_signal = int(command.death_signal or command.stop_signal)
    fork.run(ForkCommand(module_arguments, str(command.cwd), environment, str(log), death_signal))
    return fork


def _execute(command: Command, environment: Mapping[str, str], output: BinaryIO) -> subprocess.Popen[bytes]:
    account = command.account
    parent_pid = os.getpid()
    death_signal = int(command.death_signal or command.stop_signal)
    try:
        return subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=environment,
            stdin=subprocess.PIPE if command.waits else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            # Runs after the change of user, which would have cleared the death signal.
            preexec_fn=lambda: request_death_signal(death_signal, parent_pid),
        )
    except OSError as error:
        raise ComponentFailed(f"Cannot run {command.argv[0]}: {error.strerror or error}") from error


def stop(child: Child, timeout_s: float) -> bool:
    """Stop the child and all its descendants, and wait until they are gone.

    The leader gets its stop signal and `timeout_s` to finish; after that this kills everything. May be called
    twice. Returns whether the leader finished before the timeout.
    """
    if child.exit_code is None:
        child.process.send_signal(child.stop_signal)
    child.let_start()  # a child that waits may handle the signal afterwards
    try:
        child.process.wait(timeout_s)
        finished_in_time = True
    except subprocess.TimeoutExpired:
        finished_in_time = False
        child.process.kill()
        child.process.wait()
    kill_marked_processes(child.mark)
    return finished_in_time


def stop_orphan(identity: ProcessIdentity, stop_signal: signal.Signals, timeout_s: float) -> bool:
    """Stop a process that an earlier supervisor left running. Returns whether it was running.

    Signals only the process that the identity describes, never a later one with the same pid.
    """
    if not identity.is_alive:
        return False
    os.kill(identity.pid, stop_signal)
    os.kill(identity.pid, signal.SIGCONT)  # a suspended process could not act on it
    deadline = time.monotonic() + timeout_s
    while identity.is_alive:
        if time.monotonic() > deadline:
            os.kill(identity.pid, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(_POLL_S)
    return True


def command_words(process: psutil.Process) -> list[str]:
    """Return the command line of a process. A fork shows one text and empty words."""
    return " ".join(process.cmdline()).split()


def find_marked_processes(mark: str) -> list[psutil.Process]:
    """Return every running process that has this mark in its environment.

    This misses servers that overwrite their environment to show a title (PostgreSQL, Valkey), and forks. They
    end with their leader, which the pid file names.
    """
    marked = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.environ().get(MARK_VARIABLE) != mark:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                marked.append(process)
        except (psutil.Error, OSError):
            continue
    return marked


def kill_marked_processes(mark: str) -> int:
    """Kill every process with this mark, wait until none remains, and return their number."""
    total = 0
    for _ in range(_KILL_ROUNDS):
        marked = find_marked_processes(mark)
        if not marked:
            break
        total += len(marked)
        for process in marked:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(marked, timeout=1)
    return total
