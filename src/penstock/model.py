"""Frozen domain types shared by every layer."""

from __future__ import annotations

from typing import NamedTuple

QUEUE_MODE = "__QUEUE_MODE__"
"""The consumer group used when none is named."""

DEFAULT_PARTITION = "Default"


class Scope(NamedTuple):
    """Who owns a queue: organization / project / environment."""

    organization: str = "default"
    project: str = "default"
    environment: str = "default"


DEFAULT_SCOPE = Scope()
