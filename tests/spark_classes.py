"""An archive of the classes that Spark loads. With it, its Java processes start in half of the CPU time.

Many tests kill Spark and start it again. The first run of the tests creates the archive in the virtual
environment, in the background; tests that start Spark meanwhile do without. Java ignores an archive that does
not match it. The platform has none, because it is larger than what it saves.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path

from penstock.embedded.servers.java import find_java

OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Spark adds the options in it to those of its Java process."""


def use_archive() -> None:
    """Let the Java processes that start from now on use the archive, if it exists."""
    if OPTIONS_VARIABLE not in os.environ and (archive := _archive_path()) and archive.exists():
        os.environ[OPTIONS_VARIABLE] = shlex.quote(f"-XX:SharedArchiveFile={archive}")


def start_creation() -> subprocess.Popen[bytes] | None:
    """Create the archive in a process of its own, unless it exists or Java cannot create one."""
    archive = _archive_path()
    if archive is None or archive.exists():
        return None
    with archive.with_suffix(".log").open("wb") as log:
        command = [sys.executable, "-m", "tests.spark_classes", str(archive)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def end_creation(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process, and say if it failed: the next run is slower."""
    archive = _archive_path()
    if process.wait() != 0 and archive is not None:
        warnings.warn(f"No archive of Spark's classes: see {archive.with_suffix('.log')}.", stacklevel=2)


def create(archive: Path) -> None:
    """Run the parts of Spark that the pipeline uses, and end Java, which then writes the archive."""
    from penstock.pipeline.session import build_session  # slow to import

    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        new_archive, scratch = Path(directory, "classes.jsa"), Path(directory, "scratch")
        os.environ[OPTIONS_VARIABLE] = shlex.quote(f"-XX:ArchiveClassesAtExit={new_archive}")
        session = build_session("local[1]", scratch)
        frame = session.range(1000).selectExpr("id", "id % 7 AS k", "CAST(id AS string) AS name")
        frame.groupBy("k").agg({"id": "sum"}).toArrow()
        query = (
            session.readStream.format("rate")
            .option("numPartitions", 1)
            .load()
            .writeStream.foreachBatch(lambda batch, number: batch.toArrow() and None)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        gateway = session.sparkContext._gateway
        assert gateway is not None
        java = gateway.proc
        session.stop()
        java.stdin.close()
        java.wait()
        new_archive.replace(archive)


@cache
def _archive_path() -> Path | None:
    """Return where the archive for this Java and this Spark is, or None if Java cannot create one."""
    directory = Path(sys.prefix)
    java = find_java(directory)
    if java.is_packaged or not (java.home / "lib" / "server" / "classes.jsa").exists():
        return None
    build = (java.home / "release").read_text()
    key = hashlib.sha256(f"{build} {version('pyspark')}".encode()).hexdigest()
    return directory / f"spark-classes-{key[:12]}.jsa"


if __name__ == "__main__":
    create(Path(sys.argv[1]))
