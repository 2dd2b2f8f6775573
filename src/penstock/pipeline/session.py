"""Build the Spark session of the pipeline: small, on loopback, fast to start, with little log output."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import ComponentFailed
from penstock.log_format import JSON, selected_format
from penstock.pipeline.fork_server import ForkServer
from penstock.pipeline.source.redis_streams import StreamsSource
from penstock.pipeline.worker_launcher import write_launcher
from penstock.private_directories import create_private_directory

log = logging.getLogger(__name__)

LOCAL_MASTER = "local[2]"

JVM_OPTIONS = (
    "-XX:+UseSerialGC",  # starts faster and needs less memory; the heap is small
    "-XX:TieredStopAtLevel=1",  # the hot loops are in Arrow and ClickHouse, so optimising Java costs more
    "-XX:-UsePerfData",
    # A heap that starts small and gives memory back: Java's default on a machine with much memory is a young
    # generation of 120 MB, which is filled completely before the first collection.
    "-Xms48m",
    "-XX:MaxNewSize=16m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=15",
    "-XX:+UseCompactObjectHeaders",  # Java 25; others ignore it, as Spark tells them to
    # Spark loads 120 MB of classes. A smaller start value means one full collection more for each step.
    "-XX:MetaspaceSize=96m",
    "-XX:MaxMetaspaceSize=256m",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:TrimNativeHeapInterval=60000",  # Java 17.0.9 and newer
)

CHECKPOINT_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Renames files within a local directory; Spark's default also copies checksum files."""


SECRETS = r"(?i)secret|passw|token|credential|(access|account)[._]?key|://[^/@\s]+@"
"""Names and values of settings that Spark hides in its web UI and logs, like URLs with a password."""


def build_session(
    master: str,
    scratch: Path,
    name: str = "penstock",
    *,
    ui_port: int = 0,
    fork_server: ForkServer | None = None,
) -> SparkSession:
    """Return a session with the stream source registered. `scratch` holds Spark's temporary files.

    The web UI of Spark listens on `ui_port`, or on one of the next ports if that is taken; 0 switches it off.
    Python processes of a local master are forked by the server, if there is one.
    Raises ComponentFailed when Java is missing. Spark keeps one session per process.
    """
    _require_java()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    create_private_directory(scratch)
    master = master or LOCAL_MASTER
    is_local = is_local_master(master)
    if is_local:
        os.environ["PYSPARK_PYTHON"] = str(write_launcher(scratch.absolute(), fork_server))
        # Spark looks for data sources with the Python of the driver, if one is set.
        os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:  # the nodes of a cluster may have Python at another path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if os.environ.get("LC_ALL") in ("C", "POSIX"):  # Java could not open a path with letters outside of ASCII
        os.environ["LC_ALL"] = "C.UTF-8"
    log_file = "log4j2-json.properties" if selected_format() == JSON else "log4j2.properties"
    log_config = Path(str(resources.files("penstock.pipeline").joinpath(log_file))).as_uri()
    options = (*JVM_OPTIONS, f"-Dlog4j2.configurationFile={log_config}", f"-Djava.io.tmpdir={scratch}")
    settings = {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": shlex.join(options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": f"file://{(scratch / 'warehouse').absolute()}",
        "spark.ui.enabled": str(ui_port != 0).lower(),
        "spark.ui.port": str(ui_port),
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.killEnabled": "false",  # the UI has no password
        "spark.redaction.regex": SECRETS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.debug.maxToStringFields": "200",
        # Plans are shown in Spark's web UI and in errors: without the options that may hold a password.
        "spark.sql.redaction.options.regex": "(?i)url|archive",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILE_MANAGER,
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Tasks run in processes that daemons fork and keep, so imports happen once.
        "spark.python.use.daemon": "true",
        "spark.python.worker.reuse": "true",
        # The launcher of the planning process connects over TCP.
        "spark.python.unix.domain.socket.enabled": "false",
        # On a busy machine a Python process needs longer to start than Spark's default of 15 s.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.task.maxFailures": "4",
    }
    if not is_local:
        # Tasks on a cluster connect to the address that the master sees, not to loopback.
        for loopback in ("spark.driver.host", "spark.driver.bindAddress"):
            del settings[loopback]
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register_source(session)
    if ui_port:
        log.info("Spark's web UI is at %s", session.sparkContext.uiWebUrl)
    return session


def is_local_master(master: str | None) -> bool:
    """Return whether Spark runs in one process of this machine, and not on a cluster."""
    return master is not None and master.startswith("local")


def register_source(session: SparkSession) -> None:
    """Register the source for the next query that is loaded.

    While Spark starts the Python processes of a source, it changes a map in the registration that is not
    thread-safe. Two queries that start at the same time could corrupt it, and then no task of either query
    could run. So each query is loaded from its own registration.
    """
    session.dataSource.register(StreamsSource)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise ComponentFailed(
            f"JAVA_HOME is {home}, but that directory has no bin/java. Correct JAVA_HOME or unset it"
        )
    if not home and shutil.which("java") is None:
        raise ComponentFailed("Spark needs Java 17 or newer. Set JAVA_HOME, or put java on the PATH")
