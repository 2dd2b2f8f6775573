"""Make a fork of this process a process of its own.

A fork shares the memory of everything its parent has imported. It also has the files, signal handlers and
exit handlers of its parent, which are not its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals whose handlers the parent may have set; forks start with the default."""


def can_fork() -> bool:
    """Return whether a fork of this process can run Python code: Linux, and no other thread holds a lock."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and threading.active_count() == 1


def reset_signals() -> None:
    for number in HANDLED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def close_files_from(first_descriptor: int) -> None:
    """Close the parent's files. Python objects that refer to them must never be used or finalised."""
    os.closerange(first_descriptor, os.sysconf("SC_OPEN_MAX"))


def replace_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def run_and_exit(work: Callable[[], None]) -> NoReturn:
    """Run the work of a fork and end it, without the exit handlers of the process it was forked from."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not return into the code of the parent
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
