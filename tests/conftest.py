"""Real servers for the tests. Each starts when a test first needs it and stops at the end of the run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer

from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.java import find_java
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from tests import spark_classes
from tests.deadlines import deadline_s, slowness
from tests.directories import memory_directory, temporary_directory
from tests.distribution import FileScheduling, starting_order
from tests.redis_databases import RedisDatabases
from tests.unsynced_servers import UnsyncedPostgres, UnsyncedValkey

ARCHIVE_CREATION = pytest.StashKey[subprocess.Popen[bytes] | None]()


def pytest_report_header() -> str:
    return f"slowness: {slowness():.1f} (deadlines of tests are multiplied by it)"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Create the archive of Spark's classes beside a run of all tests; single tests do without."""
    if session.config.getoption("numprocesses", None):
        session.config.stash[ARCHIVE_CREATION] = spark_classes.start_creation()


def pytest_runtest_setup() -> None:
    spark_classes.use_archive()


def pytest_sessionfinish(session: pytest.Session) -> None:
    creation = session.config.stash.get(ARCHIVE_CREATION, None)
    if creation is not None:
        spark_classes.end_creation(creation)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Scale the time limit of every test, and put the longest tests first."""
    items.sort(key=lambda item: starting_order(item.nodeid))
    usual_limit_s = float(config.getoption("timeout") or config.getini("timeout"))
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0]) if marker else usual_limit_s
        item.add_marker(pytest.mark.timeout(deadline_s(limit_s)), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """Remove variables that change what the tests see: those of the developer, and the size of a terminal.

    Python's readline sets LINES and COLUMNS in the processes of pytest-xdist, even without a terminal.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "OTEL_"))]:
            patch.delenv(name)
        for name in ("LINES", "COLUMNS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def server_home() -> Iterator[Path]:
    """The home of the servers. In memory, a copy of a database costs a sixth of the CPU time."""
    with temporary_directory(memory_directory()) as home:
        yield home


@pytest.fixture
def open_tmp_path() -> Iterator[Path]:
    """Like tmp_path, but other users can pass through it."""
    with temporary_directory() as path:
        yield path


@pytest.fixture(scope="session")
def postgres_url(server_home: Path) -> Iterator[str]:
    """A PostgreSQL whose user can create databases. A test that changes the schema creates its own one.

    `make matrix` names other programs than the embedded ones in TEST_POSTGRES_PROGRAMS.
    """
    programs = os.environ.get("TEST_POSTGRES_PROGRAMS")
    server = UnsyncedPostgres(server_home, any_free_port(), Path(programs) if programs else None)
    with running(server):
        yield server.url


@pytest.fixture(scope="session")
def redis_databases(server_home: Path) -> Iterator[RedisDatabases]:
    """The databases of a Redis that all tests share. A fixture for several tests reserves one for them."""
    server = UnsyncedValkey(server_home, any_free_port())
    with running(server):
        yield RedisDatabases(server.url)


@pytest.fixture
def redis_url(redis_databases: RedisDatabases) -> Iterator[str]:
    """An empty Redis database for one test."""
    with redis_databases.reserve() as url:
        yield url


@pytest.fixture(scope="session")
def clickhouse_url(server_home: Path) -> Iterator[str]:
    server = ClickHouse(server_home, any_free_port())
    with running(server):
        yield server.url


@pytest.fixture(scope="session")
def java_home(server_home: Path) -> str:
    """A directory for JAVA_HOME, even if no Java is installed."""
    return str(find_java(server_home).home)
