"""Deadlines of tests, which grow with the slowness of the machine.

The slowness is measured once per run, before the first test. Processes that the run starts, among them the
workers of pytest-xdist, read it from the environment. Timeouts that are the subject of a test do not grow.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import cache

SLOWNESS_VARIABLE = "TEST_SLOWNESS"
"""Environment variable with the slowness. A developer may set it, which skips the measurement."""

MAX_SLOWNESS = 10.0
GROWTH = 2.0
"""A busy machine delays a test, in which several processes take turns, more than the loop of one process."""

LOOP_PROGRAM = """
import time
def run_loop():
    started = time.perf_counter()
    number = 0
    for step in range(24_000_000):
        number ^= step
    return time.perf_counter() - started
print(run_loop())
"""
QUIET_LOOP_S = 0.6
"""How long the loop takes at most on an idle machine. A slower processor counts as slowness too."""

WAKE_UPS = 50
SLEEP_S = 0.002
QUIET_DELAY_S = 0.005
"""How late a sleeping process wakes up on average at most on an idle machine."""


def deadline_s(quiet_s: float) -> float:
    """Return the seconds to wait on this machine for what takes less than `quiet_s` on an idle one."""
    return quiet_s * slowness()


@cache
def slowness() -> float:
    """Return how many times slower than an idle machine this one is now, from 1 to `MAX_SLOWNESS`."""
    if SLOWNESS_VARIABLE not in os.environ:
        os.environ[SLOWNESS_VARIABLE] = f"{compare_with_idle(_time_loop(), _average_delay()):.1f}"
    return float(os.environ[SLOWNESS_VARIABLE])


def compare_with_idle(loop_s: float, delay_s: float) -> float:
    """Return the slowness, from the duration of the loop and the average delay of wake-ups."""
    ratio = max(1.0, loop_s / QUIET_LOOP_S, delay_s / QUIET_DELAY_S)
    return min(MAX_SLOWNESS, 1 + GROWTH * (ratio - 1))


def _time_loop() -> float:
    """Return how long the loop takes when one runs on every core.

    The tests keep all cores busy too. A single process would get the share of a core that others leave idle.
    """
    command = [sys.executable, "-I", "-S", "-c", LOOP_PROGRAM]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)
    ]
    return statistics.mean(float(process.communicate()[0]) for process in processes)


def _average_delay() -> float:
    started = time.perf_counter()
    for _ in range(WAKE_UPS):
        time.sleep(SLEEP_S)
    return (time.perf_counter() - started) / WAKE_UPS - SLEEP_S
