"""The embedded ClickHouse: the engine (chdb) in a process that serves ClickHouse's HTTP interface."""

from __future__ import annotations

import http.client
import importlib.util
import sys

from penstock.embedded.servers.data_server import DataServer
from penstock.embedded.servers.home_secrets import PASSWORD_FILE, ensure_password
from penstock.embedded.servers.ports import LOOPBACK, require_server_port
from penstock.embedded.supervision.component import HEALTHY, Health
from penstock.embedded.supervision.failures import explain_missing_package, explain_os_error
from penstock.embedded.supervision.process import Command
from penstock.errors import ComponentFailed


class ClickHouse(DataServer):
    """The embedded ClickHouse engine behind an HTTP server, with its data in `<home>/clickhouse`."""

    name = "clickhouse"

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://penstock:{ensure_password(self.home)}@{LOOPBACK}:{self.port}/default"

    def prepare(self) -> str | None:
        if importlib.util.find_spec("chdb") is None:
            raise ComponentFailed(explain_missing_package("ClickHouse", "chdb", "PENSTOCK_CLICKHOUSE_URL"))
        require_server_port(self.name, self.port)
        ensure_password(self.home)
        try:
            self.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ComponentFailed(
                explain_os_error("prepare ClickHouse", error, self.data_directory)
            ) from error
        return None

    def command(self) -> Command:
        return Command(
            argv=(
                *(sys.executable, "-m", "penstock.embedded.servers.clickhouse_server"),
                *("--path", str(self.data_directory), "--port", str(self.port)),
                *("--password-file", str(self.home / PASSWORD_FILE)),
            ),
            cwd=self.data_directory,
        )

    def probe(self) -> Health:
        """GET /ping: it runs a query on a connection of its own, so it never waits for other queries."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=2.0)
        try:
            connection.request("GET", "/ping")
            response = connection.getresponse()
            text = response.read(200).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or error
            return Health(False, f"no answer on {LOOPBACK}:{self.port} ({reason})")
        finally:
            connection.close()
        return HEALTHY if response.status == 200 else Health(False, f"HTTP status {response.status}: {text}")
