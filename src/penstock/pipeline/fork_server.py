"""Fork the Python processes of Spark from the driver, which has imported all that they need.

Spark starts up to ten Python processes: one per query that plans, daemons, and the daemons' workers. One that
starts from nothing imports PySpark, PyArrow and the source again: most of a second of CPU time, and 50 to 80
MB. The server is forked from the driver while the driver has one thread. Its forks share the memory of all
imports, and need 2 to 15 MB of their own.

Spark runs the launcher (`worker_launcher`) as its Python. The launcher writes its process id to the server
and waits. The server forks a child, which takes over the launcher's standard streams, environment and
directory, and runs what the launcher was to run. The child ends with the launcher, the launcher with the
child, and all with the driver. Linux only, because it needs /proc and process file descriptors.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.forked_process import (
    can_fork,
    close_files_from,
    replace_environment,
    reset_signals,
    run_and_exit,
)
from penstock.pipeline.pandas_refusal import refuse_pandas

SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs to plan the batches of a Python source."""
DAEMON = "pyspark.daemon"
"""The module that Spark runs to fork workers; its argument is the module of the workers."""
PRELOADED_MODULES = (
    DAEMON,
    SOURCE_RUNNER,
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "penstock.pipeline.source.redis_streams",
)
STREAM_COPIES = 3
"""The launcher's standard streams, copied, are its file descriptors from this one."""


@dataclass(frozen=True, slots=True)
class ForkServer:
    """A running server: where launchers write to, and its process id."""

    requests: Path
    pid: int


@dataclass(slots=True)
class _Fork:
    pid: int
    exit_pipe: Path
    exit_fd: int
    """Open while the launcher runs: it reads until it gets the exit code, or until the server ends."""
    launcher_runs: bool = True
    runs: bool = True

    def handle_end(self) -> None:
        """Tell the launcher how the fork ended."""
        self.runs = False
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.launcher_runs:
            os.write(self.exit_fd, b"%d\n" % (status if status >= 0 else 128 - status))

    def handle_end_of_launcher(self) -> None:
        """End the fork too, if it still runs."""
        self.launcher_runs = False
        os.close(self.exit_fd)
        self.exit_pipe.unlink()
        if self.runs:
            os.kill(self.pid, signal.SIGTERM)


def start_fork_server(directory: Path, plan: Callable[[], None]) -> ForkServer | None:
    """Fork the server, which ends when this process ends; `plan` is what a process that plans runs.

    Returns None where forking is impossible or unsafe: then Spark starts its processes by itself. The threads
    that OpenBLAS and jemalloc start at their import are no danger: both libraries prepare for forks.
    """
    if not can_fork():
        return None
    for name in PRELOADED_MODULES:
        importlib.import_module(name)
    requests = directory / "fork-requests"
    os.mkfifo(requests, 0o600)
    life_read, life_write = os.pipe()
    gc.collect()
    gc.freeze()  # the garbage collector must not write to the memory that all forks share
    pid = os.fork()
    if pid == 0:
        run_and_exit(lambda: _Server(directory, requests, life_read, plan).run())
    os.close(life_read)
    os.set_inheritable(life_write, False)  # stays open until this process ends
    return ForkServer(requests, pid)


class _Server:
    """Serves requests in the forked process, which keeps no file of the driver open."""

    def __init__(self, directory: Path, requests: Path, life: int, plan: Callable[[], None]) -> None:
        self._directory = directory
        self._plan = plan
        self._life = os.dup2(life, 3)
        close_files_from(4)
        refuse_pandas()  # the driver may be a command that does not, such as a drain
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the driver ends Spark in order
        reset_signals()
        # Open for writing too, so that reads wait for the next launcher instead of returning an end.
        self._requests = os.open(requests, os.O_RDWR)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._life, selectors.EVENT_READ)
        self._selector.register(self._requests, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the driver ends."""
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._life:
                    return
                if key.fd == self._requests:
                    for line in os.read(self._requests, 4096).splitlines():
                        self._fork_for(int(line))
                else:
                    self._handle_end(key.fd, key.data)

    def _fork_for(self, launcher_pid: int) -> None:
        try:
            launcher_fd = os.pidfd_open(launcher_pid)
        except ProcessLookupError:
            return
        pid = os.fork()
        if pid == 0:
            run_and_exit(lambda: self._become(launcher_pid))
        exit_pipe = self._directory / f"exit-{launcher_pid}"
        # Open for reading too, so that it does not wait for the launcher.
        fork = _Fork(pid, exit_pipe, os.open(exit_pipe, os.O_RDWR))
        self._selector.register(launcher_fd, selectors.EVENT_READ, fork.handle_end_of_launcher)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, fork.handle_end)

    def _handle_end(self, fd: int, handle: Callable[[], None]) -> None:
        self._selector.unregister(fd)
        os.close(fd)
        handle()

    def _become(self, launcher_pid: int) -> None:
        """Run in a fork what the launcher was to run, with its streams, environment and directory."""
        process = Path("/proc", str(launcher_pid))
        for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)):
            fd = os.open(process / "fd" / str(STREAM_COPIES + number), flags)
            os.dup2(fd, number)
        close_files_from(3)
        variables = os.fsdecode((process / "environ").read_bytes()).split("\0")[:-1]
        replace_environment(dict(variable.split("=", 1) for variable in variables))
        os.chdir(process / "cwd")
        arguments = [argument.decode() for argument in (process / "cmdline").read_bytes().split(b"\0")[:-1]]
        module, *rest = arguments[arguments.index("-m") + 1 :]
        sys.argv = [module, *rest]
        if module == SOURCE_RUNNER:
            self._plan()
        else:
            importlib.import_module(module).manager()
