"""The Spark session of the pipeline: small, quiet, on loopback, quick to start."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from importlib import resources
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import ComponentFailed
from penstock.pipeline.source.redis_streams import StreamsSource

LOCAL_MASTER = "local[2]"

JVM_OPTIONS = (
    "-XX:+UseSerialGC",  # starts faster and needs less memory; the heap is small
    "-XX:TieredStopAtLevel=1",  # the hot loops are in Arrow and ClickHouse, so optimising Java costs more
    "-XX:-UsePerfData",
)

CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Renames within a local directory; the default goes through a layer that copies checksums as well."""


def build_session(master: str, work: Path, name: str = "penstock") -> SparkSession:
    """A session with the stream source registered. `work` holds Spark's scratch files.

    Raises ComponentFailed when there is no Java. Spark keeps one session per process.
    """
    _require_java()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    work.mkdir(parents=True, exist_ok=True)
    master = master or LOCAL_MASTER
    is_local = master.startswith("local")
    if is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:  # the nodes may have their Python elsewhere
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = resources.files("penstock.pipeline").joinpath("log4j2.properties")
    options = (*JVM_OPTIONS, f"-Dlog4j2.configurationFile={quiet}", f"-Djava.io.tmpdir={work}")
    settings = {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": f"file://{(work / 'warehouse').absolute()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.debug.maxToStringFields": "200",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.worker.reuse": "true",
        # Spark's 15 s are too few for a Python process to start on a machine that is busy otherwise.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.task.maxFailures": "4",
    }
    if not is_local:
        # A cluster's tasks run elsewhere and answer to the address that the master sees.
        for loopback in ("spark.driver.host", "spark.driver.bindAddress"):
            del settings[loopback]
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register_source(session)
    return session


def register_source(session: SparkSession) -> None:
    """Make the source known, for what is loaded next.

    Spark notes in the registration what the source's processes need, while it starts them, in a map that is
    not made for several threads: two queries that start at once could break it, and then no task of either
    could be read any more. So each query is loaded from a registration of its own.
    """
    session.dataSource.register(StreamsSource)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise ComponentFailed(f"JAVA_HOME is {home}, but there is no bin/java in it: correct it, or unset it")
    if not home and shutil.which("java") is None:
        raise ComponentFailed("Spark needs Java 17 or newer: set JAVA_HOME, or put java on the PATH")
