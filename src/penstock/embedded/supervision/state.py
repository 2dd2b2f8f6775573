"""The state file `<home>/run/state.json`: what the supervisor knows, for `penstock status` elsewhere.

Replaced in one step, so a reader never sees half of it. It is believed only while the very supervisor that
wrote it is alive.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.embedded.supervision.process_identity import ProcessIdentity


class State(StrEnum):
    """What a part is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    SILENT = "not answering"
    DOWN = "down"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ComponentState:
    """One row of the table of parts. Times are seconds since the epoch; `yours` means not run here."""

    name: str
    state: State
    address: str
    pid: int | None = None
    up_since: float | None = None
    restarts: int = 0
    last_failure: str | None = None
    last_failure_at: float | None = None
    yours: bool = False


@dataclass(frozen=True, slots=True)
class PlatformState:
    """Everything `penstock status` shows."""

    supervisor: ProcessIdentity
    home: str
    url: str
    at: float
    started_at: float
    parts: tuple[ComponentState, ...]

    @property
    def all_up(self) -> bool:
        return all(part.state is State.UP for part in self.parts)


def state_path(home: Path) -> Path:
    return home / "run" / "state.json"


def write_state(home: Path, state: PlatformState) -> None:
    path = state_path(home)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(asdict(state), indent=1))
    fresh.replace(path)


def read_state(home: Path) -> PlatformState | None:
    """The state of the platform that runs on this home now, or None when none does."""
    try:
        content: dict[str, Any] = json.loads(state_path(home).read_text())
        supervisor = ProcessIdentity(**content.pop("supervisor"))
        parts = tuple(ComponentState(**{**row, "state": State(row["state"])}) for row in content.pop("parts"))
        state = PlatformState(supervisor=supervisor, parts=parts, **content)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return state if supervisor.alive else None
