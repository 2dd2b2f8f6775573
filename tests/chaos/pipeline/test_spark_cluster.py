"""The same job on a Spark cluster: a master and two workers on loopback, of which one dies."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pyspark
import pytest
from redis import Redis

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import LOOPBACK, any_free_port
from penstock.embedded.supervision.process import Child, Command, process_mark, spawn, stop
from penstock.pipeline.source.planning import SMALL_BATCH_ENTRIES
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from tests.chaos.pipeline.kill_metrics import set_aside
from tests.chaos.pipeline.killable import KillableJob
from tests.chaos.pipeline.rounds import PATIENCE_S, Rounds
from tests.waiting import wait_until

REDIS_DATABASE = 10
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Cluster:
    """Spark's own master and workers, as the pyspark package has them."""

    def __init__(self, home: Path, java_home: str, stack: ExitStack) -> None:
        self._home = home
        self._stack = stack
        self._environment = {
            "JAVA_HOME": java_home,
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_CONF_DIR": str(home / "conf"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
        }
        # Where Spark's own settings go: the pipeline sets only what it depends on.
        (home / "conf").mkdir()
        (home / "conf" / "spark-defaults.conf").write_text(
            f"spark.executor.memory 512m\nspark.executor.extraJavaOptions {SMALL_JVM}\n"
        )
        port = any_free_port()
        self.url = f"spark://{LOOPBACK}:{port}"
        self._start("master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
        wait_until(
            lambda: socket.create_connection((LOOPBACK, port), 1).close() or True, PATIENCE_S, "a master"
        )
        self.workers = [self._worker(number) for number in range(2)]

    @property
    def environment(self) -> dict[str, str]:
        """What the driver needs."""
        names = ("JAVA_HOME", "SPARK_LOCAL_IP", "SPARK_CONF_DIR")
        return {"PENSTOCK_SPARK_MASTER": self.url, **{name: self._environment[name] for name in names}}

    def _worker(self, number: int) -> Child:
        work = self._home / f"worker-{number}"
        work.mkdir()
        size = ("--cores", "1", "--memory", "512m", "--work-dir", str(work))
        return self._start("worker.Worker", "--host", LOOPBACK, "--webui-port", "0", *size, self.url)

    def _start(self, name: str, *arguments: str) -> Child:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        argv = (str(launcher), f"org.apache.spark.deploy.{name}", *arguments)
        command = Command(argv, self._home, self._environment)
        part = f"{name}-{uuid4().hex[:6]}"
        child = spawn(command, self._home / f"{part}.log", process_mark(self._home, part))
        self._stack.callback(stop, child, 10)
        return child


@pytest.fixture
def cluster(java_home: str, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, java_home, stack)


@pytest.fixture
def stream_url(redis_url: str) -> str:
    url = urlunsplit(urlsplit(redis_url)._replace(path=f"/{REDIS_DATABASE}"))
    with Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def warehouse(clickhouse_url: str) -> Iterator[Warehouse]:
    database = f"cluster_{uuid4().hex[:12]}"
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/{database}"))
    migrate(url)
    opened = connect(url)
    yield opened
    opened.command(f"DROP DATABASE {database}")
    opened.close()


@pytest.mark.timeout(900)
def test_a_worker_dies_while_it_reads_and_the_totals_are_exact(
    cluster: Cluster, stream_url: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    home = tmp_path / "job"
    home.mkdir()
    servers = {"PENSTOCK_REDIS_URL": stream_url, "PENSTOCK_CLICKHOUSE_URL": warehouse.url}
    job = KillableJob(home, {**cluster.environment, **servers, "PENSTOCK_TRIGGER_MS": "200"})
    # More than one task per batch, so that both workers have something to do.
    rounds = Rounds(2 * SMALL_BATCH_ENTRIES, stream_url, warehouse, (QUEUE,))
    rounds.emit()
    with job.lives(QUEUE):
        rounds.wait_until_counted()
        job.order("reading", "node")
        rounds.emit()
        wait_until(
            lambda: any(worker.exit_code is not None for worker in cluster.workers),
            PATIENCE_S,
            "a worker dies",
        )
        rounds.wait_until_counted()
        rounds.emit()
        rounds.wait_until_counted()
        wait_until(job.nothing_waits, PATIENCE_S, "the report says that all is counted")
    assert [worker.exit_code is None for worker in cluster.workers].count(True) == 1
    assert rounds.found() == rounds.expected()
    assert set_aside(warehouse) == []
