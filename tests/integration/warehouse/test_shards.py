"""A cluster with two shards counts and shows the same as one server.

One engine is both shards, so neither the network nor replicas are tested; see `two_shards`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pytest

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.errors import MigrationError, WarehouseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.pipeline.archive.rebuild import RebuildRefused, check_has_one_shard
from penstock.warehouse.clickhouse_client import INSERT_ONCE_SETTINGS, Warehouse, connect
from penstock.warehouse.distributed_tables import (
    distributed_statements,
    is_sharded,
    shard_database,
    sharding_keys,
)
from penstock.warehouse.environment_metrics import delete_environment_metrics
from penstock.warehouse.matrix.matrix_queries import MatrixReader, read_first_hour_s
from penstock.warehouse.matrix.queue_activity import read_activity
from penstock.warehouse.matrix.service_times import read_service_time
from penstock.warehouse.matrix.wait_queries import StepGrid, read_short_waits, read_window_percentiles
from penstock.warehouse.rejected_events import RejectedKey, count_kept, mark_replayed, read_kept
from penstock.warehouse.schema import REJECTED_TABLE, SET_ASIDE_TABLE, landing_table, tier_tables
from penstock.warehouse.schema_migrations import load_migrations, migrate
from penstock.warehouse.series.closed_percentiles import write_percentiles
from penstock.warehouse.series.completeness import read_loss_intervals, read_newest_event_s
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import (
    environment_series,
    known_queues,
    queue_is_known,
    queue_series,
)
from penstock.warehouse.tiers import FINE, HOUR, MINUTE
from penstock.warehouse.uncounted_events import read_uncounted_events
from tests.directories import memory_directory, temporary_directory
from tests.integration.warehouse.landing_rows import insert_rows, landing_row
from tests.integration.warehouse.two_shards import (
    CLUSTER,
    CLUSTER_WITHOUT_SECOND,
    DATABASE,
    SHARDS,
    WRITES,
    TwoShardClickHouse,
    TwoShardWarehouse,
    connect_inserts_to,
    create_two_shards,
    without_cluster,
)

NOW_S = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 1800
END = datetime.fromtimestamp(NOW_S, UTC)
QUEUES = [f"queue-{number}" for number in range(6)]
OTHER_SCOPE = Scope("acme", "shop", "staging")


class Servers(NamedTuple):
    server: Warehouse
    single: Warehouse
    sharded: Warehouse
    shards: list[Warehouse]

    @property
    def both(self) -> tuple[Warehouse, Warehouse]:
        return self.single, self.sharded


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with temporary_directory(memory_directory()) as home:
        server = TwoShardClickHouse(home, any_free_port())
        with running(server):
            yield server.url


def database_url(server_url: str, database: str) -> str:
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{database}"))


@pytest.fixture(scope="module")
def servers(server_url: str) -> Iterator[Servers]:
    """A migrated database of one server, and the same tables in two shards, with the same rows."""
    migrate(database_url(server_url, "single"))
    shards = {name: connect(database_url(server_url, name)) for name in SHARDS}
    server = connect(server_url)
    create_two_shards(server, shards)
    opened = Servers(
        server,
        connect(database_url(server_url, "single")),
        TwoShardWarehouse(database_url(server_url, DATABASE)),
        list(shards.values()),
    )
    for warehouse in opened.both:
        for number, rows in enumerate(landing_batches()):
            for _ in range(2):  # a repeated batch counts once
                insert_rows(warehouse, *rows, token=f"batch {number}")
    yield opened
    for warehouse in (server, *opened.both, *opened.shards):
        warehouse.close()


def landing_batches() -> list[list[dict[str, Any]]]:
    """Return batches with rows of all queues, a group and the environment, over the last 40 hours."""
    randomness = random.Random(11)

    def samples() -> tuple[int, ...]:
        return tuple(randomness.randrange(1, 5_000) for _ in range(randomness.randrange(4)))

    batches = []
    for age_s in (40 * 3600, 20 * 3600, *range(7_000, 0, -600)):
        rows = [landing_row(NOW_S - age_s, queue="", env_depth=age_s, env_running=2)]
        for queue in QUEUES:
            for scope in (DEFAULT_SCOPE, OTHER_SCOPE):
                time_s = NOW_S - age_s + randomness.randrange(200)
                names = {**scope._asdict(), "queue": queue}
                depth = randomness.randrange(100)
                rows.append(landing_row(time_s, **names, enqueued=randomness.randrange(9), depth=depth))
                waits, runs = samples(), samples()
                rows.append(
                    landing_row(
                        time_s, **names, group="billing", dequeued=2, acked=1, wait_ms=waits, run_ms=runs
                    )
                )
        batches.append(rows)
    return batches


def read_totals(warehouse: Warehouse, table: str) -> dict[str, Any]:
    [row] = warehouse.query(
        f"SELECT sum(events) AS events, sum(enqueued) AS enqueued, sum(wait_ms_count) AS waits, "
        f"max(seen_ms) AS seen FROM {table}"
    )
    return row


def test_a_repeated_insert_counts_once_in_every_tier_of_both_shards(servers: Servers) -> None:
    for table in tier_tables(QUEUE):
        single = read_totals(servers.single, table.name)
        assert single["events"] > 100
        assert read_totals(servers.sharded, table.name) == single
        per_shard = [read_totals(shard, table.name)["events"] for shard in servers.shards]
        assert min(per_shard) > 0
        assert sum(per_shard) == single["events"]


def test_clickhouse_divides_an_insert_by_queue(servers: Servers) -> None:
    rows = servers.sharded.query(f"SELECT slots FROM {shard_database(WRITES)}.parts")
    assert len(rows) == 2 * 2 * len(landing_batches())
    assert {tuple(row["slots"]) for row in rows} == {(0,), (1,)}
    queues = [
        {row["queue"] for row in shard.query("SELECT DISTINCT queue FROM queue_5s")}
        for shard in servers.shards
    ]
    assert queues[0] | queues[1] == set(QUEUES)
    environments = [
        shard.query("SELECT DISTINCT environment FROM queue_environment_1m") for shard in servers.shards
    ]
    assert environments[0]
    assert environments[1]


def read_series(warehouse: Warehouse) -> list[Any]:
    reader = SeriesReader(warehouse)
    results: list[Any] = []
    for period in ("1h", "24h", "30d"):
        request: dict[str, Any] = {"period": period, "end": END, "now_s": NOW_S + 7200}
        results.append(environment_series(reader, DEFAULT_SCOPE, **request).points)
        results.append(queue_series(reader, DEFAULT_SCOPE, QUEUES[0], group="billing", **request).points)
        results += [queue_series(reader, DEFAULT_SCOPE, queue, **request).points for queue in QUEUES[:3]]
    reader.close()
    return results


def store_percentiles(warehouse: Warehouse) -> None:
    for tier in (MINUTE, HOUR):
        write_percentiles(warehouse, QUEUE, tier, NOW_S // 3600 * 3600 - 3 * 3600, NOW_S)


def test_series_are_equal_before_and_after_percentiles_are_stored(servers: Servers) -> None:
    before = read_series(servers.single)
    assert any(point["latency"]["p99_wait_ms"] for point in before[0])
    assert read_series(servers.sharded) == before
    for warehouse in servers.both:
        store_percentiles(warehouse)
    assert read_series(servers.single) == before
    assert read_series(servers.sharded) == before


def test_stored_percentiles_cover_all_shards_and_are_stored_once(servers: Servers) -> None:
    def read_stored(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
        key = "organization, environment, bucket" + ("" if "environment" in table else ", queue, `group`")
        return warehouse.query(
            f"SELECT {key}, max(wait_ms_percentiles) AS wait_ms, max(run_ms_percentiles) AS run_ms "
            f"FROM {table} GROUP BY {key} HAVING wait_ms > 0 ORDER BY ALL"
        )

    def count_rows() -> list[int]:
        return [
            int(shard.query(f"SELECT countIf(wait_ms_percentiles > 0) AS stored FROM {table}")[0]["stored"])
            for shard in servers.shards
            for table in tables
        ]

    tables = [table.name for table in tier_tables(QUEUE) if table.tier.stores_percentiles]
    for warehouse in servers.both:
        store_percentiles(warehouse)
    for table in tables:
        single = read_stored(servers.single, table)
        assert single
        assert read_stored(servers.sharded, table) == single
    rows_before = count_rows()
    assert sum(rows_before) > 100
    store_percentiles(servers.sharded)
    assert count_rows() == rows_before


def test_matrices_and_other_queries_of_all_queues_are_equal(servers: Servers) -> None:
    def read_all(warehouse: Warehouse) -> dict[str, Any]:
        parameters = {**DEFAULT_SCOPE._asdict(), "groups": ["billing"]}
        grid = StepGrid(MINUTE, NOW_S // 60 * 60, 300, 24)
        matrix = MatrixReader(warehouse, DEFAULT_SCOPE, groups=["billing"]).read(
            FINE, NOW_S // 300 * 300, 300, 12
        )
        order = sorted(range(len(matrix.subjects)), key=lambda index: matrix.subjects[index])
        return {
            "matrix": {
                "subjects": [matrix.subjects[index] for index in order],
                "enqueued": matrix.sums["enqueued"][order].tolist(),
                "depth": matrix.gauges["depth"].last[order].tolist(),
            },
            "first hour": read_first_hour_s(warehouse, DEFAULT_SCOPE, NOW_S),
            "activity": read_activity(warehouse, DEFAULT_SCOPE, NOW_S),
            "service time": read_service_time(warehouse, DEFAULT_SCOPE, QUEUES[0], "billing", NOW_S),
            "known": (known_queues(warehouse, DEFAULT_SCOPE), queue_is_known(warehouse, DEFAULT_SCOPE, "x")),
            "newest": read_newest_event_s(warehouse, QUEUE),
            "percentiles": {
                key: {subject: str(values) for subject, values in columns.items()}  # NaN differs from NaN
                for key, columns in read_window_percentiles(warehouse, parameters, grid, [3, 12], 4).items()
            },
            "short waits": {
                subject: values.tolist()
                for subject, values in read_short_waits(warehouse, parameters, grid, [1_000.0]).items()
            },
        }

    single, sharded = read_all(servers.single), read_all(servers.sharded)
    for name, expected in single.items():
        assert sharded[name] == expected, name


def test_rejected_and_lost_events_are_equal_and_replays_replace_them(servers: Servers) -> None:
    times = pa.array([NOW_S - 90, NOW_S - 60, NOW_S - 30, NOW_S], pa.timestamp("s", "UTC"))
    streams = [QUEUE.stream_keys[number % 2] for number in range(4)]
    shared = {"metric": pa.repeat("queue", 4), "stream": streams, "at": times}
    set_aside = {"began_at": times, "events": pa.array([1, 2, 3, 4], pa.uint64()), "example": list("abcd")}
    set_aside["reason"] = pa.array(["dropped", "unreadable", "unreadable", "trimmed"])
    rejected = {name: [f"{name}-{number}" for number in range(4)] for name in ("entry", "text", "fields")}
    rejected |= {"reason": ["unreadable"] * 4, "replayed": pa.array([0] * 4, pa.uint8())}
    results = []
    for warehouse in servers.both:
        for _ in range(2):
            warehouse.insert_once(SET_ASIDE_TABLE, pa.table({**shared, **set_aside}), "aside")
            warehouse.insert_once(REJECTED_TABLE, pa.table({**shared, **rejected}), "rejected")
        start = RejectedKey(0, "", "")
        kept = read_kept(warehouse, "queue", start, 3)
        assert len(kept) == 3
        for _ in range(2):
            mark_replayed(warehouse, "queue", [event.key for event in kept[:2]], "replay")
        window_s = NOW_S - 3600
        results.append(
            (
                kept,
                count_kept(warehouse, "queue"),
                read_kept(warehouse, "queue", start, 10),
                read_uncounted_events(warehouse),
                sorted(read_loss_intervals(warehouse, QUEUE, window_s, NOW_S)),
            )
        )
    assert results[0][1] == 2
    assert results[0] == results[1]
    per_shard = [
        shard.query(f"SELECT count() AS n FROM {SET_ASIDE_TABLE}")[0]["n"] for shard in servers.shards
    ]
    assert sum(per_shard) == 6


def test_an_environment_is_deleted_from_all_shards(servers: Servers) -> None:
    assert is_sharded(servers.sharded)
    assert not is_sharded(servers.single)
    for warehouse in servers.both:
        delete_environment_metrics(warehouse, OTHER_SCOPE)
        assert known_queues(warehouse, OTHER_SCOPE) == []
    for table in tier_tables(QUEUE):
        totals = read_totals(servers.single, table.name)
        assert totals["events"] > 0
        assert read_totals(servers.sharded, table.name) == totals


def test_an_insert_without_one_shard_fails_and_counts_once_when_it_is_repeated(servers: Servers) -> None:
    """The rows come from a table: the embedded engine reports no failed shard of an insert with a body."""
    rows = [landing_row(NOW_S - 15, queue=queue, enqueued=1) for queue in QUEUES]
    insert_rows(servers.single, *rows)
    server, landing = servers.server, landing_table(QUEUE)
    server.command(f"CREATE TABLE staged AS {SHARDS[0]}.{landing} ENGINE = Memory")
    insert_rows(server, *rows, table="staged")
    settings = {
        **INSERT_ONCE_SETTINGS,
        "insert_deduplication_token": "interrupted",
        "deduplicate_insert": "enable",
    }

    def insert() -> None:
        server.command(f"INSERT INTO {WRITES}.{landing} SELECT * FROM staged ORDER BY ALL", settings)

    connect_inserts_to(server, CLUSTER_WITHOUT_SECOND)
    for _ in range(2):
        with pytest.raises(WarehouseUnavailable, match="Connection refused"):
            insert()
    connect_inserts_to(server, CLUSTER)
    for _ in range(2):
        insert()
    for table in tier_tables(QUEUE):
        assert read_totals(servers.sharded, table.name) == read_totals(servers.single, table.name)
    assert server.query("SELECT sum(data_files) AS files FROM system.distribution_queue") == [{"files": 0}]


def test_a_rebuild_of_several_shards_is_refused(servers: Servers) -> None:
    check_has_one_shard(servers.single)
    with pytest.raises(RebuildRefused, match="several shards"):
        check_has_one_shard(servers.sharded)


def test_clickhouse_parses_the_distributed_tables(servers: Servers) -> None:
    statements = distributed_statements(CLUSTER, DATABASE)
    assert len(statements) == len(sharding_keys())
    for statement in statements:
        [row] = servers.server.query("SELECT formatQuery({sql:String}) AS formatted", {"sql": statement})
        assert f"ON CLUSTER {CLUSTER}" in row["formatted"].replace("'", "").replace("`", ""), statement


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were executed, each without what only a cluster has."""
    statements: list[str] = []
    execute = Warehouse.command

    def execute_on_one_server(
        warehouse: Warehouse, sql: str, settings: Mapping[str, int | str] | None = None
    ) -> None:
        statements.append(sql)
        if statement := without_cluster(sql):
            execute(warehouse, statement, settings)

    monkeypatch.setattr(Warehouse, "command", execute_on_one_server)
    return statements


def test_a_migration_creates_the_tables_of_shards_and_repairs_what_a_new_shard_lacks(
    server_url: str, servers: Servers, executed: list[str]
) -> None:
    def read_columns(database: str) -> list[dict[str, Any]]:
        return servers.server.query(
            "SELECT table, name, type FROM system.columns WHERE database = {database:String} "
            "AND table NOT LIKE '%_view' ORDER BY ALL",
            {"database": database},
        )

    url = database_url(server_url, "fresh")
    assert migrate(url, CLUSTER) == [migration.label for migration in load_migrations()]
    local = [sql for sql in executed if "ON CLUSTER" not in sql]
    assert all(sql.startswith(("INSERT INTO schema_migrations", "SYSTEM SYNC REPLICA")) for sql in local)
    assert any("all_shards/{database}/schema_migrations', '{shard}_{replica}'" in sql for sql in executed)
    assert read_columns("fresh") == read_columns("fresh_shard")
    assert is_sharded(connect(url))

    servers.server.command("ALTER TABLE fresh_shard.freshness ADD COLUMN source String")
    servers.server.command("DROP TABLE fresh_shard.queue_1m_view")
    servers.server.command("DROP TABLE fresh_shard.queue_1h SYNC")
    assert migrate(url, CLUSTER) == []
    assert read_columns("fresh") == read_columns("fresh_shard")
    assert servers.server.query(
        "SELECT 1 FROM system.tables WHERE name = 'queue_1m_view' AND database = 'fresh_shard'"
    )


def test_a_database_with_the_tables_of_one_server_is_not_distributed(
    server_url: str, servers: Servers
) -> None:
    assert servers.single.query("SELECT count() AS n FROM queue_5s")[0]["n"]
    with pytest.raises(MigrationError, match="to a new database"):
        migrate(database_url(server_url, "single"), CLUSTER)
    assert not is_sharded(servers.single)
