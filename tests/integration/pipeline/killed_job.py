"""Run the pipeline as a process of its own that kills itself at a chosen seam: after its insert, or after the
group was moved and before Spark wrote down that the batch is done.

Usage: killed_job.py SEAM, with the settings in the environment.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from penstock.config import load_settings
from penstock.pipeline import sink
from penstock.pipeline.job import run


def die(*arguments: Any, **named: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(seam: str) -> None:
    move = sink.write_positions

    def move_and_die(*arguments: Any) -> None:
        move(*arguments)
        die()

    if seam == "after-insert":
        sink.write_positions = die
    elif seam == "before-commit":
        sink.write_positions = move_and_die
    run(load_settings())


if __name__ == "__main__":
    main(sys.argv[1])
