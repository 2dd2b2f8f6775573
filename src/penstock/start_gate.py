"""A process that is started before the servers it needs: it loads its code, then waits until it may start.

The process that started it keeps its standard input open until then. A process that was started in another
way does not wait.
"""

from __future__ import annotations

import os
import sys

GATE_VARIABLE = "STARTED_EARLY_BY_PENSTOCK"
"""Environment variable that tells a process to wait for the end of its standard input."""


def must_wait() -> bool:
    """Return whether the servers of this process may not run yet."""
    return GATE_VARIABLE in os.environ


def wait_for_start() -> None:
    """Return when the servers run; at once the second time."""
    if os.environ.pop(GATE_VARIABLE, None):
        sys.stdin.buffer.read()
