"""The pipeline process: one Spark session, one streaming query per metric, a heartbeat.

Restart: everything a query needs to go on is in its checkpoint under `<home>/pipeline/checkpoint/<metric>`
and in ClickHouse's memory of tokens. Killed at any moment, it repeats at most its last batch, which then
counts once. SIGTERM and SIGINT let a batch under way finish; one that waits for a server is given up and
repeated. A checkpoint that is damaged or belongs to other servers is refused before Spark opens it.
"""

from __future__ import annotations

import logging
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from redis import Redis
from redis.exceptions import RedisError

from penstock.config import Settings, mask_url
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.errors import ConfigError, ComponentFailed
from penstock.pipeline.archive.event_archive import Archive, archive_root
from penstock.pipeline.checkpoint import (
    SPARKS_WORDS,
    CheckpointLock,
    CheckpointUnusable,
    check_files,
    checkpoint_of,
)
from penstock.pipeline.heartbeat import Heartbeat
from penstock.pipeline.preflight import look_before_start
from penstock.pipeline.server_identity import check_servers
from penstock.pipeline.session import build_session, register_source
from penstock.pipeline.sink.clickhouse_sink import Sink, StoppingError
from penstock.pipeline.source.redis_streams import FORMAT, packed
from penstock.streams.drain_target import Goal
from penstock.streams.progress import STOPPED
from penstock.warehouse.clickhouse_client import connect

log = logging.getLogger(__name__)

OLDEST_REDIS = 7
BEAT_S = 2.0
DRAIN_BEAT_S = 0.5
WARM_S = 40.0
STOP_S = 20.0
MOST_FAILURES = 5
"""In a row, before the process gives up and leaves the next attempt to whoever supervises it."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
FORGIVE_S = 60.0
"""A query that ran this long after a failure has recovered."""


_OUR_WORDS = re.compile(r"^penstock\.[\w.]+: (.+)$", re.M)
"""An error of our own at the end of a Python process's traceback."""

Tell = Callable[[int], None]
"""Called now and then with the number of entries that are left."""


def run(settings: Settings, definitions: Iterable[MetricDefinition] = DEFINITIONS) -> None:
    """Carry metric events into ClickHouse until SIGTERM or SIGINT.

    Raises CheckpointInUse when another pipeline runs here, CheckpointUnusable when the checkpoint must be
    given up, ComponentFailed when Spark cannot start or a query keeps failing.
    """
    with CheckpointLock(checkpoint_of(settings)), _opened(settings, definitions) as pipeline:
        pipeline.run()


def drain(
    settings: Settings, goal: Goal, tell: Tell, definitions: Iterable[MetricDefinition] = DEFINITIONS
) -> bool:
    """Carry over what the streams held when `goal` was made, then stop; returns whether it got there.

    The caller holds the checkpoint's lock. Raises like `run`.
    """
    with _opened(settings, definitions) as pipeline:
        return pipeline.drain(goal, tell)


@contextmanager
def _opened(settings: Settings, definitions: Iterable[MetricDefinition]) -> Iterator[Pipeline]:
    """A pipeline with a session of its own, and with SIGTERM and SIGINT telling it to stop."""
    for name in ("redis_url", "clickhouse_url"):
        if not getattr(settings, name):
            raise ConfigError(f"the pipeline needs {name}: set PENSTOCK_{name.upper()}")
    chosen = tuple(definitions)
    look_before_start(settings, chosen)
    stopping = threading.Event()
    _stop_on_signals(stopping)
    scratch = settings.home / "pipeline" / "spark"
    if scratch.exists():  # of a run that was killed
        shutil.rmtree(scratch)
    session = build_session(settings.spark_master, scratch)
    try:
        yield Pipeline(session, settings, checkpoint_of(settings), chosen, stopping)
    finally:
        session.stop()


class Pipeline:
    """The queries of one session and their life."""

    def __init__(
        self,
        session: SparkSession,
        settings: Settings,
        checkpoint: Path,
        definitions: tuple[MetricDefinition, ...],
        stopping: threading.Event,
    ) -> None:
        self._session = session
        self._settings = settings
        self._checkpoint = checkpoint
        self._stopping = stopping
        self._redis = Redis.from_url(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)
        self._warehouse = connect(settings.clickhouse_url)
        self._sinks = {
            definition: Sink(definition, self._warehouse, self._redis, stopping, self._archive(definition))
            for definition in definitions
        }
        self._queries: dict[MetricDefinition, StreamingQuery] = {}
        # Frames that read nothing, planned once.
        self._rehearsals: dict[MetricDefinition, DataFrame] = {}
        self._ends = False
        self._failures = 0
        self._failed_at = 0.0
        self._silent = False
        self._heartbeat = Heartbeat(
            self._redis, {definition: sink.state for definition, sink in self._sinks.items()}
        )

    def run(self) -> None:
        """Keep every query running and report, until told to stop."""
        try:
            self._prepare()
            for definition in self._sinks:
                self._queries[definition] = self._start(definition)
            self._keep_warm()
            # From here on reports are written, which is how others see that it is ready.
            while not self._stopping.wait(BEAT_S):
                self._beat("running")
                self._revive()
                self._keep_warm()
        except StoppingError:
            log.info("told to stop while waiting for a server")
        finally:
            self._stop()

    def drain(self, goal: Goal, tell: Tell) -> bool:
        """Run every query until it has what the streams held when `goal` was made, or until told to stop."""
        self._ends = True
        try:
            self._prepare()
            for definition in self._sinks:
                self._queries[definition] = self._start(definition)
            while not self._stopping.wait(DRAIN_BEAT_S):
                self._beat("draining")
                try:
                    for definition in list(self._queries):
                        reached = goal.only(definition.stream_keys).is_reached(self._redis)
                        if reached and not self._queries[definition].isActive:
                            del self._queries[definition]
                    tell(goal.left(self._redis))
                except RedisError as error:
                    log.warning("draining waits for Redis: %s", error)
                    continue
                if not self._queries:
                    return True
                self._revive()
            return False
        except StoppingError:
            return False
        finally:
            self._stop()

    def _prepare(self) -> None:
        """Wait for the servers, and make sure that the checkpoint is theirs."""
        self._check_redis()
        for definition, sink in self._sinks.items():
            place = self._checkpoint / definition.name
            check_files(place, definition)
            sink.load_totals()
            sink.look_back()
            sink.patiently(partial(check_servers, place, definition, self._redis, self._warehouse), "Redis")

    def _check_redis(self) -> None:
        try:
            version = str(self._redis.info("server")["redis_version"])
        except RedisError as error:
            log.warning("Redis does not answer yet: %s", error)
            return
        if int(version.partition(".")[0]) < OLDEST_REDIS:
            raise ComponentFailed(
                f"Redis at {mask_url(self._settings.redis_url)} is version {version}, which does not count "
                f"the entries of a stream: the pipeline needs Redis {OLDEST_REDIS} or newer, or Valkey"
            )

    def _keep_warm(self) -> None:
        """Bring up Spark's Python processes, and keep them.

        Spark ends those that are idle for a minute, and the next event would wait until they are back.
        """
        for definition, sink in self._sinks.items():
            if time.monotonic() - sink.state.active_at < WARM_S:
                continue
            if definition not in self._rehearsals:
                register_source(self._session)
                frame = self._session.read.format(FORMAT).option("definition", packed(definition)).load()
                self._rehearsals[definition] = sink.landing_rows(frame)
            self._rehearsals[definition].toArrow()
            sink.state.active_at = time.monotonic()

    def _start(self, definition: MetricDefinition) -> StreamingQuery:
        register_source(self._session)
        frame = (
            self._session.readStream.format(FORMAT)
            .option("redis_url", self._settings.redis_url)
            .option("definition", packed(definition))
            .option("tasks", self._session.sparkContext.defaultParallelism)
            .option("archive", archive_root(self._settings))
            .load()
        )
        writer = (
            frame.writeStream.queryName(definition.name)
            # With its scheme: a cluster's own default may be another file system.
            .option("checkpointLocation", f"file://{self._checkpoint / definition.name}")
            .foreachBatch(self._sinks[definition])
        )
        if self._ends:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_ms} milliseconds").start()

    def _archive(self, definition: MetricDefinition) -> Archive | None:
        root = archive_root(self._settings)
        return Archive(root, definition) if root else None

    def _revive(self) -> None:
        """Start again, from its checkpoint, a query that failed."""
        now = time.monotonic()
        if self._failures and now - self._failed_at > FORGIVE_S:
            self._failures = 0
        for definition, query in self._queries.items():
            if query.isActive or self._stopping.is_set():
                continue
            self._failures += 1
            self._failed_at = now
            why = _reason(query)
            log.error("the %s query failed (%d in a row): %s", definition.name, self._failures, why)
            if said := SPARKS_WORDS.search(why):
                raise CheckpointUnusable(self._checkpoint / definition.name, f"Spark says {said[0]!r}")
            if self._failures > MOST_FAILURES:
                raise ComponentFailed(f"the {definition.name} metrics cannot be processed: {why}")
            pause_s = min(FIRST_PAUSE_S * 2 ** (self._failures - 1), LONGEST_PAUSE_S)
            if not self._stopping.wait(pause_s):
                self._queries[definition] = self._start(definition)

    def _beat(self, state: str) -> None:
        try:
            self._heartbeat.beat(state)
        except RedisError as error:
            # Nobody can read the report either, so the log has to do.
            if not self._silent:
                log.warning("no report: Redis does not answer: %s", error)
            self._silent = True
        else:
            self._silent = False

    def _stop(self) -> None:
        """Stop between batches, so that none has to be repeated."""
        self._stopping.set()
        deadline = time.monotonic() + STOP_S
        for definition, query in self._queries.items():
            state = self._sinks[definition].state
            state.idle.wait(max(0.0, deadline - time.monotonic()))
            query.stop()
        for sink in self._sinks.values():
            sink.finish()
        self._beat(STOPPED)
        self._warehouse.close()
        self._redis.close()


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    if error is None:
        return "it ended by itself"
    if ours := _OUR_WORDS.findall(str(error)):
        return str(ours[-1])
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if not isinstance(error, StreamingQueryException) else " / ".join(lines[:3])


def _stop_on_signals(stopping: threading.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
