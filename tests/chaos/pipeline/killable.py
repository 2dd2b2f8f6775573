"""Servers and a pipeline that can be killed, and that come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from penstock.definitions import MetricDefinition
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import start, wait_until_healthy
from penstock.embedded.supervision.process import (
    MARK_VARIABLE,
    Child,
    find_marked_processes,
    kill_marked_processes,
    stop,
)
from penstock.streams.progress import read_progress
from tests.chaos.pipeline.rounds import PATIENCE_S
from tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("killed_job.py")
ROOT = Path(__file__).parents[3]


class KillableServer:
    """An embedded server whose death is expected and followed by a restart on the same data."""

    def __init__(self, program: Valkey | ClickHouse) -> None:
        program.prepare()
        self.program = program
        self.child: Child
        self.restart()

    @property
    def pid(self) -> int:
        return self.child.process.pid

    @property
    def is_dead(self) -> bool:
        return self.child.exit_code is not None

    def restart(self) -> None:
        self.child = start(self.program)
        wait_until_healthy(self.program, self.child)

    def stop(self) -> None:
        stop(self.child, self.program.stop_timeout_s)


class KillableJob:
    """The pipeline on a home of its own. Whatever it starts carries its mark, so it can be found."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.orders = home / "orders"
        self.orders.mkdir()
        self.log = home / "pipeline.log"
        self._mark = f"{home}#pipeline"
        own = {"PENSTOCK_HOME": str(home), "PYTHONPATH": str(ROOT), MARK_VARIABLE: self._mark}
        self._environment = {**os.environ, **environment, **own}
        self._redis_url = environment["PENSTOCK_REDIS_URL"]

    def order(self, seam: str, victim: str | int) -> None:
        """The next time the seam is reached, the victim dies."""
        written = self.orders / ".order"
        written.write_text(str(victim))
        written.rename(self.orders / seam)

    def carried_out(self, seam: str) -> bool:
        return not (self.orders / seam).exists()

    def dies(self, *metrics: MetricDefinition) -> bool:
        """Start it for these metrics; whether it was killed. By then Spark has followed it."""
        process = self._start(metrics)
        try:
            wait_until(lambda: process.poll() is not None, PATIENCE_S, "it dies")
            wait_until(lambda: not self._left(), PATIENCE_S, "Spark follows its driver")
        finally:
            process.kill()
            kill_marked_processes(self._mark)
        return process.returncode == -signal.SIGKILL

    @contextmanager
    def lives(self, *metrics: MetricDefinition) -> Iterator[None]:
        """It runs until the end of the block, and must then stop by itself when told to."""
        process = self._start(metrics)
        try:
            yield
            process.terminate()
            assert process.wait(PATIENCE_S) == 0, self.words()
        finally:
            process.kill()
            kill_marked_processes(self._mark)

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def nothing_waits(self) -> bool:
        """Whether its report says that all entries are counted."""
        report = read_progress(self._redis_url)
        return report is not None and set(report["lag"].values()) == {0}

    def _start(self, metrics: tuple[MetricDefinition, ...]) -> subprocess.Popen[bytes]:
        names = [definition.name for definition in metrics]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(SCRIPT), str(self.orders), *names],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _left(self) -> list[psutil.Process]:
        return [one for one in find_marked_processes(self._mark) if one.status() != psutil.STATUS_ZOMBIE]
