"""The embedded PostgreSQL, started for real."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import asyncpg
import pytest

from penstock.embedded.servers import data_directory
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres, probe_postgres
from penstock.embedded.supervision.component import running
from penstock.errors import ComponentFailed

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")


@pytest.fixture(scope="module")
def made_home(server_home: Path) -> Path:
    """A home whose PostgreSQL was run once and stopped: the tests here copy it rather than make their own."""
    home = server_home / "postgres-tests"
    home.mkdir()
    with running(Postgres(home, any_free_port())):
        pass
    return home


@pytest.fixture
def home(made_home: Path, open_tmp_path: Path) -> Path:
    home = open_tmp_path / "home"
    shutil.copytree(made_home, home, symlinks=True)
    for path in (home / "postgres", *(home / "postgres").rglob("*")):
        owner = (made_home / path.relative_to(home)).stat()
        os.chown(path, owner.st_uid, owner.st_gid)
    return home


async def value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_data_survives_a_kill_and_a_restart_on_another_port(home: Path) -> None:
    first = Postgres(home, any_free_port())
    with running(first) as child:
        await value(first.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        assert not first.probe().ok
    second = Postgres(home, any_free_port())
    with running(second):
        assert second.probe().ok
        assert await value(second.url, "SELECT answer FROM kept") == 42


async def test_it_is_durable_and_private(home: Path) -> None:
    server = Postgres(home, any_free_port())
    with running(server):
        assert await value(server.url, "SHOW fsync") == "on"
        assert await value(server.url, "SHOW listen_addresses") == "127.0.0.1"
        assert await value(server.url, "SHOW unix_socket_directories") == ""
        with pytest.raises(asyncpg.InvalidPasswordError):
            await value(f"postgresql://penstock:wrong@127.0.0.1:{server.port}/penstock", "SELECT 1")


async def test_a_lost_password_is_replaced(home: Path) -> None:
    (home / "password").unlink()
    server = Postgres(home, any_free_port())
    with running(server):
        assert await value(server.url, "SELECT 1") == 1


def test_data_of_another_major_version_is_refused_in_words(home: Path) -> None:
    (home / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(ComponentFailed, match=r"made by PostgreSQL 14 and this is PostgreSQL 18.*pg_upgrade"):
        Postgres(home, any_free_port()).prepare()


@as_root
def test_data_of_another_user_is_refused_in_words(home: Path) -> None:
    os.chown(home / "postgres", 12345, 12345)
    with pytest.raises(ComponentFailed, match=r"belongs to user 12345, but PostgreSQL runs as"):
        Postgres(home, any_free_port()).prepare()


def test_a_foreign_directory_in_its_place_is_not_touched(open_tmp_path: Path) -> None:
    (open_tmp_path / "postgres").mkdir()
    (open_tmp_path / "postgres" / "thesis.txt").write_text("mine")
    with pytest.raises(ComponentFailed, match="not a PostgreSQL data directory and not empty"):
        Postgres(open_tmp_path, any_free_port()).prepare()
    assert (open_tmp_path / "postgres" / "thesis.txt").read_text() == "mine"


def test_a_leftover_lock_with_a_reused_pid_does_not_keep_it_down(home: Path) -> None:
    (home / "postgres" / "postmaster.pid").write_text(
        f"{os.getpid()}\n{home / 'postgres'}\n1\n1\n\n127.0.0.1\n"
    )
    with running(Postgres(home, any_free_port())):
        pass


def test_a_second_server_on_the_same_data_is_refused_in_words(home: Path) -> None:
    with running(Postgres(home, any_free_port())) as child:
        second = Postgres(home, any_free_port())
        with pytest.raises(
            ComponentFailed, match=rf"another PostgreSQL \(pid {child.identity.pid}\) already runs"
        ):
            second.prepare()


def test_a_crash_while_it_was_being_made_leaves_nothing_in_the_way(open_tmp_path: Path) -> None:
    half = open_tmp_path / "postgres.new" / "cluster"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    server = Postgres(open_tmp_path, any_free_port())
    with running(server):
        assert server.probe().ok
    assert not (open_tmp_path / "postgres.new").exists()


@as_root
def test_a_home_that_nobody_may_enter_keeps_its_data_outside(
    open_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /root: neither the home nor the installed programs can be entered by the unprivileged user."""
    private = open_tmp_path / "private"
    private.mkdir(mode=0o700)
    package = data_directory.find_postgres_programs().parent.parent
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.is_dir():
            shutil.copytree(directory, private / directory.name)
    hidden = private / package.name / "pginstall" / "bin"
    monkeypatch.setattr(data_directory, "find_postgres_programs", lambda: hidden)
    monkeypatch.setattr(data_directory, "OUTSIDE", open_tmp_path / "outside")

    home = private / "home"
    home.mkdir()
    server = Postgres(home, any_free_port())
    note = server.prepare()
    assert note is not None
    assert f"cannot enter {home}" in note
    with running(server):
        assert server.probe().ok
    data = (home / "postgres").resolve()
    assert data.is_relative_to(open_tmp_path / "outside")

    moved = home.rename(private / "elsewhere")
    again = Postgres(moved, any_free_port())
    with running(again):
        assert (moved / "postgres").resolve() == data, "a home that was renamed finds its data"

    home.mkdir()
    Postgres(home, any_free_port()).prepare()
    assert (home / "postgres").resolve() != data, "a new home in the old place begins anew"
    assert (data / "PG_VERSION").exists()


def test_a_port_where_nobody_or_somebody_else_answers_is_not_healthy() -> None:
    assert "no answer" in probe_postgres("127.0.0.1", any_free_port()).reason
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]

        def greet() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(b"220 mail.example ESMTP\r\n")
                while connection.recv(1024):
                    pass

        greeter = threading.Thread(target=greet)
        greeter.start()
        assert "is not PostgreSQL" in probe_postgres("127.0.0.1", port).reason
        greeter.join()
