"""The pipeline process: one Spark session, one streaming query per metric, and a heartbeat.

Restart: a query continues from its checkpoint under `<home>/pipeline/checkpoint/<metric>`, or from the one in
the object store of `checkpoint_url`, and from the insert tokens that ClickHouse remembers. A process that is
killed at any time repeats at most its last batch after the restart, and that batch counts once. On SIGTERM
and SIGINT a batch in flight finishes; a batch that waits for a server is abandoned and repeated after the
restart. The pipeline refuses a checkpoint that is damaged or belongs to other servers before Spark opens it.
"""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from redis.exceptions import RedisError

from penstock import program_pages
from penstock.config import Settings
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.errors import ComponentFailed, ConfigError
from penstock.otlp.configuration import load_exporters
from penstock.pipeline import worker_launcher
from penstock.pipeline.archive.event_archive import Archive, archive_root
from penstock.pipeline.checkpoint import (
    SPARK_ERROR_PATTERN,
    CheckpointInUse,
    CheckpointLock,
    CheckpointUnusable,
    check_files,
    check_servers,
    checkpoint_path,
)
from penstock.pipeline.checkpoint_store import MetricCheckpoint, open_checkpoint_stores
from penstock.pipeline.fork_server import start_fork_server
from penstock.pipeline.heartbeat import BatchCallback, Heartbeat
from penstock.pipeline.metric_query import (
    SPARK_ERRORS,
    MetricQuery,
    RestartBackoff,
    describe_failure,
)
from penstock.pipeline.object_files import ObjectStoreUnavailable
from penstock.pipeline.preflight import check_before_start
from penstock.pipeline.session import build_session, is_local_master, register_source
from penstock.pipeline.sink.clickhouse_sink import ClickHouseSink, StoppingError
from penstock.pipeline.source.planning import TASK_INSERT_BYTES
from penstock.pipeline.source.redis_streams import FORMAT, encode_definition
from penstock.private_directories import create_private_directory
from penstock.redis_clients import connect_redis
from penstock.start_gate import must_wait, wait_for_start
from penstock.streams.drain_target import DrainTarget
from penstock.warehouse.clickhouse_client import connect

if TYPE_CHECKING:
    from penstock.otlp.exporters import Exporters

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 2.0
DRAIN_INTERVAL_S = 0.5
KEEP_WARM_INTERVAL_S = 40.0
STOP_TIMEOUT_S = 20.0
MAX_FAILURES = 5
"""The process exits when every query has failed more often than this in a row; its supervisor restarts it."""

ProgressCallback = Callable[[int], None]
"""Called regularly with the number of entries left."""


def run(settings: Settings, definitions: Iterable[MetricDefinition] = DEFINITIONS) -> None:
    """Move metric events into ClickHouse until SIGTERM or SIGINT.

    Raises CheckpointInUse when another pipeline runs here, CheckpointUnusable when the checkpoint needs a
    reset, ComponentFailed when Spark cannot start or all queries keep failing.
    """
    with CheckpointLock(checkpoint_path(settings)), _open_pipeline(settings, definitions) as pipeline:
        pipeline.run()


def drain(
    settings: Settings,
    target: DrainTarget,
    on_progress: ProgressCallback,
    definitions: Iterable[MetricDefinition] = DEFINITIONS,
) -> bool:
    """Move the entries up to `target` into ClickHouse, then stop; returns whether all were moved.

    The caller holds the lock of the checkpoint. Raises the same errors as `run`.
    """
    with _open_pipeline(settings, definitions) as pipeline:
        return pipeline.drain(target, on_progress)


@contextmanager
def _open_pipeline(settings: Settings, definitions: Iterable[MetricDefinition]) -> Iterator[Pipeline]:
    """Yield a pipeline with its own session; SIGTERM and SIGINT stop it."""
    for name in ("redis_url", "clickhouse_url"):
        if not getattr(settings, name):
            raise ConfigError(f"The pipeline needs {name}. Set PENSTOCK_{name.upper()}")
    definitions = tuple(definitions)
    checkpoint = checkpoint_path(settings)
    stored_checkpoints = open_checkpoint_stores(settings, checkpoint, [metric.name for metric in definitions])
    for stored_checkpoint in stored_checkpoints.values():
        stored_checkpoint.download()
    starts_early = must_wait()
    if not starts_early:
        check_before_start(settings, definitions)
    scratch = settings.home / "pipeline" / "spark"
    if scratch.exists():  # left by a run that was killed
        shutil.rmtree(scratch)
    create_private_directory(scratch)
    fork_server = start_fork_server(scratch.absolute(), worker_launcher.main)  # before any thread
    program_pages.keep_releasing()
    stopping = threading.Event()
    _stop_on_signals(stopping)
    exporters = load_exporters("pipeline", socket.gethostname())
    heartbeat = Heartbeat(settings.redis_url, definitions, on_batches=_export_batches(exporters))
    if not starts_early:
        heartbeat.start()
    try:
        session = build_session(
            settings.spark_master, scratch, ui_port=settings.spark_ui_port, fork_server=fork_server
        )
        try:
            if starts_early:  # Spark has started side by side with the servers
                wait_for_start()
                check_before_start(settings, definitions)
            yield Pipeline(
                session,
                settings,
                checkpoint,
                definitions,
                stopping,
                heartbeat,
                stored_checkpoints=stored_checkpoints,
            )
        finally:
            session.stop()
    finally:
        heartbeat.stop()
        if exporters is not None:
            exporters.close()


def _export_batches(exporters: Exporters | None) -> BatchCallback | None:
    """Return what exports finished batches; None without an export, which needs no SDK of OpenTelemetry."""
    if exporters is None:
        return None
    from penstock.pipeline.batch_spans import BatchSpans

    return BatchSpans(exporters).export


class Pipeline:
    """The streaming queries of one session: starts them, restarts failed ones, and stops them.

    A query that fails does not affect the others. The pipeline gives up only when every query keeps failing.
    """

    def __init__(
        self,
        session: SparkSession,
        settings: Settings,
        checkpoint: Path,
        definitions: tuple[MetricDefinition, ...],
        stopping: threading.Event,
        heartbeat: Heartbeat | None = None,
        *,
        stored_checkpoints: Mapping[str, MetricCheckpoint] | None = None,
        interval_s: float = CHECK_INTERVAL_S,
        max_failures: int = MAX_FAILURES,
        backoff: RestartBackoff | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._max_failures = max_failures
        self._session = session
        self._settings = settings
        self._checkpoint = checkpoint
        self._stored_checkpoints = stored_checkpoints or {}
        self._stopping = stopping
        self._redis = connect_redis(settings.redis_url, socket_timeout=5, socket_connect_timeout=2)
        self._warehouse = connect(settings.clickhouse_url)
        # On a cluster rows do not pass through the driver.
        self._task_insert_bytes = TASK_INSERT_BYTES if is_local_master(session.sparkContext.master) else 0
        self._sinks = {
            definition: ClickHouseSink(
                definition,
                self._warehouse,
                self._redis,
                stopping,
                self._build_archive(definition),
                self._stored_checkpoints.get(definition.name),
            )
            for definition in definitions
        }
        backoff = backoff or RestartBackoff()
        self._queries = {
            definition: MetricQuery(
                definition.name, partial(self._start_query, definition), stopping, backoff
            )
            for definition in definitions
        }
        # Data frames that read nothing, planned once.
        self._warm_up_frames: dict[MetricDefinition, DataFrame] = {}
        self._is_drain = False
        self._heartbeat = heartbeat or Heartbeat(settings.redis_url, definitions, interval_s=interval_s)
        self._heartbeat.watch(
            session.sparkContext,
            {definition: sink.state for definition, sink in self._sinks.items()},
            dict(self._queries),
        )

    def run(self) -> None:
        """Keep every query running, until `stopping` is set."""
        self._heartbeat.start()
        try:
            self._prepare()
            while not self._stopping.is_set():
                self._tend_queries()
                self._keep_warm()
                self._stopping.wait(self._interval_s)
        except StoppingError:
            log.info("Stopped while waiting for a server")
        finally:
            self._stop()

    def drain(self, target: DrainTarget, on_progress: ProgressCallback) -> bool:
        """Run every query until it has counted the entries in `target`, or until `stopping` is set."""
        self._is_drain = True
        self._heartbeat.draining = True
        self._heartbeat.start()
        try:
            self._prepare()
            while not self._stopping.is_set():
                self._tend_queries()
                self._stopping.wait(DRAIN_INTERVAL_S)
                try:
                    self._forget_drained_queries(target)
                    on_progress(target.count_remaining(self._redis))
                except RedisError as error:
                    log.warning("The drain waits for Redis: %s", error)
                    continue
                if not self._queries:
                    return True
            return False
        except StoppingError:
            return False
        finally:
            self._stop()

    def _forget_drained_queries(self, target: DrainTarget) -> None:
        for definition, query in list(self._queries.items()):
            reached = target.restrict_to(definition.stream_keys).is_reached(self._redis)
            if reached and not query.is_active:
                del self._queries[definition]

    def _prepare(self) -> None:
        """Wait for the servers, and check that the checkpoint belongs to them."""
        for definition, sink in self._sinks.items():
            directory = self._checkpoint / definition.name
            check_files(directory, definition)
            sink.load_totals()
            sink.resume_percentiles()
            check = partial(check_servers, directory, definition, self._redis, self._warehouse)
            sink.retry_while_unreachable(check, "Redis")

    def _keep_warm(self) -> None:
        """Start Spark's Python processes, and keep them running.

        Spark ends processes that are idle for a minute; the next event would wait until they run again.
        """
        for definition, sink in self._sinks.items():
            if time.monotonic() - sink.state.active_at < KEEP_WARM_INTERVAL_S:
                continue
            if definition not in self._warm_up_frames:
                register_source(self._session)
                frame = (
                    self._session.read.format(FORMAT)
                    .option("definition", encode_definition(definition))
                    .load()
                )
                self._warm_up_frames[definition] = sink.landing_rows(frame)
            try:
                self._warm_up_frames[definition].toArrow()
            except SPARK_ERRORS as error:
                log.warning("Cannot start the Python processes of tasks: %s", describe_failure(error))
            sink.state.active_at = time.monotonic()

    def _start_query(self, definition: MetricDefinition) -> StreamingQuery:
        register_source(self._session)
        frame = (
            self._session.readStream.format(FORMAT)
            .option("redis_url", self._settings.redis_url)
            .option("definition", encode_definition(definition))
            .option("tasks", self._session.sparkContext.defaultParallelism)
            .option("archive", archive_root(self._settings))
            .option("clickhouse_url", self._settings.clickhouse_url)
            .option("task_insert_bytes", self._task_insert_bytes)
            .option("min_distance_ms", self._settings.trigger_ms)
            .load()
        )
        writer = (
            frame.writeStream.queryName(definition.name)
            # The URL has a scheme because the default of a cluster may be another file system.
            .option("checkpointLocation", f"file://{self._checkpoint / definition.name}")
            .foreachBatch(self._sinks[definition])
        )
        if self._is_drain:
            return writer.trigger(availableNow=True).start()
        # The source decides when the next batch starts.
        return writer.trigger(processingTime="0 milliseconds").start()

    def _build_archive(self, definition: MetricDefinition) -> Archive | None:
        root = archive_root(self._settings)
        return Archive(root, definition) if root else None

    def _tend_queries(self) -> None:
        """Start the queries one after another, and restart those that failed, each after its own pause.

        Raises CheckpointUnusable or ComponentFailed when no query is left that works, CheckpointInUse when
        another driver continues from the stored checkpoint.
        """
        for stored_checkpoint in self._stored_checkpoints.values():
            if stored_checkpoint.fenced is not None:
                raise stored_checkpoint.fenced
        for query in self._queries.values():
            query.tend()
        unusable = None
        for definition, query in self._queries.items():
            spark_error = SPARK_ERROR_PATTERN.search(query.last_failure or "")
            if spark_error and query.failures_in_a_row:
                unusable = CheckpointUnusable(
                    self._checkpoint / definition.name, f"Spark reports {spark_error[0]!r}"
                )
            elif query.failures_in_a_row <= self._max_failures:
                return
        if unusable is not None:
            raise unusable
        for query in self._queries.values():
            raise ComponentFailed(
                f"All queries keep failing; the {query.name} query failed {query.failures_in_a_row} times in "
                f"a row: {query.last_failure}"
            )

    def _stop(self) -> None:
        """Stop between batches, so that no batch has to be repeated."""
        self._stopping.set()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for definition, query in self._queries.items():
            state = self._sinks[definition].state
            state.idle.wait(max(0.0, deadline - time.monotonic()))
            query.stop()
        self._publish_last_commits()
        for sink in self._sinks.values():
            sink.finish()
        self._heartbeat.stop()
        self._warehouse.close()
        self._redis.close()

    def _publish_last_commits(self) -> None:
        try:
            for stored_checkpoint in self._stored_checkpoints.values():
                stored_checkpoint.publish_last_commit()
        except (ObjectStoreUnavailable, CheckpointInUse) as error:
            log.warning("The next pipeline repeats the last batch, which counts once: %s", error)


def _stop_on_signals(stopping: threading.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
