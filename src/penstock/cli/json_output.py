"""Print JSON documents: indented for people, or one line each while `--watch` repeats the output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_one_line: ContextVar[bool] = ContextVar("one_line", default=False)


@contextmanager
def json_lines(enabled: bool = True) -> Iterator[None]:
    """Print each document in one line within this context."""
    token = _one_line.set(enabled)
    try:
        yield
    finally:
        _one_line.reset(token)


def print_json(document: object) -> None:
    """Print a document to stdout."""
    print(json.dumps(document, indent=None if _one_line.get() else 2, ensure_ascii=False))
