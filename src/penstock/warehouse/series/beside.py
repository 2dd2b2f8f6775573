"""Questions that are asked while another one is being answered.

ClickHouse works on them at the same time, so a series waits for the longest of its queries, not for all of
them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16
"""At once in this process; more of them wait their turn."""

_threads = ThreadPoolExecutor(MOST, thread_name_prefix="series")


def beside(ask: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    """Ask in another thread; `result()` gives the answer, or raises what asking raised."""
    return _threads.submit(ask, *args, **kwargs)
