"""What every part of the platform offers the supervisor: prepare, command, probe, and words for failure.

A part knows how to run one server and how to tell whether it works. It never restarts anything itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar

from penstock.embedded import failures
from penstock.embedded.process import Child, Command, mark_of, spawn, stop
from penstock.errors import PartFailed


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of one probe; `reason` says in words what is wrong when `ok` is False."""

    ok: bool
    reason: str = ""


HEALTHY = Health(True)


class Part(ABC):
    """One server or service. Instances hold settings only; the running process belongs to the supervisor."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    start_deadline_s: ClassVar[float] = 30.0
    stop_deadline_s: ClassVar[float] = 10.0

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it listens, for people; never with a password."""

    @abstractmethod
    def prepare(self) -> str | None:
        """Make its files ready; called before every start. Returns a line worth telling the user, if any.

        Raises PartFailed saying in words why the part cannot run here.
        """

    @abstractmethod
    def command(self) -> Command:
        """What to run, once prepared."""

    @abstractmethod
    def probe(self) -> Health:
        """Ask the server itself whether it works. Blocks for two seconds at most and never raises."""

    def explain(self, exit_code: int, output: str) -> str:
        """Why it ended, in words, from its exit code and the end of its output."""
        return failures.explain(self.name, exit_code, output)


@contextmanager
def running(part: Part, log: Path) -> Iterator[Part]:
    """Run one part on its own, without a supervisor: yields once it is healthy, stops it at the end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    part.prepare()
    child = spawn(part.command(), log, mark_of(part.home, part.name))
    try:
        wait_until_healthy(part, child)
        yield part
    finally:
        stop(child, part.stop_deadline_s)


def wait_until_healthy(part: Part, child: Child) -> None:
    """Return once the probe succeeds. Raises PartFailed when the child ends or its deadline passes first."""
    until = monotonic() + part.start_deadline_s
    while True:
        if child.exit_code is not None:
            raise PartFailed(part.explain(child.exit_code, child.output()))
        health = part.probe()
        if health.ok:
            return
        if monotonic() > until:
            raise PartFailed(
                f"{part.name} did not become ready within {part.start_deadline_s:.0f} s: {health.reason}"
            )
        sleep(0.05)
