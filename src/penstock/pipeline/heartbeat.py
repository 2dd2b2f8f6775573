"""Report the state of the pipeline in Redis, every few seconds, from the start of the process to its end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

from pyspark import SparkContext
from redis.exceptions import RedisError

from penstock.definitions import MetricDefinition
from penstock.pipeline.finished_batches import take_finished_batches
from penstock.pipeline.metric_query import SPARK_ERRORS, MetricQuery, QueryState
from penstock.pipeline.sink.clickhouse_sink import SinkState
from penstock.pipeline.spark_status import read_spark_status
from penstock.redis_clients import connect_redis
from penstock.streams.batch_history import BatchRecord, add_batches
from penstock.streams.positions import read_lag, read_stream_state
from penstock.streams.progress import (
    DRAINING,
    FAILING,
    RUNNING,
    STARTING,
    STOPPED,
    Progress,
    write_progress,
)

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
STARTING_INTERVAL_S = 0.25
"""The supervisor notices soon when the pipeline has started."""
STOP_TIMEOUT_S = 10.0


BatchCallback = Callable[[str, Sequence[BatchRecord]], None]
"""Called with the name of a metric and its batches that have finished since the last call."""


class MetricReport(TypedDict):
    """The report of one metric; the fields mean the same as in `Progress`."""

    state: str
    failures: int
    restarts: int
    last_failure: str | None
    query_id: str | None
    batch_id: int
    input_rows_per_s: float
    processed_rows_per_s: float
    batch_ms: float
    entries: int
    lag: dict[str, int | None]
    freshness: float | None
    rejected: int
    lost: int


class Heartbeat:
    """Reports in a thread of its own, so that a slow start or a long wait does not look like an end.

    It combines the state of the queries, which it asks Spark for, of the sinks and of the streams. `entries`
    starts at 0 after a restart. `start` and `stop` may be called twice.
    """

    def __init__(
        self,
        redis_url: str,
        definitions: Iterable[MetricDefinition],
        *,
        interval_s: float = INTERVAL_S,
        on_batches: BatchCallback | None = None,
    ) -> None:
        self.draining = False
        self._redis = connect_redis(redis_url, socket_timeout=5, socket_connect_timeout=2)
        self._interval_s = interval_s
        self._on_batches = on_batches
        self._sinks = {definition: SinkState() for definition in definitions}
        self._queries: Mapping[MetricDefinition, MetricQuery] = {}
        self._context: SparkContext | None = None
        self._started_at = time.time()
        self._added: dict[str, tuple[float, int]] = {}
        """Per stream: the time of the last report, and the entries ever added by then."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._report_failed = False
        self._is_starting = True

    def watch(
        self,
        context: SparkContext,
        sinks: Mapping[MetricDefinition, SinkState],
        queries: Mapping[MetricDefinition, MetricQuery],
    ) -> None:
        """Report on these sinks and queries. Until then, the reports say that the pipeline is starting."""
        self._context, self._sinks, self._queries = context, dict(sinks), queries

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write a last report, which says that the pipeline has stopped."""
        if self._thread is None or self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join(STOP_TIMEOUT_S)
        self._try_write(STOPPED)
        self._redis.close()

    def _run(self) -> None:
        while True:
            self._try_write()
            interval_s = min(self._interval_s, STARTING_INTERVAL_S) if self._is_starting else self._interval_s
            if self._stopped.wait(interval_s):
                return

    def _try_write(self, state: str | None = None) -> None:
        try:
            self._write_report(state)
        except RedisError as error:
            # No other process can read a report now, so the log has to do.
            if not self._report_failed:
                log.warning("Cannot write the heartbeat: Redis is unreachable: %s", error)
            self._report_failed = True
        except SPARK_ERRORS as error:
            log.warning("Cannot write the heartbeat: Spark does not answer: %s", error)
        else:
            self._report_failed = False

    def _write_report(self, state: str | None) -> None:
        now = time.time()
        reports = {
            definition.name: self._report(definition, sink, now) for definition, sink in self._sinks.items()
        }
        newest_times = [report["freshness"] for report in reports.values() if report["freshness"] is not None]
        first = next(iter(reports.values()))
        state = state or self._combine_states([report["state"] for report in reports.values()])
        self._is_starting = state == STARTING
        write_progress(
            self._redis,
            Progress(
                at=now,
                started_at=self._started_at,
                state=state,
                host=os.uname().nodename,
                pid=os.getpid(),
                query_id=first["query_id"],
                batch_id=first["batch_id"],
                input_rows_per_s=sum(report["input_rows_per_s"] for report in reports.values()),
                processed_rows_per_s=sum(report["processed_rows_per_s"] for report in reports.values()),
                batch_ms=max(report["batch_ms"] for report in reports.values()),
                lag={key: lag for report in reports.values() for key, lag in report["lag"].items()},
                freshness=max(newest_times, default=None),
                rejected=sum(report["rejected"] for report in reports.values()),
                lost=sum(report["lost"] for report in reports.values()),
                metrics={name: dict(report) for name, report in reports.items()},
                spark=read_spark_status(self._context) if self._context and state != STOPPED else None,
            ),
        )
        for definition, query in self._queries.items():
            self._add_finished_batches(definition, query)

    def _add_finished_batches(self, definition: MetricDefinition, query: MetricQuery) -> None:
        sink = self._sinks[definition]
        if sink.recent_batches:
            batches = take_finished_batches(sink, query.read_recent_progress())
            if self._on_batches is not None:
                self._on_batches(definition.name, batches)
            add_batches(self._redis, definition.name, batches)

    def _combine_states(self, states: list[str]) -> str:
        """Return the state of the pipeline: that of the query with the worst one."""
        if QueryState.FAILED in states:
            return FAILING
        waiting = [state for state in states if state not in (QueryState.STARTING, QueryState.RUNNING)]
        if waiting:
            return waiting[0]
        if self.draining:
            return DRAINING
        return STARTING if QueryState.STARTING in states else RUNNING

    def _report(self, definition: MetricDefinition, sink: SinkState, now: float) -> MetricReport:
        query = self._queries.get(definition)
        state = query.state if query else QueryState.STARTING
        waiting_for = sink.waiting_for if state is not QueryState.FAILED else None
        return {
            "state": waiting_for or str(state),
            "failures": query.failures if query else 0,
            "restarts": query.restarts if query else 0,
            "last_failure": query.last_failure if query else None,
            "query_id": sink.query_id,
            "batch_id": sink.batch_id,
            "input_rows_per_s": round(sum(self._added_per_s(key, now) for key in definition.stream_keys), 1),
            "processed_rows_per_s": round(sink.entries / max(sink.batch_ms, 1) * 1000, 1),
            "batch_ms": round(sink.batch_ms, 1),
            "entries": sink.total_entries,
            "lag": {key: read_lag(self._redis, key) for key in definition.stream_keys},
            "freshness": sink.freshness,
            "rejected": sink.rejected,
            "lost": sink.lost,
        }

    def _added_per_s(self, key: str, now: float) -> float:
        """Return the entries added per second since the last report."""
        state = read_stream_state(self._redis, key)
        added = state.added if state else 0
        previous = self._added.get(key)
        self._added[key] = (now, added)
        if previous is None or now <= previous[0]:
            return 0.0
        return max(0, added - previous[1]) / (now - previous[0])
