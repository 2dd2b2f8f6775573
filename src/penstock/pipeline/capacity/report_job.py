"""Run a capacity report from start to end: check, start Spark, read, compute, write.

The job only reads from ClickHouse and the archive. A run that is killed leaves only its output directory; the
next run replaces the files there.
"""

from __future__ import annotations

import difflib
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.clock import to_utc
from penstock.config import Settings
from penstock.errors import ComponentFailed, ConfigError
from penstock.pipeline.capacity import archive_hours, tier_hours
from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.page import write_page
from penstock.pipeline.capacity.result import CapacityReport, NothingMeasured, ReportRequest
from penstock.pipeline.capacity.trend import compute_trends
from penstock.pipeline.capacity.utilisation import (
    compute_daily_peaks,
    compute_peaks,
    compute_service,
    compute_weekly_profile,
)
from penstock.pipeline.capacity.verdict import decide_verdicts, to_report_days, to_report_rows
from penstock.pipeline.session import build_session
from penstock.warehouse.clickhouse_client import connect

QUEUES_PER_SHUFFLE = 100
ProgressCallback = Callable[[str], None]
"""Called with a description of each step."""


def run(
    settings: Settings, request: ReportRequest, on_step: ProgressCallback = lambda step: None
) -> CapacityReport:
    """Compute the report and write its files.

    Raises NothingMeasured, and ComponentFailed when Spark cannot start or finish.
    """
    expected_queues = _count_queues(settings, request)
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The report cannot be written to {request.out}: {error.strerror}") from error
    with TemporaryDirectory(prefix="penstock-report-") as scratch:
        on_step("Starting Spark")
        session = build_session(settings.spark_master, Path(scratch), name="penstock capacity report")
        _raise_on_interrupt()
        try:
            # A failure is raised with a one-line message; Spark's own log is a screenful per task.
            session.sparkContext.setLogLevel("OFF")
            session.conf.set("spark.sql.shuffle.partitions", str(1 + expected_queues // QUEUES_PER_SHUFFLE))
            report = build_report(session, settings.clickhouse_url, request, expected_queues, on_step)
        except PySparkException as error:
            raise ComponentFailed(f"Spark could not finish the report: {_failure_reason(error)}") from error
        finally:
            with suppress(Exception):  # the session may have ended already, and nothing depends on it
                session.stop()
    on_step("Writing")
    write_report(report)
    return report


def build_report(
    session: SparkSession,
    clickhouse_url: str,
    request: ReportRequest,
    expected_queues: int,
    on_step: ProgressCallback = lambda step: None,
) -> CapacityReport:
    """Read and compute in an existing session; `expected_queues` is the approximate number of queues."""
    period, source = request.period, "ClickHouse" if request.archive is None else "the archive"
    started = time.monotonic()
    on_step(f"Reading from {source}")
    if request.archive is None:
        hours = tier_hours.read_hours(session, clickhouse_url, period, request.queues, expected_queues)
        waits = tier_hours.read_waits(session, clickhouse_url, period, request.queues)
    else:
        events = archive_hours.read_events(session, request.archive, period)
        hours = archive_hours.aggregate_hours(events, request.queues)
        waits = archive_hours.aggregate_waits(events, request.queues)
    # All later steps group by subject, so with this partitioning Spark does not shuffle or sort again. On
    # disk, because a year of a thousand queues does not fit into the memory of the driver.
    partitioned = hours.repartition(*SUBJECT).sortWithinPartitions(*SUBJECT, "hour_s")
    hours = partitioned.persist(StorageLevel.DISK_ONLY)
    try:
        rows = hours.count()
        if not rows:
            raise NothingMeasured(_nothing_measured_text(request))
        on_step(f"Computing from {rows:,} hours, read in {time.monotonic() - started:.1f} s")
        return compute_report(request, hours, waits)
    finally:
        with suppress(Exception):  # an earlier error matters more
            hours.unpersist()


def compute_report(request: ReportRequest, hours: DataFrame, waits: DataFrame) -> CapacityReport:
    """Return the report of these hours and waits."""
    days = compute_daily_peaks(hours, request.period)
    decided = decide_verdicts(
        compute_peaks(hours, request.width_s),
        compute_service(hours),
        waits,
        compute_trends(days),
        request.period.end_s,
    )
    return CapacityReport(
        request,
        to_report_rows(decided).toArrow(),
        compute_weekly_profile(hours, request.period).toArrow(),
        to_report_days(days).toArrow(),
    )


def write_report(report: CapacityReport) -> None:
    """Write `queues.parquet`, `profile.parquet`, `days.parquet` and the page."""
    out = report.request.out
    for name, table in (("queues", report.subjects), ("profile", report.profile), ("days", report.days)):
        pq.write_table(table, out / f"{name}.parquet")
    write_page(report, report.page)


def _count_queues(settings: Settings, request: ReportRequest) -> int:
    """Return the approximate number of queues; raises NothingMeasured before the slow start of Spark."""
    if request.archive is not None:
        return len(request.queues) or QUEUES_PER_SHUFFLE
    warehouse = connect(settings.clickhouse_url)
    try:
        known = tier_hours.list_measured_queues(warehouse, request.period)
    finally:
        warehouse.close()
    if not known or (request.queues and not set(known) & set(request.queues)):
        raise NothingMeasured(_nothing_measured_text(request, known))
    return len(request.queues) or len(known)


def _raise_on_interrupt() -> None:
    """End the command on Ctrl-C. Spark's own handler would call Java, which has received the signal too."""
    if threading.current_thread() is not threading.main_thread():
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        logging.disable()  # Python and Java now log only errors about each other's end
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def _nothing_measured_text(request: ReportRequest, known: Sequence[str] = ()) -> str:
    first, last = (
        f"{to_utc(time_s):%Y-%m-%d %H:%M}" for time_s in (request.period.start_s, request.period.end_s)
    )
    queues = ", ".join(map(repr, request.queues)) or "any queue"
    similar = [name for queue in request.queues for name in difflib.get_close_matches(queue, known, n=1)]
    source = "ClickHouse" if request.archive is None else f"The archive {request.archive}"
    hint = f". Did you mean {similar[0]!r}?" if similar else ""
    return f"{source} has no measurements of {queues} from {first} to {last} UTC{hint}"


def _failure_reason(error: PySparkException) -> str:
    """Return the message of the failed task from the stack traces of Java and Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own_errors = [line for line in lines if line.startswith(("penstock.", "pyspark.errors"))]
    return (own_errors or lines or ["no reason given"])[0].split(": ", 1)[-1]
