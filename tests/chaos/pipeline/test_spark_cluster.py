"""Test of the pipeline on a Spark cluster: a master and two workers on loopback, one of which is killed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import LOOPBACK, any_free_port
from penstock.embedded.supervision.process import Child, Command, process_mark, spawn, stop
from penstock.pipeline.source.planning import SMALL_BATCH_ENTRIES
from penstock.warehouse.clickhouse_client import Warehouse
from tests.chaos.pipeline.kill_metrics import set_aside
from tests.chaos.pipeline.killable import KillableJob
from tests.chaos.pipeline.rounds import TIMEOUT_S, Rounds
from tests.waiting import wait_until

SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def is_listening(port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), 1):
        return True


class Cluster:
    """A Spark master and two workers, started from the pyspark package."""

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
        # Settings of the cluster; the pipeline sets only the options that it depends on.
        (home / "conf").mkdir()
        (home / "conf" / "spark-defaults.conf").write_text(
            f"spark.executor.memory 512m\nspark.executor.extraJavaOptions {SMALL_JVM}\n"
        )
        port = any_free_port()
        self.url = f"spark://{LOOPBACK}:{port}"
        self._start("master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
        wait_until(partial(is_listening, port), TIMEOUT_S, "the master listens")
        self.workers = [self._worker(number) for number in range(2)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the driver."""
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


@pytest.mark.timeout(900)
def test_totals_are_exact_when_workers_and_drivers_are_killed_between_the_inserts_of_a_batch(
    cluster: Cluster, redis_url: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    home = tmp_path / "job"
    home.mkdir()
    servers = {"PENSTOCK_REDIS_URL": redis_url, "PENSTOCK_CLICKHOUSE_URL": warehouse.url}
    settings = {**servers, "PENSTOCK_TRIGGER_MS": "200"}
    job = KillableJob(home, {**cluster.environment, **settings})
    # More than one task per batch, so that both workers read and insert.
    rounds = Rounds(2 * SMALL_BATCH_ENTRIES, redis_url, warehouse, (QUEUE,), waits_for_disk=False)
    rounds.emit()
    with job.running(QUEUE):
        rounds.wait_until_counted()
        job.order_kill("reading", "task")
        rounds.emit()
        rounds.wait_until_counted()
        assert job.is_executed("reading")
        job.order_kill("after-task-insert", "node")
        rounds.emit()
        wait_until(
            lambda: any(worker.exit_code is not None for worker in cluster.workers),
            TIMEOUT_S,
            "a worker is killed",
        )
        rounds.wait_until_counted()
        wait_until(job.has_no_lag, TIMEOUT_S, "the heartbeat says that all is counted")
    assert [worker.exit_code is None for worker in cluster.workers].count(True) == 1
    assert rounds.counted() == rounds.expected()

    # One of two ranges is inserted when the driver dies. Other cores, without a cluster, repeat the batch.
    job.order_kill("after-task-insert", "driver")
    rounds.emit()
    assert job.run_until_killed(QUEUE), job.log_tail()
    assert rounds.counted() != rounds.expected(rounds.count - 1), "a task has inserted"
    single_machine = job.with_environment({"PENSTOCK_SPARK_MASTER": "local[3]"})
    with single_machine.running(QUEUE):
        rounds.wait_until_counted()
        rounds.emit()
        rounds.wait_until_counted()
        wait_until(job.has_no_lag, TIMEOUT_S, "the heartbeat says that all is counted")
    assert rounds.counted() == rounds.expected()
    assert set_aside(warehouse) == []
