"""Penstock's own processes as components: the broker, the pipeline, and the demo load."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import urlsplit

from redis import RedisError

from penstock.alerts.alerts_heartbeat import MAX_SILENCE_S, heartbeat_path
from penstock.config import CLIENT_VARIABLES, Settings
from penstock.embedded.servers.java import find_java, write_wrapper
from penstock.embedded.servers.ports import BROKER_MODULE, require_port
from penstock.embedded.supervision.component import HEALTHY, Health, Program
from penstock.embedded.supervision.process import Command
from penstock.listen_address import local_url
from penstock.streams.progress import find_problem, is_pipeline_running, read_progress

PIPELINE_MODULE = "penstock.pipeline.pipeline_process"
PROBE_TIMEOUT_S = 2.0


class PenstockService(Program):
    """A Penstock command that takes all its settings from PENSTOCK_* variables."""

    death_signal: ClassVar[signal.Signals | None] = None
    starts_early: ClassVar[bool] = True

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        super().__init__(settings.home)
        self.settings = settings
        self.environment = dict(environment)

    def prepare(self) -> str | None:
        return None

    @abstractmethod
    def module_arguments(self) -> tuple[str, ...]:
        """Return the arguments of `python -m`."""

    def command(self) -> Command:
        argv = (sys.executable, "-m", *self.module_arguments())
        return Command(argv=argv, cwd=self.home, env=self.environment, death_signal=self.death_signal)


class BrokerService(PenstockService):
    """`penstock serve` on the platform's port."""

    name = "broker"
    depends_on = ("postgres", "migrations")
    start_timeout_s: ClassVar[float] = 120.0
    stop_timeout_s: ClassVar[float] = 15.0

    @property
    def address(self) -> str:
        return local_url(self.settings)

    def prepare(self) -> str | None:
        require_port(self.settings.port, self.settings.host)
        return None

    def module_arguments(self) -> tuple[str, ...]:
        return (BROKER_MODULE,)

    def probe(self) -> Health:
        """GET /health/live: a restart of the broker repairs no other component."""
        connection = _connect(self.address)
        server = f"{connection.host}:{connection.port}"
        try:
            connection.request("GET", "/health/live")
            json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException) as error:
            return Health(False, f"no answer on {server} ({getattr(error, 'strerror', None) or error})")
        except ValueError:
            return Health(False, f"another program, not Penstock, answers on {server}")
        finally:
            connection.close()
        return HEALTHY


class PipelineService(PenstockService):
    """`penstock pipeline run`: the Spark driver, and Spark itself unless the settings name a master."""

    name = "pipeline"
    # The embedded Redis is the component valkey; one of the operator is redis.
    depends_on = ("valkey", "redis", "clickhouse", "migrations")
    required = False
    start_timeout_s: ClassVar[float] = 300.0
    stop_timeout_s: ClassVar[float] = 20.0
    hang_timeout_s: ClassVar[float] = 120.0
    # When the supervisor dies, Redis and ClickHouse die too, so the pipeline could not finish a batch.
    # Spark's JVM ends with its driver; the next start repeats an interrupted batch, which counts once.
    death_signal: ClassVar[signal.Signals | None] = signal.SIGKILL
    _prepared_at = 0.0
    """A heartbeat older than this comes from an earlier run."""

    @property
    def address(self) -> str:
        return self.settings.spark_master or "Spark on this machine"

    def module_arguments(self) -> tuple[str, ...]:
        return (PIPELINE_MODULE,)

    def prepare(self) -> str | None:
        self._prepared_at = time.time()
        java = find_java(self.home)
        # An installed Java writes a line without time and level to the log if it gets the argument that the
        # wrapper drops.
        java_home = java.home if java.is_packaged else write_wrapper(self.home / "java", java.program)
        self.environment |= {
            "JAVA_HOME": str(java_home),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # The GNU allocator gives every few threads a heap of their own; Spark has 200 threads.
            "MALLOC_ARENA_MAX": "2",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if not self.settings.spark_master:
            self.environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        return None

    def probe(self) -> Health:
        try:
            progress = read_progress(self.settings.redis_url)
        except (RedisError, OSError, ValueError) as error:
            return Health(False, f"cannot read its progress ({error})")
        if not progress or float(progress["at"]) < self._prepared_at:
            return Health(False, "no heartbeat yet")
        problem = find_problem(progress)
        if problem is None:
            return HEALTHY
        # A pipeline that reports restarts its own queries. Ending it would end the queries that work.
        return Health(False, problem.rstrip("."), busy=is_pipeline_running(progress))


class AlertsService(PenstockService):
    """`penstock alerts run`: evaluates alert rules and delivers notices."""

    name = "alerts"
    depends_on = ("postgres", "valkey", "clickhouse", "migrations")
    required = False
    start_timeout_s: ClassVar[float] = 120.0
    stop_timeout_s: ClassVar[float] = 15.0
    hang_timeout_s: ClassVar[float] = 120.0
    _prepared_at = 0.0
    """A heartbeat older than this comes from an earlier run."""

    @property
    def address(self) -> str:
        return f"every {self.settings.alert_interval_s:g} s"

    def module_arguments(self) -> tuple[str, ...]:
        return ("penstock.alerts.alerts_process",)

    def prepare(self) -> str | None:
        self._prepared_at = time.time()
        return None

    def probe(self) -> Health:
        try:
            touched_at = heartbeat_path(self.home).stat().st_mtime
        except FileNotFoundError:
            return Health(False, "no heartbeat yet")
        if touched_at < self._prepared_at:
            return Health(False, "no heartbeat yet")
        silent_s = time.time() - touched_at
        if silent_s > MAX_SILENCE_S:
            return Health(False, f"no heartbeat for {silent_s:.0f} s")
        return HEALTHY


class DemoService(PenstockService):
    """The light load of `penstock up --demo`. It counts as healthy while it runs."""

    name = "demo"
    starts_early: ClassVar[bool] = False
    depends_on = ("broker",)
    required = False

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        super().__init__(settings, environment)
        # It calls the broker as any client does.
        self.environment |= {name: os.environ[name] for name in CLIENT_VARIABLES if name in os.environ}

    @property
    def address(self) -> str:
        return "pushes to and pops from the broker"

    def module_arguments(self) -> tuple[str, ...]:
        return ("penstock.cli.demo",)

    def probe(self) -> Health:
        return HEALTHY


def _connect(url: str) -> http.client.HTTPConnection:
    """Return a connection to the broker. A broker with an expired certificate is alive: none is checked."""
    parts = urlsplit(url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PROBE_TIMEOUT_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=PROBE_TIMEOUT_S, context=context
    )
