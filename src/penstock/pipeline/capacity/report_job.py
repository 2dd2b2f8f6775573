"""The report from start to end: check, start Spark, read, compute, write.

Reads only. A run that is ended leaves nothing but its output directory; running it again replaces the files
there.
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
from penstock.pipeline.capacity.result import NothingMeasured, Report, Request
from penstock.pipeline.capacity.trend import trends
from penstock.pipeline.capacity.utilisation import daily_peaks, peaks, service, weekly_profile
from penstock.pipeline.capacity.verdict import judge, presented, presented_days
from penstock.pipeline.session import build_session
from penstock.warehouse.clickhouse_client import connect

QUEUES_PER_SHUFFLE = 100
Tell = Callable[[str], None]


def run(settings: Settings, request: Request, tell: Tell = lambda words: None) -> Report:
    """Make the report and its files; `tell` hears each step.

    Raises NothingMeasured, and ComponentFailed when Spark cannot start or finish.
    """
    expected = _look(settings, request)
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the report cannot be written to {request.out}: {error.strerror}") from error
    with TemporaryDirectory(prefix="penstock-report-") as scratch:
        tell("Starting Spark")
        session = build_session(settings.spark_master, Path(scratch), name="penstock capacity report")
        _end_on_interrupt()
        try:
            # What fails is raised and told in one line; Spark's own account of it is a screenful per task.
            session.sparkContext.setLogLevel("OFF")
            session.conf.set("spark.sql.shuffle.partitions", str(1 + expected // QUEUES_PER_SHUFFLE))
            report = make(session, settings.clickhouse_url, request, expected, tell)
        except PySparkException as error:
            raise ComponentFailed(f"Spark could not finish the report: {_reason(error)}") from error
        finally:
            with suppress(Exception):  # it may be gone already, and nothing depends on it
                session.stop()
    tell("Writing")
    write(report)
    return report


def make(
    session: SparkSession,
    clickhouse_url: str,
    request: Request,
    expected: int,
    tell: Tell = lambda words: None,
) -> Report:
    """Read and compute, in a session that is there; `expected` is how many queues there are, about."""
    period, source = request.period, "ClickHouse" if request.archive is None else "the archive"
    began = time.monotonic()
    tell(f"Reading from {source}")
    if request.archive is None:
        hours = tier_hours.read_hours(session, clickhouse_url, period, request.queues, expected)
        waits = tier_hours.read_waits(session, clickhouse_url, period, request.queues)
    else:
        events = archive_hours.read_events(session, request.archive, period)
        hours = archive_hours.hours_of_events(events, request.queues)
        waits = archive_hours.waits_of_events(events, request.queues)
    # Everything that follows is per subject, so laid out like this nothing is moved or sorted again. On disk:
    # a year of a thousand queues is more than the driver's memory.
    laid_out = hours.repartition(*SUBJECT).sortWithinPartitions(*SUBJECT, "hour_s")
    hours = laid_out.persist(StorageLevel.DISK_ONLY)
    try:
        rows = hours.count()
        if not rows:
            raise NothingMeasured(_nothing(request))
        tell(f"Computing from {rows:,} hours, read in {time.monotonic() - began:.1f} s")
        return compute(request, hours, waits)
    finally:
        with suppress(Exception):  # what went wrong above is what counts
            hours.unpersist()


def compute(request: Request, hours: DataFrame, waits: DataFrame) -> Report:
    """The report of these hours and waits."""
    days = daily_peaks(hours, request.period)
    judged = judge(peaks(hours, request.width_s), service(hours), waits, trends(days), request.period.end_s)
    return Report(
        request,
        presented(judged).toArrow(),
        weekly_profile(hours, request.period).toArrow(),
        presented_days(days).toArrow(),
    )


def write(report: Report) -> None:
    """`queues.parquet`, `profile.parquet`, `days.parquet` and the page."""
    out = report.request.out
    for name, table in (("queues", report.subjects), ("profile", report.profile), ("days", report.days)):
        pq.write_table(table, out / f"{name}.parquet")
    write_page(report, report.page)


def _look(settings: Settings, request: Request) -> int:
    """How many queues there will be, asked before Spark is started for nothing."""
    if request.archive is not None:
        return len(request.queues) or QUEUES_PER_SHUFFLE
    warehouse = connect(settings.clickhouse_url)
    try:
        known = tier_hours.measured_queues(warehouse, request.period)
    finally:
        warehouse.close()
    if not known or (request.queues and not set(known) & set(request.queues)):
        raise NothingMeasured(_nothing(request, known))
    return len(request.queues) or len(known)


def _end_on_interrupt() -> None:
    """Ctrl-C ends the command. Spark's own handler asks Java first, which has been told to end as well."""
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(number: int, frame: FrameType | None) -> None:
        logging.disable()  # of what the two have to say to each other now, nothing is of use
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, leave)


def _nothing(request: Request, known: Sequence[str] = ()) -> str:
    first, last = (
        f"{to_utc(moment):%Y-%m-%d %H:%M}" for moment in (request.period.start_s, request.period.end_s)
    )
    what = ", ".join(map(repr, request.queues)) or "any queue"
    near = [name for asked in request.queues for name in difflib.get_close_matches(asked, known, n=1)]
    place = "ClickHouse" if request.archive is None else f"the archive {request.archive}"
    hint = f": did you mean {near[0]!r}?" if near else ""
    return f"{place} has no measurements of {what} from {first} to {last} UTC{hint}"


def _reason(error: PySparkException) -> str:
    """The words of the task that failed, out of the stack traces of two languages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("penstock.", "pyspark.errors"))]
    return (ours or lines or ["no reason given"])[0].split(": ", 1)[-1]
