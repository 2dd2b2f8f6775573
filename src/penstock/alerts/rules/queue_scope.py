"""Which queues a rule or a silence selects."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache


def in_scope(pattern: str | None, queue: str) -> bool:
    """Return whether `pattern` (a name, a pattern with `*` and `?`, or None for all) selects the queue."""
    return pattern is None or pattern == queue or _compile(pattern).match(queue) is not None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; all characters but `*` and `?` stand for themselves."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
