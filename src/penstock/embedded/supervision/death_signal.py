"""Ask the kernel for a signal when the parent process ends (Linux)."""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_EXIT_CODE_WITHOUT_PARENT = 125


def _find_prctl() -> ctypes._NamedFuncPointer | None:
    if not sys.platform.startswith("linux"):
        return None
    return ctypes.CDLL(None, use_errno=True).prctl


# Looked up before any fork: a child that is about to execute a program must not import or load anything.
_prctl = _find_prctl()


def request_death_signal(number: int, parent_pid: int) -> None:
    """Call it in the child. A change of user clears the request; a child whose parent is gone already exits.

    The kernel watches the parent's *thread*: the one that forked must live as long as the child should.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(_EXIT_CODE_WITHOUT_PARENT)
