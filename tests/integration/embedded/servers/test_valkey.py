"""The embedded Valkey: durability, privacy and errors of a real server."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest
from redis import AuthenticationError, Redis

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.errors import ComponentFailed


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    server = Valkey(tmp_path, any_free_port())
    with running(server) as child, Redis.from_url(server.url) as client:
        client.xadd("stream", {"a": 1})
        client.set("kept", "yes")
        assert client.execute_command("WAITAOF", 1, 0, 5000)[0] == 1
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        assert not server.probe().ok
    restarted = Valkey(tmp_path, any_free_port())
    with running(restarted), Redis.from_url(restarted.url) as client:
        assert client.get("kept") == b"yes"
        assert client.xlen("stream") == 1


def test_it_is_durable_private_and_never_evicts(tmp_path: Path) -> None:
    server = Valkey(tmp_path, any_free_port())
    wrong_password_url = server.url.replace("@", "x@")
    with running(server):
        with Redis.from_url(server.url) as client:
            settings = client.config_get("*")
        with Redis.from_url(wrong_password_url) as unauthorized, pytest.raises(AuthenticationError):
            unauthorized.ping()
    expected = {"appendonly": "yes", "appendfsync": "always", "bind": "127.0.0.1", "save": ""}
    assert settings | expected | {"maxmemory-policy": "noeviction"} == settings
    assert stat.S_IMODE((server.data_directory / "valkey.conf").stat().st_mode) == 0o600


def test_a_taken_port_is_explained(tmp_path: Path, redis_url: str) -> None:
    port = int(redis_url.rpartition(":")[2].split("/")[0])
    with (
        pytest.raises(ComponentFailed, match=rf"Port {port} of valkey is in use by pid \d+"),
        running(Valkey(tmp_path, port)),
    ):
        pass


def test_a_home_with_a_space_in_its_name_works(tmp_path: Path) -> None:
    home = tmp_path / "my home"
    server = Valkey(home, any_free_port())
    with running(server):
        assert server.probe().ok
