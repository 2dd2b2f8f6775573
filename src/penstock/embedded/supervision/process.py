"""Starting and ending a child process so that it cannot outlive its purpose.

Every child leads its own process group, carries a mark in its environment that its own children inherit, and
asks the kernel (on Linux) for a signal when its parent dies. The kernel watches the parent's *thread*:
`spawn` must be called from a thread that lives as long as the child should.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.embedded.supervision.process_identity import ProcessIdentity, identify
from penstock.errors import ComponentFailed

MARK_VARIABLE = "SUPERVISED_BY_PENSTOCK"
"""Environment variable `<home>#<part>` by which a descendant is known as ours when its leader is gone."""

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged user a child runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `env` is added to this process's environment."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals | None = None
    """What it gets when its parent dies; the stop signal unless given."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running child: leader of its own process group."""

    process: subprocess.Popen[bytes]
    identity: ProcessIdentity
    mark: str
    stop_signal: signal.Signals
    log: Path
    log_start: int

    @property
    def exit_code(self) -> int | None:
        """None while it runs; otherwise its exit code, negative for the signal that ended it."""
        return self.process.poll()

    def output(self, size: int = 8192) -> str:
        """The end of what this child wrote; nothing of what an earlier one left in the same log."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            start = self.log_start if self.log_start <= end else 0
            file.seek(max(start, end - size))
            return file.read().decode(errors="replace")


def process_mark(home: Path, part: str) -> str:
    return f"{home}#{part}"


def spawn(command: Command, log: Path, mark: str) -> Child:
    """Start the command with its output appended to `log`. Raises ComponentFailed when it cannot be executed."""
    account = command.account
    parent = os.getpid()
    prctl = _prctl()
    death_signal = int(command.death_signal or command.stop_signal)

    def in_the_child() -> None:
        # Runs after the change of user, which would have cleared the death signal.
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(125)

    with log.open("ab") as output:
        log_start = output.tell()
        try:
            process = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env={**os.environ, **command.env, MARK_VARIABLE: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                preexec_fn=in_the_child,
            )
        except OSError as error:
            raise ComponentFailed(f"{command.argv[0]} cannot be run: {error.strerror or error}") from error
    identity = identify(process.pid) or ProcessIdentity(process.pid, "already gone")
    return Child(process, identity, mark, command.stop_signal, log, log_start)


def stop(child: Child, deadline_s: float) -> bool:
    """End the child and whatever it started; wait until they are gone.

    The leader gets its stop signal and `deadline_s` to finish; after that everything is killed. May be
    called twice. Returns whether the leader finished by itself.
    """
    if child.exit_code is None:
        child.process.send_signal(child.stop_signal)
    try:
        child.process.wait(deadline_s)
        in_time = True
    except subprocess.TimeoutExpired:
        in_time = False
        child.process.kill()
        child.process.wait()
    kill_marked_processes(child.mark)
    return in_time


def stop_orphan(identity: ProcessIdentity, stop_signal: signal.Signals, deadline_s: float) -> bool:
    """End a process that an earlier supervisor left behind. Returns whether there was one.

    Only the very process the identity names is signalled, never a later one with the same pid.
    """
    if not identity.alive:
        return False
    os.kill(identity.pid, stop_signal)
    os.kill(identity.pid, signal.SIGCONT)  # a suspended process could not act on it
    until = time.monotonic() + deadline_s
    while identity.alive:
        if time.monotonic() > until:
            os.kill(identity.pid, signal.SIGKILL)
            until = float("inf")
        time.sleep(_POLL_S)
    return True


def find_marked_processes(mark: str) -> list[psutil.Process]:
    """Every process that carries this mark, found by its environment.

    Servers that overwrite their environment to show a title (PostgreSQL, Valkey) are not found this way: they
    end with their leader, which the pid file names.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK_VARIABLE) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def kill_marked_processes(mark: str) -> int:
    """Kill every process with this mark and wait until none is left; returns how many there were."""
    total = 0
    for _ in range(50):
        found = [process for process in find_marked_processes(mark) if process.status() != psutil.STATUS_ZOMBIE]
        if not found:
            break
        total += len(found)
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(found, timeout=1)
    return total


def _prctl() -> ctypes._NamedFuncPointer | None:
    if not sys.platform.startswith("linux"):
        return None
    # Looked up before the fork: nothing may be imported or loaded in the forked child.
    return ctypes.CDLL(None, use_errno=True).prctl
