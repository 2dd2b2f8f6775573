"""Tests of the whole capacity report, from ClickHouse and from an archive with the same events."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config import Settings
from penstock.errors import ConfigError, WarehouseUnavailable
from penstock.pipeline.capacity import report_job, tier_hours
from penstock.pipeline.capacity.archive_hours import aggregate_hours, aggregate_waits, read_events
from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.period import DAY_S, HOUR_S, Period
from penstock.pipeline.capacity.result import CapacityReport, NothingMeasured, ReportRequest
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema_migrations import migrate
from tests.integration.pipeline.measurements import archive_events, insert_events, queue_event

DAYS = 28
END = int(time.time()) // DAY_S * DAY_S
START = END - DAYS * DAY_S
PERIOD = Period(START, END, END)
HOSTILE_NAME = "</script><script>document.title='taken'</script><b>&amp; %%DATA%% 'x' \"y\" \\"
SHARED = ("busy", "grows", "flat", "young", HOSTILE_NAME)


def weeks() -> Iterator[dict[str, Any]]:
    """Yield four weeks of events: one queue grows, one is flat, one is new, one has two groups."""
    for hour in range(DAYS * 24):
        at, day, noon = START + hour * HOUR_S, hour // 24, hour % 24 == 12
        weekend = datetime.fromtimestamp(at, UTC).weekday() >= 5
        peak = 20 + day - (9 if weekend else 0)
        yield queue_event(
            at + 90, "grows", enqueued=60, running=peak if noon else 3, limit=60, depth=hour % 50
        )
        if noon:
            yield queue_event(at + 95, "grows", running=1, limit=60)
            yield queue_event(at + 5, "flat", enqueued=5, running=30, limit=60, depth=1)
            yield queue_event(at, HOSTILE_NAME, enqueued=1, depth=0)
            yield queue_event(at + 30, "", env_depth=40, env_running=10 + day, env_limit=100)
        if day >= DAYS - 5:
            yield queue_event(at, "young", enqueued=2, running=1, limit=5)
        yield queue_event(at + 61, "busy", enqueued=40, depth=7)
        yield queue_event(at + 62, "busy", enqueued=30)
        yield queue_event(at + 3_000, "busy", enqueued=30)
        for group, waits in (("a", range(100)), ("b", range(100, 200))):
            share = 70 if hour % 2 else 100
            yield queue_event(
                at + 65,
                "busy",
                group,
                dequeued=100,
                acked=share,
                dead=100 - share,
                wait_ms=list(waits),
                run_ms=[900],
            )


@pytest.fixture(scope="module")
def database(clickhouse_url: str) -> Iterator[str]:
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path="/capacity"))
    migrate(url)
    warehouse = connect(url)
    insert_events(warehouse, weeks())
    yield url
    warehouse.command("DROP DATABASE capacity")
    warehouse.close()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("archive")
    archive_events(directory, weeks())
    return str(directory)


@pytest.fixture(scope="module")
def from_tiers(
    spark: SparkSession, database: str, tmp_path_factory: pytest.TempPathFactory
) -> CapacityReport:
    request = ReportRequest(PERIOD, tmp_path_factory.mktemp("tiers"))
    report = report_job.build_report(spark, database, request, 5)
    report_job.write_report(report)
    return report


def subjects(report: CapacityReport) -> dict[str, dict[str, Any]]:
    return {row["queue"]: row for row in report.subjects.to_pylist()}


def test_a_queue_that_grows_to_its_limit_has_a_date(from_tiers: CapacityReport) -> None:
    grows = subjects(from_tiers)["grows"]
    last_day = date.fromordinal(datetime.fromtimestamp(END, UTC).toordinal() - 1)
    high = 20 + DAYS - 1  # the peak of the last day if it were a weekday
    assert abs(grows["saturates_on"] - (last_day + timedelta(days=60 - high))) <= timedelta(days=1)
    assert (grows["verdict"], grows["direction"], grows["limit"]) == ("soon", "rising", 60)
    assert grows["slope"] == pytest.approx(1)


def test_flat_new_and_unlimited_queues_have_no_date(from_tiers: CapacityReport) -> None:
    by_name = subjects(from_tiers)
    assert {name: by_name[name]["saturation"] for name in ("flat", "young", "busy")} == {
        "flat": "never",
        "young": "not_enough_data",
        "busy": "no_limit",
    }
    assert [by_name[name]["saturates_on"] for name in ("flat", "young", "busy")] == [None] * 3


def test_peaks_waits_and_service_of_a_queue_with_two_groups(from_tiers: CapacityReport) -> None:
    busy = subjects(from_tiers)["busy"]
    assert busy["peak_enqueued_per_s"] == pytest.approx(70 / 60), "two events of one minute are one peak"
    assert busy["peak_enqueued_at"] == datetime.fromtimestamp(START + 60, UTC)
    assert busy["peak_dequeued_per_s"] == pytest.approx(200 / 60)
    assert busy["enqueued"] == DAYS * 24 * 100
    assert (busy["busy_ratio"], busy["overall_ratio"]) == (1, 1), (
        "a finished message counts once for all groups"
    )
    assert busy["waits"] == DAYS * 24 * 200
    assert busy["wait_p95_ms"] == pytest.approx(190, rel=0.03)
    assert busy["busiest_hour_running"] == pytest.approx(1_800 / 3_600_000)


def test_the_environment_has_its_own_row_with_its_own_limit(from_tiers: CapacityReport) -> None:
    environment = subjects(from_tiers)[""]
    assert (
        environment["kind"],
        environment["limit"],
        environment["peak_running"],
        environment["peak_depth"],
    ) == (
        "environment",
        100,
        10 + DAYS - 1,
        40,
    )
    assert environment["enqueued"] == sum(subjects(from_tiers)[name]["enqueued"] for name in SHARED)
    assert environment["saturation"] == "date"


def test_tiers_and_archive_give_the_same_numbers(spark: SparkSession, database: str, archive: str) -> None:
    """All values of every hour are equal, and so is everything that is computed from hours."""
    events = read_events(spark, archive, PERIOD)
    keys = [(name, "ascending") for name in (*SUBJECT, "hour_s")]
    counted = tier_hours.read_hours(spark, database, PERIOD, (), 5).toArrow().sort_by(keys)
    assert counted.num_rows > DAYS * 24 * 3
    assert counted.to_pylist() == aggregate_hours(events, ()).toArrow().sort_by(keys).to_pylist()
    waits = tier_hours.read_waits(spark, database, PERIOD, ()).toArrow().sort_by(keys[:-1]).to_pylist()
    exact = aggregate_waits(events, ()).toArrow().sort_by(keys[:-1]).to_pylist()
    assert [row["queue"] for row in waits] == [row["queue"] for row in exact] == ["", "busy"]
    for merged, counted_row in zip(waits, exact, strict=True):
        assert merged["waits"] == counted_row["waits"]
        for level in ("wait_p50_ms", "wait_p95_ms", "wait_p99_ms"):
            assert merged[level] == pytest.approx(counted_row[level], rel=0.03, abs=2)


def test_the_parquet_files_hold_the_result(from_tiers: CapacityReport) -> None:
    out = from_tiers.request.out
    assert pq.read_table(out / "queues.parquet").equals(from_tiers.subjects)
    assert pq.read_table(out / "profile.parquet").num_rows == 6 * 168
    assert pq.read_table(out / "days.parquet").num_rows == 5 * DAYS + 5


def test_no_name_can_end_the_data_block_of_the_page(from_tiers: CapacityReport) -> None:
    html = from_tiers.page.read_text()
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert {subject["queue"] for subject in json.loads(data)["subjects"]} == {*SHARED, ""}
    assert html.count("<script") == 2, "the data and the page's own script"
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", html)


def test_a_report_on_some_queues_leaves_out_the_environment(
    spark: SparkSession, database: str, archive: str
) -> None:
    chosen = ["flat", HOSTILE_NAME]
    hours = tier_hours.read_hours(spark, database, PERIOD, chosen, 1)
    assert {row["queue"] for row in hours.select("queue").toArrow().to_pylist()} == set(chosen)
    events = read_events(spark, archive, PERIOD)
    archived = aggregate_hours(events, chosen).select("queue").distinct().toArrow()
    assert set(archived["queue"].to_pylist()) == set(chosen)
    waits = tier_hours.read_waits(spark, database, PERIOD, ["busy"]).toArrow().to_pylist()
    assert [(row["queue"], row["waits"]) for row in waits] == [("busy", DAYS * 24 * 200)]


def test_the_command_prints_a_table_or_json_and_the_path_of_the_page(
    from_tiers: CapacityReport, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[ReportRequest] = []

    def return_existing_report(
        settings: Settings, request: ReportRequest, on_step: report_job.ProgressCallback
    ) -> CapacityReport:
        requests.append(request)
        on_step("Starting Spark")
        return from_tiers

    # Spark keeps one session per process, and the command would stop the session of the tests.
    monkeypatch.setattr(report_job, "run", return_existing_report)
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", database)
    arguments = ["report", "capacity", "--queue", "flat", "--queue", "gone", "--out", "there"]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    first, *_ = json.loads(shown.stdout)["subjects"]
    assert (first["queue"], first["saturates_on"][:4]) == (
        "grows",
        str(datetime.fromtimestamp(END, UTC).year),
    )
    assert "Starting Spark" in shown.stderr
    assert "'gone' has no measurements" in shown.stderr
    assert str(from_tiers.page) in "".join(shown.stderr.split("\n"))
    assert (requests[0].queues, requests[0].out, requests[0].archive) == (
        ("flat", "gone"),
        Path("there"),
        None,
    )
    table = CliRunner(env={"COLUMNS": "140"}).invoke(app, [*arguments, "--archive", "directory"])
    assert requests[1].archive == "directory"
    for text in ("reaches limit soon", "/60", "never", "no limit set", "not enough data", "37/100"):
        assert text in table.stdout


def test_missing_measurements_are_reported_before_spark_starts(
    database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", database)
    arguments = ["report", "capacity", "--out", str(tmp_path / "out")]
    nothing = CliRunner().invoke(app, [*arguments, "--from", "2020-01-01", "--to", "2020-02-01"])
    assert nothing.exit_code == 1
    assert "no measurements of any queue from 2020-01-01 00:00" in " ".join(nothing.stderr.split())
    unknown = CliRunner().invoke(app, [*arguments, "--queue", "grow"])
    assert unknown.exit_code == 1
    assert "Did you mean 'grows'?" in unknown.stderr
    assert not (tmp_path / "out").exists()


def test_an_empty_period_of_the_archive_raises_nothing_measured(
    spark: SparkSession, archive: str, tmp_path: Path
) -> None:
    before = Period(START - 9 * DAY_S, START - DAY_S, END)
    with pytest.raises(NothingMeasured, match="no measurements"):
        report_job.build_report(spark, "", ReportRequest(before, tmp_path, (), archive), 1)
    with pytest.raises(ConfigError, match="no archive"):
        read_events(spark, str(tmp_path), PERIOD)


def test_an_unreachable_clickhouse_fails_before_spark_starts(tmp_path: Path) -> None:
    settings = Settings(clickhouse_url="http://127.0.0.1:1/default")
    with pytest.raises(WarehouseUnavailable, match=r"ClickHouse at 127\.0\.0\.1:1"):
        report_job.run(settings, ReportRequest(PERIOD, tmp_path / "out"))
