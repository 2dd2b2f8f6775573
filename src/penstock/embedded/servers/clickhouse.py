"""The embedded ClickHouse: the engine as a library, in a process of its own behind ClickHouse's HTTP."""

from __future__ import annotations

import http.client
import importlib.util
import sys
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from penstock.embedded.servers.home_secrets import PASSWORD, ensure_password
from penstock.embedded.servers.ports import LOOPBACK
from penstock.embedded.supervision.component import HEALTHY, Health, Program
from penstock.embedded.supervision.failures import from_os_error, not_here
from penstock.embedded.supervision.process import Command
from penstock.errors import ComponentFailed


class ClickHouse(Program):
    """ClickHouse as a library behind our HTTP front, its data in `<home>/clickhouse`."""

    name = "clickhouse"
    start_timeout_s: ClassVar[float] = 120.0

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(home)
        self.port = port

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://penstock:{ensure_password(self.home)}@{LOOPBACK}:{self.port}/default"

    @property
    def _data(self) -> Path:
        return self.home / "clickhouse"

    def prepare(self) -> str | None:
        if importlib.util.find_spec("chdb") is None:
            raise ComponentFailed(not_here("ClickHouse", "chdb", "PENSTOCK_CLICKHOUSE_URL"))
        ensure_password(self.home)
        try:
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ComponentFailed(from_os_error("preparing ClickHouse", error, self._data)) from error
        return None

    def command(self) -> Command:
        return Command(
            argv=(
                *(sys.executable, "-m", "penstock.embedded.servers.clickhouse_server"),
                *("--path", str(self._data), "--port", str(self.port)),
                *("--password-file", str(self.home / PASSWORD)),
            ),
            cwd=self._data,
        )

    def probe(self) -> Health:
        return probe_clickhouse(self.url)


def probe_clickhouse(url: str, timeout_s: float = 2.0) -> Health:
    """GET /ping, which every ClickHouse answers with `Ok.`; ours runs a query first."""
    parts = urlsplit(url)
    secure = parts.scheme in ("https", "clickhouses") or parts.port in (443, 8443)
    host, port = parts.hostname or LOOPBACK, parts.port or (8443 if secure else 8123)
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/ping")
        answer = connection.getresponse()
        said = answer.read(200).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return Health(False, f"no answer on {host}:{port} ({getattr(error, 'strerror', None) or error})")
    finally:
        connection.close()
    return HEALTHY if answer.status == 200 else Health(False, f"it answered {answer.status}: {said}")
