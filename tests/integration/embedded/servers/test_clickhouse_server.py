"""The embedded ClickHouse through the official Python client."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.errors import ComponentFailed
from tests.deadlines import deadline_s
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def database(clickhouse_url: str) -> Iterator[str]:
    """The URL of a database that only this module uses."""
    with clickhouse_connect.get_client(dsn=clickhouse_url) as admin:
        admin.command("CREATE DATABASE server_tests")
        yield clickhouse_url.replace("/default", "/server_tests")
        admin.command("DROP DATABASE server_tests")


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with clickhouse_connect.get_client(dsn=database) as client:
        yield client


@pytest.fixture
def numbers(client: Client) -> Iterator[str]:
    client.command("CREATE TABLE numbers (n UInt64, s String) ENGINE = MergeTree ORDER BY n")
    yield "numbers"
    client.command("DROP TABLE numbers")


@pytest.mark.parametrize("compress", [False, "lz4", "zstd", "gzip"])
def test_native_inserts_arrive_in_every_compression(
    database: str, numbers: str, compress: bool | str
) -> None:
    with clickhouse_connect.get_client(dsn=database, compress=compress) as client:
        rows = [[n, f"ä{n}"] for n in range(1000)]
        summary = client.insert(numbers, rows, column_names=["n", "s"], settings={"async_insert": 0})
        assert summary.written_rows == 1000
        assert client.query(f"SELECT n, s FROM {numbers} ORDER BY n").result_rows == [tuple(r) for r in rows]


def test_arrow_goes_in_and_comes_out(client: Client, numbers: str) -> None:
    table = pa.table({"n": pa.array(range(100_000), pa.uint64()), "s": ["x"] * 100_000})
    client.insert_arrow(numbers, table, settings={"async_insert": 0, "max_insert_block_size": 1_000_000})
    result = client.query_arrow(f"SELECT n, s FROM {numbers} ORDER BY n")
    assert result.num_rows == 100_000
    assert result.column("n").to_pylist()[-1] == 99_999


def test_raw_formats_go_in_and_come_out(client: Client, numbers: str) -> None:
    client.raw_insert(numbers, ["n", "s"], "1,a\n2,b\n", fmt="CSV")
    client.command(f"INSERT INTO {numbers} VALUES (3, 'FORMAT Native')")
    client.command(f"INSERT INTO {numbers} SELECT 4, 'd'")
    assert (
        client.raw_query(f"SELECT s FROM {numbers} ORDER BY n", fmt="CSV")
        == b'"a"\n"b"\n"FORMAT Native"\n"d"\n'
    )


def test_parameters_are_bound_by_the_server(client: Client) -> None:
    parameters = {"text": "it's \\ a\ttab\nüñ", "list": ["a'b", "c"], "number": -5}
    sql = "SELECT {text:String}, {list:Array(String)}, {number:Int32}"
    assert client.query(sql, parameters=parameters).result_rows == [tuple(parameters.values())]
    long_text = "x" * 50_000  # too long for a URL, so the client sends a form
    assert client.query("SELECT length({t:String})", parameters={"t": long_text}).result_rows == [(50_000,)]


def test_an_empty_result_is_empty(client: Client) -> None:
    assert client.query("SELECT 1 AS x WHERE 0").result_rows == []
    assert client.query("SELECT 1 AS x LIMIT 0").column_names == ("x",)
    assert client.query_arrow("SELECT 1 AS x WHERE 0").num_rows == 0


def test_errors_carry_clickhouse_codes(client: Client, numbers: str) -> None:
    for sql, code in (("SELECT * FROM nowhere", 60), ("SELEC 1", 62), ("SELECT throwIf(1)", 395)):
        with pytest.raises(DatabaseError) as caught:
            client.query(sql)
        assert caught.value.code == code
    with pytest.raises(DatabaseError) as caught:
        client.insert("nowhere", [[1]], column_names=["n"], column_type_names=["UInt64"])
    assert caught.value.code == 60
    with pytest.raises(DatabaseError) as caught:
        client.raw_insert(numbers, ["n"], "x\n", fmt="CSV")
    assert caught.value.code == 117
    assert client.query("SELECT 1").result_rows == [(1,)], "the connection still works"


def test_settings_of_one_request_do_not_reach_the_next(client: Client) -> None:
    read = "SELECT value FROM system.settings WHERE name = 'max_threads'"
    before = client.query(read).result_rows
    assert client.query(read, settings={"max_threads": 1}).result_rows == [("1",)]
    assert client.query(read).result_rows == before
    client.command("SET max_threads = 1")
    client.command("USE system")
    assert client.query(read).result_rows == before
    assert client.command("SELECT currentDatabase()") == "server_tests"


def test_eight_connections_work_concurrently(database: str, numbers: str) -> None:
    barrier = threading.Barrier(8, timeout=deadline_s(20))

    def work(worker: int) -> int:
        with clickhouse_connect.get_client(dsn=database, autogenerate_session_id=False) as client:
            barrier.wait()
            for insert in range(5):
                rows = [[worker * 1000 + insert * 100 + n, "x"] for n in range(100)]
                client.insert(
                    numbers, rows, column_names=["n", "s"], settings={"max_threads": 1 + worker % 2}
                )
                client.query(
                    "SELECT sum(n) FROM numbers WHERE n < {limit:UInt64}", parameters={"limit": worker}
                )
            return worker

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))
    with clickhouse_connect.get_client(dsn=database) as client:
        assert client.query(f"SELECT count(), uniqExact(n) FROM {numbers}").result_rows == [(4000, 4000)]


def test_a_ping_does_not_wait_for_queries(clickhouse_url: str, client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = [clickhouse_connect.get_client(dsn=clickhouse_url) for _ in range(8)]
        slow_queries = [
            pool.submit(slow_client.query, "SELECT sleepEachRow(1.5) FROM numbers(1)")
            for slow_client in clients
        ]
        assert client.ping()
        assert not any(query.done() for query in slow_queries)
        for query in slow_queries:
            query.result()
    for slow_client in clients:
        slow_client.close()


def test_a_deduplication_token_counts_once_in_every_view(client: Client) -> None:
    deduplicated = "SETTINGS non_replicated_deduplication_window = 100"
    client.command("CREATE TABLE landing (at DateTime('UTC'), n UInt64) ENGINE = Null")
    for tier, bucket in (("five", "toStartOfInterval(at, INTERVAL 5 SECOND)"), ("hour", "toStartOfHour(at)")):
        client.command(
            f"CREATE TABLE {tier} (bucket DateTime('UTC'), n SimpleAggregateFunction(sum, UInt64)) "
            f"ENGINE = AggregatingMergeTree PARTITION BY toDate(bucket) ORDER BY bucket {deduplicated}"
        )
        client.command(
            f"CREATE MATERIALIZED VIEW {tier}_view TO {tier} AS "
            f"SELECT {bucket} AS bucket, sum(n) AS n FROM landing GROUP BY bucket"
        )
    rows = pa.table(
        {"at": pa.array([1_700_000_000 + 3600 * hour for hour in range(48)], pa.uint32()), "n": [1] * 48}
    )
    settings = {
        "insert_deduplication_token": "batch-1",
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        "insert_deduplicate": 1,
        "async_insert": 0,
    }
    for token in ("batch-1", "batch-1", "batch-2", "batch-1", "batch-2"):
        client.insert_arrow("landing", rows, settings={**settings, "insert_deduplication_token": token})
    for tier in ("five", "hour"):
        assert client.command(f"SELECT sum(n) FROM {tier}") == 96


def test_a_wrong_password_is_refused(clickhouse_url: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        clickhouse_connect.get_client(dsn=clickhouse_url.replace("@", "x@"))
    assert caught.value.code == 516


def test_an_interrupted_insert_changes_nothing(clickhouse_url: str, client: Client, numbers: str) -> None:
    port = urlsplit(clickhouse_url).port
    with socket.create_connection(("127.0.0.1", port)) as connection:
        sql = "INSERT INTO server_tests.numbers FORMAT CSV\n1,a\n"
        connection.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{sql}".encode())
        connection.shutdown(socket.SHUT_WR)
        assert b"400" in connection.recv(100)
    assert client.command(f"SELECT count() FROM {numbers}") == 0


def test_a_stop_waits_for_running_statements(tmp_path: Path) -> None:
    server = ClickHouse(tmp_path, any_free_port())
    with running(server) as child, clickhouse_connect.get_client(dsn=server.url) as client:
        with ThreadPoolExecutor(1) as pool:
            count_running = "SELECT count() FROM system.processes WHERE query LIKE '%sleepEachRow%'"
            slow_query = pool.submit(client.command, "SELECT sleepEachRow(1.5) + 7 FROM numbers(1)")
            with clickhouse_connect.get_client(dsn=server.url) as observer:
                wait_until(lambda: int(str(observer.command(count_running))) > 1, 10, "the statement runs")
            child.process.send_signal(signal.SIGTERM)
            assert slow_query.result() == 7
        assert child.process.wait(deadline_s(10)) == 0, child.read_output()


def test_data_survives_a_kill_and_a_directory_has_one_owner(tmp_path: Path) -> None:
    server = ClickHouse(tmp_path, any_free_port())
    with running(server) as child:
        with clickhouse_connect.get_client(dsn=server.url) as client:
            client.command("CREATE TABLE kept (n UInt64) ENGINE = MergeTree ORDER BY n")
            client.insert("kept", [[n] for n in range(1000)], column_names=["n"])
        with (
            pytest.raises(ComponentFailed, match="another process already uses its data directory"),
            running(ClickHouse(tmp_path, any_free_port())),
        ):
            pass
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        assert not server.probe().ok
    restarted = ClickHouse(tmp_path, any_free_port())
    with running(restarted), clickhouse_connect.get_client(dsn=restarted.url) as client:
        assert client.command("SELECT count() FROM kept") == 1000


@pytest.fixture
def failing_view(client: Client, numbers: str) -> Iterator[str]:
    """A table whose rows go through a view that cannot take a row with the text `bad`."""
    client.command("CREATE TABLE unchecked (n UInt64, s String) ENGINE = Null")
    client.command(
        f"CREATE MATERIALIZED VIEW checked TO {numbers} AS"
        " SELECT n, if(throwIf(s = 'bad', 'no such row') = 0, s, '') AS s FROM unchecked"
    )
    yield "unchecked"
    client.command("DROP TABLE checked")
    client.command("DROP TABLE unchecked")


def test_an_insert_that_cannot_be_written_fails(client: Client, failing_view: str, numbers: str) -> None:
    with pytest.raises(DatabaseError, match="no such row"):
        client.raw_insert(failing_view, ["n", "s"], "1,bad\n", fmt="CSV")
    client.raw_insert(failing_view, ["n", "s"], "2,good\n", fmt="CSV")
    assert client.query(f"SELECT n FROM {numbers}").result_rows == [(2,)]


def test_an_insert_that_fails_beside_others_is_never_taken_as_stored(
    database: str, client: Client, failing_view: str, numbers: str
) -> None:
    """Inserts that are aborted because of another one are repeated, one at a time."""
    repeating = threading.Lock()

    def insert(number: int) -> str:
        text = "bad" if number % 5 == 0 else "good"
        with clickhouse_connect.get_client(dsn=database) as own_client:
            try:
                own_client.raw_insert(failing_view, ["n", "s"], f"{number},{text}\n", fmt="CSV")
            except DatabaseError as error:
                return str(error)
        return "stored"

    def insert_until_decided(number: int) -> str:
        outcome = insert(number)
        while "Repeat it" in outcome:
            with repeating:
                outcome = insert(number)
        return outcome

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(insert_until_decided, range(40)))
    assert all("no such row" in outcome for outcome in outcomes[::5])
    stored = [number for number, outcome in enumerate(outcomes) if outcome == "stored"]
    assert stored == [number for number in range(40) if number % 5]
    rows = client.query(f"SELECT DISTINCT n FROM {numbers} ORDER BY n").result_rows
    assert [n for (n,) in rows] == stored
