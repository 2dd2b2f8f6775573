"""The interface between the supervisor and the components of the platform.

A component reports whether it works. A program is a component that runs on this machine: it knows its files,
its command line and the causes of its failures. Components never restart themselves; the supervisor does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar

from penstock.embedded.supervision import failures
from penstock.embedded.supervision.process import Child, Command, process_mark, spawn, stop
from penstock.embedded.supervision.service_fork import ServiceFork
from penstock.errors import ComponentFailed

_PROBE_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Health:
    """The result of one probe. `reason` explains a probe that is not `ok`.

    `busy` means that the component is alive and making progress (recovering, loading its data), so an expired
    start timeout is no reason to give up on it.
    """

    ok: bool
    reason: str = ""
    busy: bool = False


HEALTHY = Health(True)


class Component(ABC):
    """A process or server that the platform consists of."""

    name: str
    depends_on: tuple[str, ...] = ()
    """Names of the components that must be up before this one starts."""
    required: bool = True
    """Whether the platform is useless without it: if it cannot start, the platform stops."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The address to show to users, never with a password."""

    @abstractmethod
    def probe(self) -> Health:
        """Check whether the component works. Blocks for a few seconds at most and never raises."""

    def close(self) -> None:  # noqa: B027 - most components keep nothing open
        """Close the connection that probes use, if any."""


class Program(Component):
    """A component that runs on this machine. Instances hold settings; the supervisor owns the process."""

    start_timeout_s: ClassVar[float] = 30.0
    stop_timeout_s: ClassVar[float] = 10.0
    hang_timeout_s: ClassVar[float] = 60.0
    """The supervisor restarts a program that fails its probes this long while its dependencies are up."""
    starts_early: ClassVar[bool] = False
    """Whether it loads its code side by side with its dependencies; it has to call `wait_for_start`."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @abstractmethod
    def prepare(self) -> str | None:
        """Create the files the program needs; the supervisor calls it before every start.

        Returns a note to show to the user, if any. Raises ComponentFailed when the program cannot run here.
        """

    @abstractmethod
    def command(self) -> Command:
        """Return the command that runs the prepared program."""

    def explain_exit(self, exit_code: int, output: str) -> str:
        """Explain why the program ended, from its exit code and the end of its output."""
        return failures.explain_exit(self.name, exit_code, output)

    def explain_not_ready(self, health: Health) -> str:
        return f"{self.name} did not become ready within {self.start_timeout_s:.0f} s: {health.reason}"

    @property
    def log(self) -> Path:
        return self.home / "logs" / f"{self.name}.log"

    @property
    def mark(self) -> str:
        return process_mark(self.home, self.name)


def start(program: Program, *, waits: bool = False, fork: ServiceFork | None = None) -> Child:
    """Run a prepared program and append its output to its log. One that waits needs `Child.let_start`."""
    program.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return spawn(replace(program.command(), waits=waits), program.log, program.mark, fork)


@contextmanager
def running(program: Program) -> Iterator[Child]:
    """Run one program without a supervisor: yield when it is healthy, stop it at the end."""
    program.prepare()
    child = start(program)
    try:
        wait_until_healthy(program, child)
        program.close()
        yield child
    finally:
        program.close()
        stop(child, program.stop_timeout_s)


def wait_until_healthy(program: Program, child: Child) -> None:
    """Return when the probe succeeds. Raises ComponentFailed when the child exits or the start times out."""
    deadline = monotonic() + program.start_timeout_s
    while True:
        if child.exit_code is not None:
            raise ComponentFailed(program.explain_exit(child.exit_code, child.read_output()))
        health = program.probe()
        if health.ok:
            return
        if monotonic() > deadline and not health.busy:
            raise ComponentFailed(program.explain_not_ready(health))
        sleep(_PROBE_INTERVAL_S)
