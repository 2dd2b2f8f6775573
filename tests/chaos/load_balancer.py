"""HAProxy with the configuration of `deploy/haproxy`, in front of brokers of a test."""

from __future__ import annotations

import csv
import os
import shutil
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from penstock.embedded.servers.ports import LOOPBACK
from penstock.embedded.supervision.component import HEALTHY, Health, Program
from penstock.embedded.supervision.process import Command
from tests.deadlines import deadline_s

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy" / "haproxy.cfg"
CONNECTED, PUSHES = "connected", "pushes"
"""Its backends."""
TIMEOUT_S = 10
_PROGRAM_DIRECTORIES = f"{os.environ.get('PATH', '')}:/usr/sbin"


def find_haproxy() -> str | None:
    return shutil.which("haproxy", path=_PROGRAM_DIRECTORIES)


class LoadBalancer(Program):
    """HAProxy on the loopback address. `brokers` are the addresses of its servers broker1, broker2, …"""

    name = "haproxy"

    def __init__(self, home: Path, port: int, brokers: Sequence[str]) -> None:
        super().__init__(home)
        self.port = port
        self._brokers = brokers

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def _configuration(self) -> Path:
        return self.home / "haproxy.cfg"

    @property
    def _socket(self) -> Path:
        return self.home / "haproxy.sock"

    def prepare(self) -> str | None:
        """Write the configuration with the addresses of the test, and a socket for its state."""
        text = CONFIGURATION.read_text()
        addresses = [f"10.0.0.{11 + number}:7480" for number in range(len(self._brokers))]
        for address, broker in zip(addresses, self._brokers, strict=True):
            assert text.count(address) == len((CONNECTED, PUSHES))
            text = text.replace(address, broker)
        text = text.replace("bind :7480", f"bind {LOOPBACK}:{self.port}")
        text += f'\nglobal\n    stats socket "{self._socket}" mode 600\n'
        self._configuration.write_text(text)
        return None

    def command(self) -> Command:
        program = find_haproxy()
        assert program is not None
        return Command(argv=(program, "-db", "-f", str(self._configuration)), cwd=self.home)

    def probe(self) -> Health:
        try:
            with urllib.request.urlopen(f"{self.address}/health/live", timeout=deadline_s(TIMEOUT_S)):
                return HEALTHY
        except (urllib.error.URLError, OSError) as error:
            return Health(False, str(error))

    def is_up(self, backend: str, broker: int) -> bool:
        """Return whether the backend sends requests to the broker with this number, from 1 on."""
        rows = csv.DictReader(self._ask("show stat").lstrip("# ").splitlines())
        [status] = [
            row["status"] for row in rows if (row["pxname"], row["svname"]) == (backend, f"broker{broker}")
        ]
        # "UP 1/2" has failed a check, and still gets requests.
        return status.startswith("UP")

    def count_producers(self) -> Counter[int]:
        """Return how many addresses of producers stay at each broker."""
        entries = self._ask(f"show table {PUSHES}").splitlines()[1:]
        fields = [field for entry in entries for field in entry.split() if field.startswith("server_id=")]
        return Counter(int(field.partition("=")[2]) for field in fields)

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(deadline_s(TIMEOUT_S))
            connection.connect(str(self._socket))
            connection.sendall(command.encode() + b"\n")
            with connection.makefile() as answer:
                return answer.read()
