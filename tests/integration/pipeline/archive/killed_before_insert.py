"""Run the pipeline in a process that kills itself between archive and insert.

The settings are in the environment.
"""

from __future__ import annotations

import os
import signal

from penstock.config import load_settings
from penstock.definitions import QUEUE
from penstock.pipeline.job import run
from penstock.warehouse.clickhouse_client import Warehouse


def kill_this_process(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    setattr(Warehouse, "insert_once", kill_this_process)  # noqa: B010 - replaces a method
    run(load_settings(), [QUEUE])
