"""The wall clock of a process is stepped while it runs, and its monotonic clock is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from chaos.stepped_clock import SteppedClock, build_library, find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

PRINT_TIMES = """
import datetime, sys, time
for line in sys.stdin:
    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)
"""
SLACK_S = 30.0


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock.create(build_library(tmp_path), tmp_path / "clock")


@contextmanager
def time_printer(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PRINT_TIMES]
    with subprocess.Popen(
        command, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def read_times(process: subprocess.Popen[str]) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(text) for text in process.stdout.readline().split()]


@pytest.mark.parametrize("step_s", [3600.0, -3600.5])
def test_a_step_moves_the_wall_clock_alone(clock: SteppedClock, step_s: float) -> None:
    with time_printer(clock.environment) as process:
        for offset_s in (0.0, step_s, 0.0):
            clock.set_offset(offset_s)
            wall, local, monotonic = read_times(process)
            assert wall == pytest.approx(time.time() + offset_s, abs=SLACK_S)
            assert local == pytest.approx(wall, abs=SLACK_S)
            assert monotonic == pytest.approx(time.monotonic(), abs=SLACK_S)


def test_a_path_with_a_space_is_refused_because_no_library_in_it_can_be_preloaded(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="without spaces"):
        build_library(tmp_path / "with a space")


def test_the_processes_that_use_a_clock_are_known(clock: SteppedClock) -> None:
    with time_printer(clock.environment) as process:
        read_times(process)
        assert clock.is_used_by(psutil.Process(process.pid))
    assert not clock.is_used_by(psutil.Process())


def test_a_process_with_a_missing_file_keeps_its_clock(clock: SteppedClock, tmp_path: Path) -> None:
    with time_printer(clock.environment | {"STEPPED_CLOCK_FILE": str(tmp_path / "missing")}) as process:
        assert read_times(process)[0] == pytest.approx(time.time(), abs=SLACK_S)
