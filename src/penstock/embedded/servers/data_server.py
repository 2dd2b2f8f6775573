"""The base of the embedded servers that keep data in the home directory and listen on a loopback port."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from penstock.embedded.supervision.component import Program


class DataServer(Program):
    """A server on a loopback port, with its data in `<home>/<name>`. A start may take minutes."""

    start_timeout_s: ClassVar[float] = 120.0

    def __init__(self, home: Path, port: int) -> None:
        super().__init__(home)
        self.port = port

    @property
    def data_directory(self) -> Path:
        return self.home / self.name
