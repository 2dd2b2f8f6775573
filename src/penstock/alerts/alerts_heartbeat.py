"""The heartbeat of the process that evaluates alerts: a file in the home."""

from __future__ import annotations

from pathlib import Path

HEARTBEAT_INTERVAL_S = 5.0
MAX_SILENCE_S = 30.0
"""A process that touches the file less often hangs."""


def heartbeat_path(home: Path) -> Path:
    """The file that a running process touches every few seconds."""
    return home / "alerts.heartbeat"
