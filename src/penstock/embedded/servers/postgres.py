"""The embedded PostgreSQL: initialised on first use, loopback only, SCRAM passwords, durable (fsync on)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

import psutil

from penstock.durable.postgres_probe import PostgresProbe
from penstock.embedded.servers.data_directory import (
    FALLBACK_ROOT,
    PostgresLayout,
    locate_postgres,
    open_to_all,
)
from penstock.embedded.servers.home_secrets import PASSWORD_FILE, ensure_password
from penstock.embedded.servers.ports import LOOPBACK, require_server_port
from penstock.embedded.servers.server_probe import ping_embedded
from penstock.embedded.supervision.component import Health, Program
from penstock.embedded.supervision.failures import explain_os_error, last_line
from penstock.embedded.supervision.process import Command
from penstock.errors import ComponentFailed

USER = "penstock"
DATABASE = "penstock"

_SETTINGS = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "wal_buffers": "16MB",
    "min_wal_size": "256MB",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "20s",
    "jit": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "fsync": "on",
}


class Postgres(Program):
    """PostgreSQL from the Python package, with its data in `<home>/postgres`."""

    name = "postgres"
    start_timeout_s: ClassVar[float] = 120.0
    stop_timeout_s: ClassVar[float] = 20.0

    def __init__(
        self, home: Path, port: int, programs: Path | None = None, fallback_root: Path = FALLBACK_ROOT
    ) -> None:
        super().__init__(home)
        self.port = port
        self._programs = programs
        self._fallback_root = fallback_root
        self._layout: PostgresLayout | None = None
        self._probe: PostgresProbe | None = None

    @property
    def address(self) -> str:
        return f"postgresql://{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{ensure_password(self.home)}@{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self) -> str | None:
        is_new_password = not (self.home / PASSWORD_FILE).exists()
        password = ensure_password(self.home)
        layout = self._layout = locate_postgres(self.home, self._programs, self._fallback_root)
        try:
            if not (layout.data / "PG_VERSION").exists():
                self._initialise(layout, password)
                return layout.note
            self._check_version(layout)
            self._check_owner(layout)
            self._clear_stale_lock(layout)
            require_server_port(self.name, self.port)
        except OSError as error:
            raise ComponentFailed(explain_os_error("prepare PostgreSQL", error, layout.data)) from error
        if is_new_password:
            statement = f"ALTER ROLE {USER} PASSWORD '{password}'"
            self._run_single_user(layout, layout.data, "postgres", statement)
        return layout.note

    def command(self) -> Command:
        if self._layout is None:
            raise RuntimeError("Call prepare() before command().")
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            **_SETTINGS,
        }
        flags = [argument for key, value in settings.items() for argument in ("-c", f"{key}={value}")]
        return Command(
            argv=(str(self._layout.programs / "postgres"), "-D", str(self._layout.data), *flags),
            cwd=self._layout.data,
            account=self._layout.account,
            stop_signal=signal.SIGINT,  # fast shutdown: ends sessions, writes a checkpoint
        )

    def probe(self) -> Health:
        if self._probe is None:
            self._probe = PostgresProbe(self.url)
        return ping_embedded(self._probe)

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def _initialise(self, layout: PostgresLayout, password: str) -> None:
        """Create a new cluster in a temporary directory and move it to its final path when it is complete.

        A crash in between leaves nothing that looks like a cluster.
        """
        temporary = layout.data.with_name("postgres.new")
        shutil.rmtree(temporary, ignore_errors=True)
        if layout.data.is_dir() and any(layout.data.iterdir()):
            raise ComponentFailed(
                f"{layout.data} is not empty and not a PostgreSQL data directory. Move it away."
            )
        temporary.mkdir(parents=True, mode=0o700)
        if layout.account:
            if layout.data.parent != self.home:
                open_to_all(layout.data.parent, layout.data.parent.parent)
            os.chown(temporary, layout.account.uid, layout.account.gid)
        cluster = temporary / "cluster"
        password_file = temporary / "password"
        password_file.write_text(password)
        password_file.chmod(0o600)
        if layout.account:
            os.chown(password_file, layout.account.uid, layout.account.gid)
        self._run(
            layout,
            (
                *(str(layout.programs / "initdb"), "-D", str(cluster), "-U", USER, "-E", "UTF8"),
                *_locale_options(major_version(layout)),
                *("--auth=scram-sha-256", f"--pwfile={password_file}", "--no-instructions"),
            ),
        )
        self._run_single_user(layout, cluster, "postgres", f"CREATE DATABASE {DATABASE}")
        cluster.replace(layout.data)
        shutil.rmtree(temporary)
        link = self.home / "postgres"
        if layout.data.parent != self.home and not link.is_symlink():
            link.symlink_to(layout.data)

    def _run_single_user(self, layout: PostgresLayout, data: Path, database: str, statement: str) -> None:
        program = str(layout.programs / "postgres")
        self._run(layout, (program, "--single", "-D", str(data), database), statement + "\n")

    def _run(self, layout: PostgresLayout, argv: tuple[str, ...], text: str = "") -> None:
        account = layout.account
        result = subprocess.run(
            argv,
            cwd="/",
            input=text,
            text=True,
            capture_output=True,
            check=False,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        error_lines = [
            line
            for line in result.stderr.splitlines()
            if "FATAL" in line or "ERROR" in line or "error" in line
        ]
        if result.returncode != 0 or error_lines:
            message = error_lines[0] if error_lines else last_line(result.stderr or result.stdout)
            raise ComponentFailed(self.explain_exit(result.returncode, f"{result.stderr}\n{message}"))

    def _check_version(self, layout: PostgresLayout) -> None:
        data_version = (layout.data / "PG_VERSION").read_text().strip()
        program_version = major_version(layout)
        if data_version != str(program_version):
            raise ComponentFailed(
                f"The data in {layout.data} was created by PostgreSQL {data_version}, but this is PostgreSQL "
                f"{program_version}. Convert it with pg_upgrade or pg_dump, or move the directory away to "
                "start with an empty database."
            )

    def _check_owner(self, layout: PostgresLayout) -> None:
        expected_uid = layout.account.uid if layout.account else os.geteuid()
        owner_uid = layout.data.stat().st_uid
        if owner_uid != expected_uid:
            raise ComponentFailed(
                f"{layout.data} belongs to user {owner_uid}, but PostgreSQL runs as user {expected_uid}. "
                "Run Penstock as the user who created it, or set another PENSTOCK_HOME."
            )

    def _clear_stale_lock(self, layout: PostgresLayout) -> None:
        """Remove a lock file unless its process is a PostgreSQL that runs on this data directory.

        PostgreSQL checks the pid alone, so after a reboot a reused pid would keep it from starting.
        """
        lock = layout.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().splitlines()[0])
            process = psutil.Process(pid)
            is_postgres = (
                process.name().startswith("postgres") and Path(process.cwd()) == layout.data.resolve()
            )
        except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
            is_postgres = False
        if is_postgres:
            raise ComponentFailed(
                f"Another PostgreSQL (pid {pid}) already runs on {layout.data}. "
                "Stop it, or set another PENSTOCK_HOME."
            )
        lock.unlink(missing_ok=True)


def major_version(layout: PostgresLayout) -> int:
    command = (str(layout.programs / "postgres"), "--version")
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    match = re.search(r"PostgreSQL\) (\d+)", result.stdout)
    if match is None:
        raise ComponentFailed(
            f"{command[0]} does not report a PostgreSQL version: {result.stdout.strip()!r}."
        )
    return int(match[1])


def _locale_options(version: int) -> tuple[str, ...]:
    """Return the options of initdb. The builtin provider, which depends on no system locale, came with 17."""
    if version >= 17:
        return "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"
    return ("--locale=C",)
