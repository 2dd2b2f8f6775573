"""Make the import of PySpark slow in the process that plans a query, as on a machine at load 30."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder

IMPORT_S = 12
"""Longer than Spark waits for the process."""


class SlowPySpark(MetaPathFinder):
    """Finds no module, and takes its time over PySpark."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name == "pyspark":
            time.sleep(IMPORT_S)


PLANNING_MODULES = ("python_streaming_source_runner", "worker_launcher")
if any(argument.endswith(PLANNING_MODULES) for argument in sys.orig_argv):
    sys.meta_path.insert(0, SlowPySpark())
