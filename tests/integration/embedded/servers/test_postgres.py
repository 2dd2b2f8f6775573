"""The embedded PostgreSQL: durability, privacy, recovery and errors of a real server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import asyncpg
import pytest

from penstock.embedded.servers.data_directory import find_postgres_programs
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.supervision.component import running
from penstock.errors import ComponentFailed

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")


@pytest.fixture(scope="module")
def initialised_home(server_home: Path) -> Path:
    """A home whose PostgreSQL ran once and stopped. The tests copy it, which is faster than a new one."""
    home = server_home / "postgres-tests"
    home.mkdir()
    with running(Postgres(home, any_free_port())):
        pass
    return home


@pytest.fixture
def home(initialised_home: Path, open_tmp_path: Path) -> Path:
    home = open_tmp_path / "home"
    shutil.copytree(initialised_home, home, symlinks=True)
    for path in (home / "postgres", *(home / "postgres").rglob("*")):
        owner = (initialised_home / path.relative_to(home)).stat()
        os.chown(path, owner.st_uid, owner.st_gid)
    return home


async def fetch_value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_data_survives_a_kill_and_a_restart_on_another_port(home: Path) -> None:
    first = Postgres(home, any_free_port())
    with running(first) as child:
        await fetch_value(first.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        assert not first.probe().ok
    second = Postgres(home, any_free_port())
    with running(second):
        assert second.probe().ok
        assert await fetch_value(second.url, "SELECT answer FROM kept") == 42


async def test_it_is_durable_and_private(home: Path) -> None:
    server = Postgres(home, any_free_port())
    with running(server):
        assert await fetch_value(server.url, "SHOW fsync") == "on"
        assert await fetch_value(server.url, "SHOW listen_addresses") == "127.0.0.1"
        assert await fetch_value(server.url, "SHOW unix_socket_directories") == ""
        with pytest.raises(asyncpg.InvalidPasswordError):
            await fetch_value(f"postgresql://penstock:wrong@127.0.0.1:{server.port}/penstock", "SELECT 1")


async def test_a_lost_password_is_replaced(home: Path) -> None:
    (home / "password").unlink()
    server = Postgres(home, any_free_port())
    with running(server):
        assert await fetch_value(server.url, "SELECT 1") == 1


def test_data_of_another_major_version_is_refused(home: Path) -> None:
    (home / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(
        ComponentFailed, match=r"created by PostgreSQL 14, but this is PostgreSQL 18.*pg_upgrade"
    ):
        Postgres(home, any_free_port()).prepare()


@root_only
def test_data_of_another_user_is_refused(home: Path) -> None:
    os.chown(home / "postgres", 12345, 12345)
    with pytest.raises(ComponentFailed, match=r"belongs to user 12345, but PostgreSQL runs as"):
        Postgres(home, any_free_port()).prepare()


def test_a_directory_with_foreign_files_is_not_touched(open_tmp_path: Path) -> None:
    (open_tmp_path / "postgres").mkdir()
    (open_tmp_path / "postgres" / "thesis.txt").write_text("mine")
    with pytest.raises(ComponentFailed, match="is not empty and not a PostgreSQL data directory"):
        Postgres(open_tmp_path, any_free_port()).prepare()
    assert (open_tmp_path / "postgres" / "thesis.txt").read_text() == "mine"


def test_a_stale_lock_file_with_a_reused_pid_does_not_prevent_a_start(home: Path) -> None:
    (home / "postgres" / "postmaster.pid").write_text(
        f"{os.getpid()}\n{home / 'postgres'}\n1\n1\n\n127.0.0.1\n"
    )
    with running(Postgres(home, any_free_port())):
        pass


def test_a_second_server_on_the_same_data_is_refused(home: Path) -> None:
    with running(Postgres(home, any_free_port())) as child:
        second = Postgres(home, any_free_port())
        with pytest.raises(
            ComponentFailed, match=rf"Another PostgreSQL \(pid {child.identity.pid}\) already runs"
        ):
            second.prepare()


def test_a_crash_during_initialisation_does_not_block_the_next_start(open_tmp_path: Path) -> None:
    incomplete = open_tmp_path / "postgres.new" / "cluster"
    incomplete.mkdir(parents=True)
    (incomplete / "PG_VERSION").write_text("18\n")
    server = Postgres(open_tmp_path, any_free_port())
    with running(server):
        assert server.probe().ok
    assert not (open_tmp_path / "postgres.new").exists()


@root_only
def test_a_home_that_postgres_cannot_enter_keeps_its_data_outside(open_tmp_path: Path) -> None:
    """As in /root: the unprivileged user can enter neither the home nor the installed programs."""
    private = open_tmp_path / "private"
    private.mkdir(mode=0o700)
    package = find_postgres_programs().parent.parent
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.is_dir():
            shutil.copytree(directory, private / directory.name)
    programs = private / package.name / "pginstall" / "bin"
    fallback_root = open_tmp_path / "outside"

    def create_server(home: Path) -> Postgres:
        return Postgres(home, any_free_port(), programs, fallback_root)

    home = private / "home"
    home.mkdir()
    server = create_server(home)
    note = server.prepare()
    assert note is not None
    assert f"cannot enter {home}" in note
    with running(server):
        assert server.probe().ok
    data = (home / "postgres").resolve()
    assert data.is_relative_to(fallback_root)

    renamed_home = home.rename(private / "elsewhere")
    with running(create_server(renamed_home)):
        assert (renamed_home / "postgres").resolve() == data, "a renamed home keeps its data"

    home.mkdir()
    create_server(home).prepare()
    assert (home / "postgres").resolve() != data, "a new home at the old path starts without data"
    assert (data / "PG_VERSION").exists()


def test_a_closed_port_and_another_program_are_not_healthy(tmp_path: Path) -> None:
    closed = Postgres(tmp_path, any_free_port())
    assert "no connection to" in closed.probe().reason
    closed.close()
    with socket.create_server(("127.0.0.1", 0)) as other_server:

        def greet() -> None:
            connection, _ = other_server.accept()
            with connection:
                connection.sendall(b"220 mail.example ESMTP\r\n")
                while connection.recv(1024):
                    pass

        greeter = threading.Thread(target=greet)
        greeter.start()
        mail_server = Postgres(tmp_path, other_server.getsockname()[1])
        assert "does not answer as PostgreSQL" in mail_server.probe().reason
        mail_server.close()
        greeter.join()
