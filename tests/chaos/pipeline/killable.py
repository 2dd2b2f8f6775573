"""Servers and a pipeline process that tests can kill and restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
from tests.chaos.pipeline.rounds import TIMEOUT_S
from tests.deadlines import deadline_s
from tests.waiting import wait_until

JOB_SCRIPT = Path(__file__).with_name("killed_job.py")
ROOT = Path(__file__).parents[3]
PYTHON_PATH = os.pathsep.join((str(ROOT), str(ROOT / "src")))


class KillableServer:
    """An embedded server that can be killed and restarted on the same data."""

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
    """The pipeline in its own process and home. All processes that it starts carry its mark."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.orders = home / "orders"
        self.orders.mkdir(exist_ok=True)
        self._home = home
        self.log = home / "pipeline.log"
        self._mark = f"{home}#pipeline"
        own_variables = {"PENSTOCK_HOME": str(home), "PYTHONPATH": PYTHON_PATH, MARK_VARIABLE: self._mark}
        self._environment = {**os.environ, **own_variables, **environment}
        self._redis_url = environment["PENSTOCK_REDIS_URL"]

    def with_environment(self, changes: Mapping[str, str]) -> KillableJob:
        """Return the pipeline of the same home with other settings."""
        return KillableJob(self._home, {**self._environment, **changes})

    def order_kill(self, kill_point: str, victim: str | int) -> None:
        """Kill the victim the next time the pipeline reaches the kill point."""
        file = self.orders / ".order"
        file.write_text(str(victim))
        file.rename(self.orders / kill_point)

    def is_executed(self, kill_point: str) -> bool:
        """Return whether the kill at this point has happened."""
        return not (self.orders / kill_point).exists()

    def run_until_killed(self, *metrics: MetricDefinition) -> bool:
        """Run the pipeline for these metrics until it ends; returns whether it was killed.

        Waits until the processes of Spark have ended too.
        """
        process = self._start(metrics)
        try:
            wait_until(lambda: process.poll() is not None, TIMEOUT_S, "the pipeline ends")
            wait_until(lambda: not find_marked_processes(self._mark), TIMEOUT_S, "the processes of Spark end")
        finally:
            process.kill()
            kill_marked_processes(self._mark)
        return process.returncode == -signal.SIGKILL

    @contextmanager
    def running(self, *metrics: MetricDefinition) -> Iterator[None]:
        """Run the pipeline until the end of the block; then it must stop on SIGTERM."""
        process = self._start(metrics)
        try:
            yield
            process.terminate()
            assert process.wait(deadline_s(TIMEOUT_S)) == 0, self.log_tail()
        finally:
            process.kill()
            kill_marked_processes(self._mark)

    def log_tail(self) -> str:
        """Return the end of the log, for assertion messages."""
        return self.log.read_text(errors="replace")[-6000:]

    def has_no_lag(self) -> bool:
        """Return whether the heartbeat says that all entries are counted."""
        report = read_progress(self._redis_url)
        return report is not None and set(report["lag"].values()) == {0}

    def _start(self, metrics: tuple[MetricDefinition, ...]) -> subprocess.Popen[bytes]:
        names = [definition.name for definition in metrics]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(JOB_SCRIPT), str(self.orders), *names],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
