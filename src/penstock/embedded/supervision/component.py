"""What every part of the platform offers the supervisor.

A part can be asked whether it works. A program is a part that is run here: it knows its files, its command
line, and the words for its failures. Neither ever restarts anything itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar

from penstock.embedded.supervision import failures
from penstock.embedded.supervision.process import Child, Command, process_mark, spawn, stop
from penstock.errors import ComponentFailed


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of one probe; `reason` says in words what is wrong when `ok` is False.

    `busy` means it is alive and on its way (recovering, loading): time alone is no reason to give up on it.
    """

    ok: bool
    reason: str = ""
    busy: bool = False


HEALTHY = Health(True)


class Component(ABC):
    """Something the platform depends on. `needs` names the parts that must work before it."""

    name: str
    needs: tuple[str, ...] = ()
    required: bool = True
    """Whether the platform is of no use without it: if it cannot start, nothing does, with the reason."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it listens, for people; never with a password."""

    @abstractmethod
    def probe(self) -> Health:
        """Ask it whether it works. Blocks for two seconds or so at most, and never raises."""


class Program(Component):
    """A part that is run here. Instances hold settings; the running process belongs to the supervisor."""

    start_timeout_s: ClassVar[float] = 30.0
    stop_timeout_s: ClassVar[float] = 10.0
    hang_timeout_s: ClassVar[float] = 60.0
    """How long it may leave probes unanswered, while all it needs is up, before it is restarted."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @abstractmethod
    def prepare(self) -> str | None:
        """Make its files ready; called before every start. Returns a line worth telling the user, if any.

        Raises ComponentFailed saying in words why it cannot run here.
        """

    @abstractmethod
    def command(self) -> Command:
        """What to run, once prepared."""

    def explain(self, exit_code: int, output: str) -> str:
        """Why it ended, in words, from its exit code and the end of its output."""
        return failures.explain(self.name, exit_code, output)

    def not_ready(self, health: Health) -> str:
        return f"{self.name} did not become ready within {self.start_timeout_s:.0f} s: {health.reason}"

    @property
    def log(self) -> Path:
        return self.home / "logs" / f"{self.name}.log"

    @property
    def mark(self) -> str:
        return process_mark(self.home, self.name)


def start(program: Program) -> Child:
    """Run a prepared program, its output appended to its log."""
    program.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return spawn(program.command(), program.log, program.mark)


@contextmanager
def running(program: Program) -> Iterator[Child]:
    """Run one program on its own, without a supervisor: yields once it is healthy, stops it at the end."""
    program.prepare()
    child = start(program)
    try:
        wait_until_healthy(program, child)
        yield child
    finally:
        stop(child, program.stop_timeout_s)


def wait_until_healthy(program: Program, child: Child) -> None:
    """Return once the probe succeeds. Raises ComponentFailed when the child ends or its deadline passes first."""
    until = monotonic() + program.start_timeout_s
    while True:
        if child.exit_code is not None:
            raise ComponentFailed(program.explain(child.exit_code, child.output()))
        health = program.probe()
        if health.ok:
            return
        if monotonic() > until and not health.busy:
            raise ComponentFailed(program.not_ready(health))
        sleep(0.05)
