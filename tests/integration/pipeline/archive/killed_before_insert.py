"""Run the pipeline as a process of its own that kills itself between archive and insert.

The settings are in the environment.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from penstock.config import load_settings
from penstock.pipeline.job import run
from penstock.warehouse.clickhouse_client import Warehouse


def die(*arguments: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Warehouse.insert_once = die  # type: ignore[method-assign]
    run(load_settings())
