"""The embedded PostgreSQL: initialised on first use, loopback only, scram, durable as shipped (fsync on)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil

from penstock.embedded.servers.data_directory import Place, find_place, open_to_all
from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.servers.ports import LOOPBACK
from penstock.embedded.supervision.component import HEALTHY, Health, Program
from penstock.embedded.supervision.failures import from_os_error, last_line
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
    "log_checkpoints": "off",
    "fsync": "on",
}


class Postgres(Program):
    """PostgreSQL from the Python package, its data in `<home>/postgres`."""

    name = "postgres"
    start_timeout_s: ClassVar[float] = 120.0
    stop_timeout_s: ClassVar[float] = 20.0

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(home)
        self.port = port
        self._place: Place | None = None

    @property
    def address(self) -> str:
        return f"postgresql://{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{ensure_password(self.home)}@{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self) -> str | None:
        new_password = not (self.home / "password").exists()
        password = ensure_password(self.home)
        place = self._place = find_place(self.home)
        try:
            if not (place.data / "PG_VERSION").exists():
                self._initialise(place, password)
                return place.note
            self._check_version(place)
            self._check_owner(place)
            self._clear_stale_lock(place)
        except OSError as error:
            raise ComponentFailed(from_os_error("preparing PostgreSQL", error, place.data)) from error
        if new_password:
            self._single_user(place, place.data, "postgres", f"ALTER ROLE {USER} PASSWORD '{password}'")
        return place.note

    def command(self) -> Command:
        if self._place is None:
            raise RuntimeError("prepare() comes before command()")
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            **_SETTINGS,
        }
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return Command(
            argv=(str(self._place.programs / "postgres"), "-D", str(self._place.data), *flags),
            cwd=self._place.data,
            account=self._place.account,
            stop_signal=signal.SIGINT,  # fast shutdown: ends sessions, writes a checkpoint
        )

    def probe(self) -> Health:
        return probe_postgres(LOOPBACK, self.port)

    def _initialise(self, place: Place, password: str) -> None:
        """Make a new cluster beside its final place and move it there when complete.

        A crash on the way leaves nothing that looks like a cluster.
        """
        fresh = place.data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        if place.data.is_dir() and any(place.data.iterdir()):
            raise ComponentFailed(f"{place.data} is not a PostgreSQL data directory and not empty: move it away")
        fresh.mkdir(parents=True, mode=0o700)
        if place.account:
            if place.data.parent != self.home:
                open_to_all(place.data.parent, place.data.parent.parent)
            os.chown(fresh, place.account.uid, place.account.gid)
        cluster = fresh / "cluster"
        password_file = fresh / "password"
        password_file.write_text(password)
        password_file.chmod(0o600)
        if place.account:
            os.chown(password_file, place.account.uid, place.account.gid)
        self._run(
            place,
            (
                *(str(place.programs / "initdb"), "-D", str(cluster), "-U", USER, "-E", "UTF8"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
                *("--auth=scram-sha-256", f"--pwfile={password_file}", "--no-instructions"),
            ),
        )
        self._single_user(place, cluster, "postgres", f"CREATE DATABASE {DATABASE}")
        cluster.replace(place.data)
        shutil.rmtree(fresh)
        link = self.home / "postgres"
        if place.data.parent != self.home and not link.is_symlink():
            link.symlink_to(place.data)

    def _single_user(self, place: Place, data: Path, database: str, statement: str) -> None:
        program = str(place.programs / "postgres")
        self._run(place, (program, "--single", "-D", str(data), database), statement + "\n")

    def _run(self, place: Place, argv: tuple[str, ...], text: str = "") -> None:
        account = place.account
        done = subprocess.run(
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
        problem = [
            line for line in done.stderr.splitlines() if "FATAL" in line or "ERROR" in line or "error" in line
        ]
        if done.returncode != 0 or problem:
            said = problem[0] if problem else last_line(done.stderr or done.stdout)
            raise ComponentFailed(self.explain(done.returncode, f"{done.stderr}\n{said}"))

    def _check_version(self, place: Place) -> None:
        made_by = (place.data / "PG_VERSION").read_text().strip()
        shown = subprocess.run(
            (str(place.programs / "postgres"), "--version"),
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
        )
        ours = shown.stdout.split()[-1].split(".")[0]
        if made_by != ours:
            raise ComponentFailed(
                f"the data in {place.data} was made by PostgreSQL {made_by} and this is PostgreSQL {ours}: "
                f"carry it over with pg_upgrade or pg_dump, or move the directory away to begin anew"
            )

    def _check_owner(self, place: Place) -> None:
        wanted = place.account.uid if place.account else os.geteuid()
        owner = place.data.stat().st_uid
        if owner != wanted:
            raise ComponentFailed(
                f"{place.data} belongs to user {owner}, but PostgreSQL runs as user {wanted}: "
                f"run Penstock as the user who made it, or choose another PENSTOCK_HOME"
            )

    def _clear_stale_lock(self, place: Place) -> None:
        """Remove a lock whose process is gone or is not PostgreSQL; refuse to go on when it really runs.

        PostgreSQL judges by the pid alone, so after a reboot a reused pid would keep it from starting.
        """
        lock = place.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().splitlines()[0])
            process = psutil.Process(pid)
            is_postgres = (
                process.name().startswith("postgres") and Path(process.cwd()) == place.data.resolve()
            )
        except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
            is_postgres = False
        if is_postgres:
            raise ComponentFailed(
                f"another PostgreSQL (pid {pid}) already runs on {place.data}: "
                "stop it, or choose another PENSTOCK_HOME"
            )
        lock.unlink(missing_ok=True)


def probe_postgres(host: str, port: int, user: str = USER, timeout_s: float = 2.0) -> Health:
    """Ask a PostgreSQL for a session as far as its first answer, which tells whether it takes connections.

    While it starts, recovers or shuts down it says so; those words are passed on. Any other answer, even a
    refusal of this user, comes from a server that works. A host that begins with `/` is a socket's directory.
    """
    words = b"".join(word.encode() + b"\0" for word in ("user", user, "database", "postgres")) + b"\0"
    start = struct.pack("!ii", len(words) + 8, 196608) + words
    try:
        with _connect(host, port, timeout_s) as connection:
            connection.sendall(start)
            answer = connection.recv(1024)
            # A polite goodbye keeps the server's log clean; it may have hung up first.
            with suppress(OSError):
                connection.sendall(b"X\0\0\0\4")
    except OSError as error:
        return Health(False, f"no answer on {host}:{port} ({error.strerror or error})")
    if answer[:1] == b"R":
        return HEALTHY
    if answer[:1] == b"E":
        fields = {field[:1]: field[1:] for field in answer[5:].decode(errors="replace").split("\0")}
        if not fields.get("C", "").startswith("57P"):
            return HEALTHY
        return Health(False, fields.get("M", "it takes no connections"), busy=True)
    return Health(False, f"whatever answers on {host}:{port} is not PostgreSQL")


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        connection.close()
        raise
    return connection
