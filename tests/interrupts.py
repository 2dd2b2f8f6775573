"""Processes that a test ends with SIGINT."""

from __future__ import annotations

import signal


def accept_interrupts() -> None:
    """Undo what a shell does to tests that it runs in the background: they and their children ignore SIGINT.

    Pass it as `preexec_fn`.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
