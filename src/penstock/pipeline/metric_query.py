"""The streaming query of one metric: start it, notice when it fails, and start it again.

A query that fails is started again from its checkpoint after a pause that grows with every failure in a row.
It never affects the queries of other metrics.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

SPARK_ERRORS = (PySparkException, Py4JError)
"""Errors of calls to Spark: its own, and those of the connection to its process."""

START_TIMEOUT_S = 120.0
"""How long the start of the next query waits for this one; a longer start goes on by itself."""

START_POLL_S = 0.1

OWN_ERROR_PATTERN = re.compile(r"^penstock\.[\w.]+: (.+)$", re.M)
"""An error that Penstock raised, at the end of the traceback of a Python process."""


class QueryState(StrEnum):
    """Whether a query reads its streams, as Spark reports it."""

    STARTING = "starting"
    """It has not read its streams yet since it was started."""
    RUNNING = "running"
    FAILED = "failed"
    """It has ended with an error and waits for its next start."""


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """How long a failed query waits for its next start."""

    first_s: float = 0.5
    max_s: float = 60.0
    recovered_after_s: float = 60.0
    """A query that ran this long after a failure has recovered: the count of failures in a row ends."""

    def pause_s(self, failures_in_a_row: int) -> float:
        return min(self.max_s, self.first_s * 2.0 ** (failures_in_a_row - 1))


class MetricQuery:
    """One metric's query. One thread calls `tend`; other threads may read the state and the counters."""

    def __init__(
        self,
        name: str,
        start: Callable[[], StreamingQuery],
        stopping: threading.Event,
        backoff: RestartBackoff,
    ) -> None:
        self.name = name
        self.failures = 0
        """Failures since the pipeline started."""
        self.restarts = 0
        self.failures_in_a_row = 0
        self.last_failure: str | None = None
        self._start = start
        self._stopping = stopping
        self._backoff = backoff
        self._query: StreamingQuery | None = None
        self._has_read = False
        self._started_at = 0.0
        self._next_start_at = 0.0

    @property
    def state(self) -> QueryState:
        """Ask Spark for the state."""
        query = self._query
        if query is None:
            return QueryState.FAILED if self.failures_in_a_row else QueryState.STARTING
        if not query.isActive:
            return QueryState.FAILED
        self._has_read = self._has_read or _has_read_streams(query)
        return QueryState.RUNNING if self._has_read else QueryState.STARTING

    @property
    def is_active(self) -> bool:
        """Whether Spark runs the query. One that reads to a fixed end is not active when it has ended."""
        return self._query is not None and self._query.isActive

    def read_recent_progress(self) -> Sequence[Mapping[str, Any]]:
        """Ask Spark for its reports about the last few batches since the query was started."""
        return self._query.recentProgress if self._query is not None else ()

    def tend(self) -> None:
        """Start the query, or note that it failed; returns when a started query has its Python process."""
        now = time.monotonic()
        if self._query is not None and self._query.isActive:
            if self.failures_in_a_row and now - self._started_at > self._backoff.recovered_after_s:
                self.failures_in_a_row = 0
            return
        if self._query is not None:
            error = self._query.exception()
            self._query = None
            if error is not None:
                self._note_failure(describe_failure(error))
            else:  # it was stopped, or it reads to a fixed end and is there
                self._next_start_at = now + self._backoff.first_s
        if now >= self._next_start_at and not self._stopping.is_set():
            self._start_and_wait()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def _start_and_wait(self) -> None:
        """Start the query. Python processes that start at the same time would only delay each other."""
        self.restarts += self.failures > 0
        self._has_read = False
        try:
            query = self._start()
        except SPARK_ERRORS as error:
            self._note_failure(describe_failure(error))
            return
        self._started_at = time.monotonic()
        self._query = query
        while query.isActive and not _has_initialized_source(query):
            if time.monotonic() - self._started_at > START_TIMEOUT_S or self._stopping.wait(START_POLL_S):
                return

    def _note_failure(self, reason: str) -> None:
        self.failures += 1
        self.failures_in_a_row += 1
        self.last_failure = reason
        pause_s = self._backoff.pause_s(self.failures_in_a_row)
        self._next_start_at = time.monotonic() + pause_s
        log.error(
            "The %s query failed (%d in a row), next start in %.1f s: %s",
            self.name,
            self.failures_in_a_row,
            pause_s,
            reason,
        )


def describe_failure(error: Exception) -> str:
    """Return the error of a query in one line."""
    if own_errors := OWN_ERROR_PATTERN.findall(str(error)):
        return str(own_errors[-1])
    lines = [line for line in str(error).splitlines() if line.strip()]
    shown = lines[:3] if isinstance(error, StreamingQueryException) else lines[:1]
    return " / ".join(shown) or type(error).__name__


def _has_initialized_source(query: StreamingQuery) -> bool:
    return not str(query.status["message"]).startswith("Initializing")


def _has_read_streams(query: StreamingQuery) -> bool:
    """Return whether the query has ended its first trigger: it waits for the next one, or has a batch."""
    return str(query.status["message"]).startswith("Waiting") or query.lastProgress is not None
